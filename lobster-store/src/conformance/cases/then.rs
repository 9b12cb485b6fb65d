//! What becomes of a run after its rows: evicted, released, held, finished.

use crate::{
    conformance::build::{Build, fate, offer, outcome, step, word},
    conformance::world::{HOUR, Node, World},
    contract::{Grant, NewVerdict, Origin, RunState, Seq, VerdictAnswer},
};

/// Wakes the run by a verdict on its first delta.
async fn wake(world: &World, grant: &Grant, tail: Seq) {
    let (run, step, origin, at) = (grant.run, step(1), Origin::Person, world.now());
    let verdict = NewVerdict { run, step, intent: 1, tail, origin, fate: fate(run, false), at };
    assert_eq!(world.tiers.journal.verdict(verdict).await.expect("a verdict is answered"), VerdictAnswer::Accepted);
}

async fn cancel(world: &World, grant: &Grant) {
    world.tiers.journal.cancel(grant.run, outcome(grant.run, "no"), world.now()).await.expect("a cancel is answered");
}

/// A run whose first delta is an intent.
async fn in_doubt(world: &World, node: &Node) -> Grant {
    let mut grant = world.granted(node).await;
    let seen = node.append(offer(&grant).intent().synced(node.incarnation)).await;
    (grant.tail, grant.mark) = (seen.tail, seen.mark);
    grant
}

pub async fn an_evicted_run_is_ready_at_its_due_time(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    let due = world.in_an_hour();
    let seen = node.append(offer(&grant).results(1).evict(due, grant.wake).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.mine, seen.state, seen.tail), (1, true, true, RunState::Ready, 1));
    let row = world.row(grant.run).await;
    assert_eq!((row.state, row.owner, row.due, row.reason.as_str()), (RunState::Ready, None, due, "waits"));
    assert_eq!(node.claim().await, []);
    world.advance(HOUR).await;
    let next = node.claim_one().await;
    assert_eq!((next.run, next.epoch, next.tail), (grant.run, 2, 1));
    assert_eq!(world.row(grant.run).await.reason, "", "it waits no longer");
}

pub async fn an_eviction_is_refused_after_a_wake(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    wake(&world, &grant, 1).await;
    let seen = node.append(offer(&grant).results(1).evict(world.in_an_hour(), grant.wake).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.state, seen.wake), (1, false, RunState::Running, grant.wake + 1));
    let seen = node.append(offer(&grant).after(2).evict(world.in_an_hour(), seen.wake).synced(node.incarnation)).await;
    assert!(seen.then, "the holder has looked since");
}

pub async fn an_eviction_is_refused_after_a_cancel(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    cancel(&world, &grant).await;
    let seen = node.append(offer(&grant).results(1).evict(world.in_an_hour(), grant.wake).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.cancel), (1, false, true));
    let seen = node.append(offer(&grant).after(1).evict(world.in_an_hour(), seen.wake).synced(node.incarnation)).await;
    assert_eq!((seen.then, seen.state), (false, RunState::Running), "even if the wake was seen");
}

pub async fn a_released_run_is_ready_at_once(world: World) {
    let (node, other) = (world.node().await, world.node().await);
    let grant = world.granted(&node).await;
    let seen = node.append(offer(&grant).results(1).release().synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.mine, seen.state), (1, true, true, RunState::Ready));
    let row = world.row(grant.run).await;
    assert_eq!((row.owner, row.reason.as_str()), (None, ""));
    let next = other.claim_one().await;
    assert_eq!((next.run, next.epoch, next.tail, next.mark), (grant.run, 2, 1, seen.mark));
}

pub async fn a_released_orphan_is_ready_at_once(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    world.granted(&old).await;
    world.fail(&old).await;
    let grant = new.claim_one().await;
    new.append(offer(&grant).release().synced(new.incarnation)).await;
    assert_eq!(new.claim_one().await.epoch, 3);
}

pub async fn eviction_and_release_give_the_attempt_back(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    for _ in 0..2 {
        let grant = match world.row(grant.run).await.state {
            RunState::Running => grant.clone(),
            _ => node.claim_one().await,
        };
        assert_eq!(grant.attempts, 1);
        node.append(offer(&grant).evict(world.now(), grant.wake).synced(node.incarnation)).await;
        assert_eq!(world.row(grant.run).await.attempts, 0);
        let grant = node.claim_one().await;
        node.append(offer(&grant).release().synced(node.incarnation)).await;
        assert_eq!(world.row(grant.run).await.attempts, 0);
    }
}

pub async fn an_attempt_that_made_progress_is_not_given_back_twice(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).results(1).release().synced(node.incarnation)).await;
    assert_eq!(world.row(grant.run).await.attempts, 0);
    assert_eq!(node.claim_one().await.attempts, 1);
}

pub async fn a_held_run_waits_for_a_person(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    let seen = node.append(offer(&grant).results(1).hold(grant.wake).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.mine, seen.state), (1, true, true, RunState::Held));
    let row = world.row(grant.run).await;
    assert_eq!((row.state, row.owner, row.reason.as_str()), (RunState::Held, None, "a person must look"));
    assert_eq!(node.claim().await, []);
}

pub async fn a_hold_is_refused_after_a_wake(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    wake(&world, &grant, 1).await;
    let seen = node.append(offer(&grant).results(1).hold(grant.wake).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.state, seen.wake), (1, false, RunState::Running, grant.wake + 1));
}

pub async fn a_hold_is_refused_after_a_cancel(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    cancel(&world, &grant).await;
    let wake = world.tiers.journal.attend(node.incarnation).await.expect("an attend is answered")[0].wake;
    let seen = node.append(offer(&grant).hold(wake).synced(node.incarnation)).await;
    assert_eq!((seen.then, seen.state), (false, RunState::Running));
}

pub async fn a_hold_without_rows_asks_only_for_the_fence(world: World) {
    let (node, other) = (world.node().await, world.node().await);
    let grant = world.begun(&node, 2).await;
    let blind = offer(&grant).after(7).hold(grant.wake);
    assert!(!other.append(blind.clone().synced(other.incarnation)).await.then, "it is not the owner");
    let seen = node.append(blind.synced(node.incarnation)).await;
    assert_eq!((seen.then, seen.state, seen.tail, seen.mark), (true, RunState::Held, 2, grant.mark));
}

pub async fn a_hold_with_rows_follows_the_tail(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 2).await;
    let seen = node.append(offer(&grant).after(7).results(1).hold(grant.wake).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.state, seen.tail), (0, false, RunState::Running, 2));
}

pub async fn a_finished_run_has_ended(world: World) {
    let node = world.node().await;
    for state in RunState::ALL.into_iter().filter(|state| state.ended()) {
        let grant = world.granted(&node).await;
        let at = world.in_an_hour();
        let seen = node.append(offer(&grant).results(1).finish(state, at).synced(node.incarnation)).await;
        assert_eq!((seen.rows, seen.then, seen.mine, seen.state, seen.tail), (1, true, true, state, 1));
        let stored = world.read(grant.run).await;
        let row = stored.summary;
        assert_eq!((row.state, row.owner, row.ended), (state, None, Some(at)), "at the time that its holder gave");
        let ended = stored.ended.expect("it has ended");
        assert_eq!((ended.state, word(grant.run, &ended.outcome)), (state, "finished".to_owned()));
    }
}

pub async fn a_run_may_be_finished_after_a_cancel(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    cancel(&world, &grant).await;
    let seen = node.append(offer(&grant).results(1).finish(RunState::Succeeded, world.now()).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.state), (1, true, RunState::Succeeded));
}

pub async fn a_finish_offered_again_changes_nothing(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).finish(RunState::Succeeded, world.now()).synced(node.incarnation)).await;
    let before = world.read(grant.run).await;
    let seen = node.append(offer(&grant).finish(RunState::Failed, world.in_an_hour()).synced(node.incarnation)).await;
    assert_eq!((seen.then, seen.mine, seen.state), (false, false, RunState::Succeeded));
    assert_eq!(world.read(grant.run).await, before);
}

pub async fn nothing_becomes_of_a_run_whose_rows_were_refused(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 2).await;
    let gap = offer(&grant).after(1).results(1);
    for offer in [
        gap.clone().release(),
        gap.clone().evict(world.now(), grant.wake),
        gap.clone().hold(grant.wake),
        gap.finish(RunState::Failed, world.now()),
        offer(&grant).after(7).release(),
        offer(&grant).after(7).evict(world.now(), grant.wake),
        offer(&grant).after(7).finish(RunState::Failed, world.now()),
    ] {
        let seen = node.append(offer.synced(node.incarnation)).await;
        assert_eq!((seen.rows, seen.then, seen.state, seen.tail), (0, false, RunState::Running, 2));
    }
    assert_eq!(world.row(grant.run).await.owner, Some(node.incarnation));
}

pub async fn nothing_becomes_of_a_run_whose_intent_was_refused(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    cancel(&world, &grant).await;
    for (then, tail) in [(offer(&grant).results(1).intent().release(), 1), (offer(&grant).after(1).intent().release(), 1)] {
        let seen = node.append(then.synced(node.incarnation)).await;
        assert_eq!((seen.then, seen.state, seen.tail), (false, RunState::Running, tail));
    }
}

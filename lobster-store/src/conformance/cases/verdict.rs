//! Verdicts on intents in doubt, and what `attend` tells the holder.

use crate::{
    conformance::build::{Build, fate, offer, outcome, step},
    conformance::world::{Node, World},
    contract::{Attention, Cancelled, FORKED, Grant, NewVerdict, Origin, RunId, RunState, Then, VerdictAnswer, Wall},
};

/// A verdict on the intent at seq 1 of a run with tail 1.
fn verdict(run: RunId, at: Wall) -> NewVerdict {
    NewVerdict { run, step: step(1), intent: 1, tail: 1, origin: Origin::Person, fate: fate(run, false), at }
}

async fn state(world: &World, verdict: NewVerdict) -> VerdictAnswer {
    world.tiers.journal.verdict(verdict).await.expect("a verdict is answered")
}

async fn in_doubt(world: &World, node: &Node) -> Grant {
    let mut grant = world.granted(node).await;
    let seen = node.append(offer(&grant).intent().synced(node.incarnation)).await;
    (grant.tail, grant.mark) = (seen.tail, seen.mark);
    grant
}

async fn attend(node: &Node) -> Vec<Attention> {
    node.tiers.journal.attend(node.incarnation).await.expect("an attend is answered")
}

pub async fn a_verdict_wakes_a_running_run(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    assert_eq!(state(&world, verdict(grant.run, world.now())).await, VerdictAnswer::Accepted);
    let seen = node.append(offer(&grant).synced(node.incarnation)).await;
    assert_eq!((seen.mine, seen.state, seen.wake), (true, RunState::Running, grant.wake + 1));
    let verdicts = node.recording(&grant).await.verdicts;
    assert_eq!((verdicts.len(), verdicts[0].intent, &verdicts[0].fate), (1, 1, &fate(grant.run, false)));
}

pub async fn a_verdict_makes_a_held_run_ready(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    node.append(offer(&grant).hold(grant.wake).synced(node.incarnation)).await;
    assert_eq!(state(&world, verdict(grant.run, world.now())).await, VerdictAnswer::Accepted);
    let row = world.row(grant.run).await;
    assert_eq!((row.state, row.due, row.reason.as_str()), (RunState::Ready, world.now(), ""));
    let next = node.claim_one().await;
    assert_eq!((next.run, next.wake), (grant.run, grant.wake + 1));
    assert_eq!(node.recording(&next).await.verdicts.len(), 1);
}

pub async fn a_verdict_does_not_release_a_run_that_is_held_as_forked(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    let mut held = offer(&grant).hold(grant.wake);
    let reason = format!("{FORKED}somebody else wrote to it");
    held.then = Some(Then::Hold { reason: reason.clone(), wake: grant.wake });
    node.append(held.synced(node.incarnation)).await;
    let before = world.row(grant.run).await;
    // The late result of one call says nothing of the others, and neither does a person's word.
    for (origin, answer) in [(Origin::Settle, VerdictAnswer::Accepted), (Origin::Person, VerdictAnswer::Exists)] {
        assert_eq!(state(&world, NewVerdict { origin, ..verdict(grant.run, world.now()) }).await, answer);
        let row = world.row(grant.run).await;
        assert_eq!((row.state, row.due, row.reason.as_str()), (RunState::Held, before.due, reason.as_str()));
        assert_eq!(node.claim().await, []);
    }
    let cancelled = world.tiers.journal.cancel(grant.run, outcome(grant.run, "enough"), world.now()).await;
    assert_eq!(cancelled.expect("a cancel is answered"), Cancelled::Done);
}

pub async fn a_verdict_makes_an_evicted_run_due(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    node.append(offer(&grant).evict(world.in_an_hour(), grant.wake).synced(node.incarnation)).await;
    assert_eq!(node.claim().await, []);
    assert_eq!(state(&world, verdict(grant.run, world.now())).await, VerdictAnswer::Accepted);
    assert_eq!(node.claim_one().await.run, grant.run);
}

pub async fn a_verdict_delays_nothing(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    let due = world.now();
    node.append(offer(&grant).evict(due, grant.wake).synced(node.incarnation)).await;
    assert_eq!(state(&world, verdict(grant.run, world.in_an_hour())).await, VerdictAnswer::Accepted);
    assert_eq!(world.row(grant.run).await.due, due);
    assert_eq!(node.claim_one().await.run, grant.run);
}

pub async fn a_verdict_on_a_run_that_went_on_is_refused(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    node.append(offer(&grant).results(1).relaxed(node.incarnation)).await;
    assert_eq!(state(&world, verdict(grant.run, world.now())).await, VerdictAnswer::Moved);
    let ahead = NewVerdict { tail: 7, ..verdict(grant.run, world.now()) };
    assert_eq!(state(&world, ahead).await, VerdictAnswer::Moved);
    let seen = node.append(offer(&grant).after(2).synced(node.incarnation)).await;
    assert_eq!(seen.wake, grant.wake, "a refused verdict wakes nobody");
    assert_eq!(node.recording(&grant).await.verdicts, []);
    let again = NewVerdict { tail: 2, ..verdict(grant.run, world.now()) };
    assert_eq!(state(&world, again).await, VerdictAnswer::Accepted);
}

pub async fn the_first_verdict_on_an_intent_stays(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    let late = NewVerdict { origin: Origin::Settle, fate: fate(grant.run, true), ..verdict(grant.run, world.now()) };
    assert_eq!(state(&world, verdict(grant.run, world.now())).await, VerdictAnswer::Accepted);
    assert_eq!(state(&world, late).await, VerdictAnswer::Exists);
    assert_eq!(state(&world, verdict(grant.run, world.now())).await, VerdictAnswer::Exists);
    let verdicts = node.recording(&grant).await.verdicts;
    assert_eq!((verdicts.len(), &verdicts[0].fate), (1, &fate(grant.run, false)));
    assert_eq!(attend(&node).await[0].wake, grant.wake + 1, "a refused verdict wakes nobody");
}

pub async fn each_intent_has_a_verdict_of_its_own(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    node.append(offer(&grant).intent().synced(node.incarnation)).await;
    for intent in [1, 2] {
        let verdict = NewVerdict { intent, tail: 2, step: step(intent), ..verdict(grant.run, world.now()) };
        assert_eq!(state(&world, verdict).await, VerdictAnswer::Accepted);
    }
    assert_eq!(node.recording(&grant).await.verdicts.len(), 2);
}

pub async fn a_verdict_on_an_ended_run_is_too_late(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    node.append(offer(&grant).finish(RunState::Failed, world.now()).synced(node.incarnation)).await;
    assert_eq!(state(&world, verdict(grant.run, world.now())).await, VerdictAnswer::Ended);
    let stored = world.read(grant.run).await;
    assert_eq!((stored.summary.state, stored.recording.verdicts.len()), (RunState::Failed, 0));
}

pub async fn a_verdict_on_nothing_finds_nothing(world: World) {
    assert_eq!(state(&world, verdict(world.run_id(), world.now())).await, VerdictAnswer::NotFound);
}

pub async fn a_verdict_does_not_take_a_run_from_its_holder(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    state(&world, verdict(grant.run, world.now())).await;
    let seen = node.append(offer(&grant).results(1).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.tail), (1, 2));
}

pub async fn a_run_nobody_wants_anything_from_needs_no_attention(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 2).await;
    node.append(offer(&grant).results(1).relaxed(node.incarnation)).await;
    assert_eq!(attend(&node).await, []);
}

pub async fn a_cancelled_and_a_woken_run_need_attention(world: World) {
    let (node, other) = (world.node().await, world.node().await);
    world.begun(&node, 1).await;
    let (cancelled, woken) = (world.begun(&node, 1).await, in_doubt(&world, &node).await);
    let foreign = world.begun(&other, 1).await;
    for run in [cancelled.run, foreign.run] {
        world.tiers.journal.cancel(run, outcome(run, "no"), world.now()).await.expect("a cancel is answered");
    }
    state(&world, verdict(woken.run, world.now())).await;
    let attention = |grant: &Grant, cancel| Attention { run: grant.run, epoch: grant.epoch, cancel, wake: grant.wake + 1 };
    for _ in 0..2 {
        let mut found = attend(&node).await;
        found.sort_unstable_by_key(|attention| attention.run);
        assert_eq!(found, [attention(&cancelled, true), attention(&woken, false)], "asking changes nothing");
    }
    assert_eq!(attend(&other).await, [attention(&foreign, true)]);
}

pub async fn a_wake_before_the_claim_needs_no_attention(world: World) {
    let node = world.node().await;
    let grant = in_doubt(&world, &node).await;
    state(&world, verdict(grant.run, world.now())).await;
    let seen = node.append(offer(&grant).release().synced(node.incarnation)).await;
    assert!(seen.then);
    assert_eq!(attend(&node).await, [], "it is not running");
    let next = node.claim_one().await;
    assert_eq!(next.wake, grant.wake + 1);
    assert_eq!(attend(&node).await, [], "its restore reads the verdict");
}

pub async fn a_cancel_before_the_claim_needs_attention(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    world.tiers.journal.cancel(grant.run, outcome(grant.run, "no"), world.now()).await.expect("a cancel is answered");
    node.append(offer(&grant).release().synced(node.incarnation)).await;
    node.claim_one().await;
    let found = attend(&node).await;
    assert_eq!((found.len(), found[0].epoch, found[0].cancel), (1, 2, true));
}

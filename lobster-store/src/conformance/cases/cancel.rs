//! Cancel: what runs is asked, what does not run has ended.

use crate::{
    conformance::build::{Build, offer, outcome, word},
    conformance::world::World,
    contract::{Cancelled, NewRun, RunId, RunState},
};

async fn cancel(world: &World, run: RunId) -> Cancelled {
    world.tiers.journal.cancel(run, outcome(run, "by a person"), world.now()).await.expect("a cancel is answered")
}

async fn assert_cancelled(world: &World, run: RunId) {
    let stored = world.read(run).await;
    let row = stored.summary;
    assert_eq!((row.state, row.owner, row.ended), (RunState::Cancelled, None, Some(world.now())));
    let ended = stored.ended.expect("it has ended");
    assert_eq!((ended.state, word(run, &ended.outcome)), (RunState::Cancelled, "by a person".to_owned()));
}

pub async fn a_cancel_ends_a_ready_run(world: World) {
    let node = world.node().await;
    let run = world.created().await;
    assert_eq!(cancel(&world, run).await, Cancelled::Done);
    assert_cancelled(&world, run).await;
    assert_eq!(node.claim().await, []);
}

pub async fn a_cancel_ends_a_run_that_is_not_due(world: World) {
    let run = world.create(NewRun { due: world.in_an_hour(), ..world.new_run() }).await;
    assert_eq!(cancel(&world, run).await, Cancelled::Done);
    assert_cancelled(&world, run).await;
}

pub async fn a_cancel_ends_an_evicted_run(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 1).await;
    node.append(offer(&grant).evict(world.in_an_hour(), grant.wake).synced(node.incarnation)).await;
    assert_eq!(cancel(&world, grant.run).await, Cancelled::Done);
    assert_cancelled(&world, grant.run).await;
    assert_eq!(world.seqs(grant.run).await, [1]);
}

pub async fn a_cancel_ends_a_held_run(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).hold(grant.wake).synced(node.incarnation)).await;
    assert_eq!(cancel(&world, grant.run).await, Cancelled::Done);
    assert_cancelled(&world, grant.run).await;
}

pub async fn a_cancel_asks_the_holder_of_a_running_run(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    assert_eq!(cancel(&world, grant.run).await, Cancelled::Asked);
    let stored = world.read(grant.run).await;
    assert_eq!((stored.summary.state, stored.summary.cancel, stored.ended), (RunState::Running, true, None));
    assert_eq!(stored.summary.owner, Some(node.incarnation));
    assert_eq!(cancel(&world, grant.run).await, Cancelled::Asked, "as often as one likes");
    let seen = node.append(offer(&grant).finish(RunState::Cancelled, world.now()).synced(node.incarnation)).await;
    assert!(seen.then && seen.mine && seen.cancel && seen.wake > grant.wake);
}

pub async fn a_cancel_of_an_orphan_is_told_to_its_next_holder(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    let grant = world.granted(&old).await;
    world.fail(&old).await;
    assert_eq!(cancel(&world, grant.run).await, Cancelled::Asked);
    assert!(new.claim_one().await.cancel);
}

pub async fn a_cancel_of_an_ended_run_changes_nothing(world: World) {
    let node = world.node().await;
    for state in RunState::ALL.into_iter().filter(|state| state.ended()) {
        let run = world.ended(&node, state, world.now()).await;
        let before = world.read(run).await;
        assert_eq!(cancel(&world, run).await, Cancelled::Ended(state));
        assert_eq!(world.read(run).await, before);
    }
}

pub async fn a_second_cancel_finds_the_first(world: World) {
    let run = world.created().await;
    cancel(&world, run).await;
    assert_eq!(cancel(&world, run).await, Cancelled::Ended(RunState::Cancelled));
}

pub async fn a_cancel_of_nothing_finds_nothing(world: World) {
    assert_eq!(cancel(&world, world.run_id()).await, Cancelled::NotFound);
}

pub async fn a_run_that_was_let_go_after_it_was_asked_ends_at_once(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    assert_eq!(cancel(&world, grant.run).await, Cancelled::Asked);
    node.append(offer(&grant).release().synced(node.incarnation)).await;
    assert_eq!(cancel(&world, grant.run).await, Cancelled::Done);
    assert_cancelled(&world, grant.run).await;
}

//! Sweep: what ended long enough ago goes, whole, and nothing else does.

use crate::{
    conformance::build::{Build, fate, offer, outcome, step},
    conformance::world::{HOUR, World},
    contract::{Incarnation, NewRun, NewVerdict, Origin, RunFilter, RunId, RunState, VerdictAnswer, Wall},
};
use std::time::Duration;

async fn sweep(world: &World, before: Wall, limit: usize) -> usize {
    world.tiers.journal.sweep(before, limit).await.expect("a sweep is answered")
}

async fn exists(world: &World, run: RunId) -> bool {
    world.tiers.catalog.read(run).await.expect("a read is answered").is_some()
}

async fn knows(world: &World, incarnation: Incarnation) -> bool {
    let peers = world.tiers.members.peers().await.expect("peers are answered");
    peers.iter().any(|peer| peer.incarnation == incarnation)
}

pub async fn a_sweep_removes_what_ended_before(world: World) {
    let node = world.node().await;
    let (bound, moment) = (world.ago(HOUR), Duration::from_millis(1));
    let before = world.ended(&node, RunState::Succeeded, bound.minus(moment)).await;
    let at = world.ended(&node, RunState::Failed, bound).await;
    let after = world.ended(&node, RunState::Succeeded, bound.plus(moment)).await;
    assert_eq!(sweep(&world, bound, 10).await, 1);
    assert!(!exists(&world, before).await && exists(&world, at).await && exists(&world, after).await);
    assert_eq!(sweep(&world, bound, 10).await, 0);
    assert_eq!(sweep(&world, bound.plus(moment), 10).await, 1);
    assert!(!exists(&world, at).await && exists(&world, after).await);
}

pub async fn a_sweep_removes_every_kind_of_end(world: World) {
    let node = world.node().await;
    for state in RunState::ALL.into_iter().filter(|state| state.ended()) {
        world.ended(&node, state, world.now()).await;
    }
    assert_eq!(sweep(&world, world.in_an_hour(), 10).await, 4);
    assert_eq!(world.tiers.catalog.count(RunFilter::default()).await.expect("a count is answered"), 0);
}

pub async fn a_sweep_spares_what_has_not_ended(world: World) {
    let node = world.node().await;
    let held = world.granted(&node).await;
    node.append(offer(&held).hold(held.wake).synced(node.incarnation)).await;
    let evicted = world.granted(&node).await;
    node.append(offer(&evicted).evict(world.in_an_hour(), evicted.wake).synced(node.incarnation)).await;
    let running = world.granted(&node).await;
    let ready = world.created().await;
    assert_eq!(sweep(&world, Wall(i64::MAX), 10).await, 0);
    for run in [held.run, evicted.run, running.run, ready] {
        assert!(exists(&world, run).await);
    }
}

pub async fn a_sweep_removes_no_more_than_its_limit(world: World) {
    let node = world.node().await;
    for _ in 0..5 {
        world.ended(&node, RunState::Succeeded, world.ago(HOUR)).await;
    }
    for (limit, removed) in [(0, 0), (2, 2), (2, 2), (2, 1), (2, 0)] {
        assert_eq!(sweep(&world, world.now(), limit).await, removed);
    }
}

pub async fn a_swept_run_leaves_nothing_behind(world: World) {
    let node = world.node().await;
    let new = NewRun { tags: vec!["tag".to_owned()], ..world.keyed("k") };
    let run = world.create(new.clone()).await;
    let grant = node.claim_one().await;
    node.append(offer(&grant).results(3).intent().synced(node.incarnation)).await;
    let (fate, at) = (fate(run, false), world.now());
    let verdict = NewVerdict { run, step: step(4), intent: 4, tail: 4, origin: Origin::Person, fate, at };
    assert_eq!(world.tiers.journal.verdict(verdict).await.expect("a verdict is answered"), VerdictAnswer::Accepted);
    node.append(offer(&grant).after(4).finish(RunState::Succeeded, world.now()).synced(node.incarnation)).await;
    assert_eq!(sweep(&world, world.in_an_hour(), 10).await, 1);
    let catalog = &world.tiers.catalog;
    assert_eq!(catalog.read(run).await.expect("a read is answered"), None);
    assert_eq!(catalog.find("k").await.expect("a find is answered"), None);
    assert_eq!(catalog.list(RunFilter::default(), 10).await.expect("a list is answered"), []);
    assert_eq!(catalog.outcomes(&[run]).await.expect("outcomes are answered"), [None]);
    // The very same run once more: whatever was left of the first would show.
    world.create(new).await;
    let stored = world.read(run).await;
    assert_eq!((stored.recording.tail, stored.recording.deltas.len(), stored.recording.verdicts.len()), (0, 0, 0));
    assert_eq!((stored.summary.state, stored.summary.epoch, stored.ended), (RunState::Ready, 0, None));
    let grant = node.claim_one().await;
    let seen = node.append(offer(&grant).results(4).finish(RunState::Failed, world.now()).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.tail), (1, true, 4));
}

pub async fn the_key_of_a_swept_run_is_free(world: World) {
    let run = world.create(world.keyed("k")).await;
    world.tiers.journal.cancel(run, outcome(run, "no"), world.ago(HOUR)).await.expect("a cancel is answered");
    assert_eq!(sweep(&world, world.now(), 10).await, 1);
    let next = world.create(world.keyed("k")).await;
    assert_ne!(next, run);
}

pub async fn a_sweep_removes_nodes_that_are_over_and_named_by_no_run(world: World) {
    let (failed, left, alive) = (world.node().await, world.node().await, world.node().await);
    let run = world.granted(&failed).await.run;
    world.fail(&failed).await;
    left.leave().await;
    sweep(&world, world.now(), 10).await;
    assert!(!knows(&world, left.incarnation).await, "nobody names it");
    assert!(knows(&world, failed.incarnation).await, "a run names it");
    assert_eq!(alive.claim_one().await.run, run);
    sweep(&world, world.now(), 10).await;
    assert!(!knows(&world, failed.incarnation).await, "its run has another owner now");
    assert!(knows(&world, alive.incarnation).await);
}

pub async fn a_swept_node_never_comes_back(world: World) {
    let node = world.node().await;
    world.fail(&node).await;
    sweep(&world, world.now(), 10).await;
    assert_eq!(node.renew(1).await, crate::contract::Renewed::Revoked);
    world.created().await;
    assert_eq!(node.claim().await, []);
}

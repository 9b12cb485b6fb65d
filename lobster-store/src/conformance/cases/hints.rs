//! Hints: they save waiting, and may be lost; those of one's own process should not be.

use crate::{
    Tiers,
    conformance::build::{Build, offer, outcome},
    conformance::world::{World, both, together},
    contract::RunState,
};
use std::time::Duration;

/// Longer than any hint needs.
const LONG: Duration = Duration::from_secs(20);

async fn hinted(tiers: &Tiers, seen: u64) -> u64 {
    tokio::time::timeout(LONG, tiers.wake.hinted(seen)).await.expect("a hint arrives")
}

pub async fn a_hint_is_counted(world: World) {
    let seen = world.tiers.wake.hints();
    world.tiers.wake.hint();
    let now = hinted(&world.tiers, seen).await;
    assert_ne!(now, seen);
    assert_eq!(hinted(&world.tiers, seen).await, world.tiers.wake.hints(), "a count of the past is answered at once");
}

pub async fn a_hint_wakes_whoever_waits(world: World) {
    let seen = world.tiers.wake.hints();
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let tiers = world.tiers.clone();
            async move { hinted(&tiers, seen).await }
        })
        .collect();
    let tiers = world.tiers.clone();
    let hint = async move {
        tokio::task::yield_now().await;
        tiers.wake.hint();
    };
    let (woken, ()) = both(together(waiters), hint).await;
    assert!(woken.into_iter().all(|now| now != seen));
}

pub async fn a_hint_reaches_another_process(world: World) {
    let other = world.process().await;
    let seen = other.wake.hints();
    world.tiers.wake.hint();
    hinted(&other, seen).await;
}

pub async fn nobody_is_woken_without_a_hint(world: World) {
    let seen = world.tiers.wake.hints();
    let short = Duration::from_millis(50);
    assert!(tokio::time::timeout(short, world.tiers.wake.hinted(seen)).await.is_err());
}

pub async fn what_may_concern_others_gives_a_hint(world: World) {
    let node = world.node().await;
    let wake = || node.tiers.wake.hints();

    let seen = wake();
    let run = world.new_run();
    node.tiers.journal.submit(vec![run.clone()]).await.expect("a submit is answered");
    hinted(&node.tiers, seen).await;

    let grant = node.claim_one().await;
    let seen = wake();
    node.append(offer(&grant).release().synced(node.incarnation)).await;
    hinted(&node.tiers, seen).await;

    let grant = node.claim_one().await;
    let seen = wake();
    node.tiers.journal.cancel(run.id, outcome(run.id, "no"), world.now()).await.expect("a cancel is answered");
    hinted(&node.tiers, seen).await;

    let seen = wake();
    node.append(offer(&grant).finish(RunState::Cancelled, world.now()).synced(node.incarnation)).await;
    hinted(&node.tiers, seen).await;
}

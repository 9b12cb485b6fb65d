//! Deaths: what a revoke counts against a run, and what becomes of one that kills its process again and again.

use crate::{
    conformance::build::{Build, offer},
    conformance::world::{Node, World},
    contract::{Claim, Evidence, Grant, Revoked, RunId, limits},
};

async fn counters(world: &World, run: RunId) -> (u32, u32) {
    let row = world.row(run).await;
    (row.attempts, row.deaths)
}

fn note(node: &Node, slot: usize, run: Option<RunId>) {
    node.tiers.members.note(node.incarnation, slot, run);
}

/// Claims by `node`, alone or not.
async fn claims(node: &Node, alone: bool) -> Vec<Grant> {
    node.claim_as(Claim { alone, ..node.asks() }).await
}

pub async fn a_death_counts_against_the_run_being_polled(world: World) {
    let node = world.node().await;
    let (polled, waiting) = (world.granted(&node).await.run, world.granted(&node).await.run);
    note(&node, 0, Some(polled));
    assert_eq!(world.fail(&node).await, [polled]);
    assert_eq!(counters(&world, polled).await, (1, 1));
    assert_eq!(counters(&world, waiting).await, (0, 0), "an innocent run gets its attempt back");
}

pub async fn a_proved_death_counts_in_the_same_way(world: World) {
    let (node, other) = (world.node().await, world.node().await);
    let (polled, waiting) = (world.granted(&node).await.run, world.granted(&node).await.run);
    note(&node, 0, Some(polled));
    let incarnation = node.incarnation;
    world.kill(node).await;
    let answer = other.tiers.members.revoke(incarnation, Evidence::Death).await.expect("a revoke is answered");
    assert_eq!(answer, Revoked::Failed { suspects: vec![polled] });
    assert_eq!((counters(&world, polled).await, counters(&world, waiting).await), ((1, 1), (0, 0)));
}

pub async fn every_slot_has_its_own_note(world: World) {
    let node = world.node().await;
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(world.granted(&node).await.run);
    }
    for (slot, run) in runs.iter().enumerate() {
        note(&node, slot, Some(*run));
    }
    note(&node, 1, None);
    note(&node, 3, Some(runs[0]));
    let mut suspects = world.fail(&node).await;
    suspects.sort_unstable();
    assert_eq!(suspects, [runs[0], runs[2]], "each is named once");
    for (run, deaths) in runs.into_iter().zip([1, 0, 1, 0]) {
        assert_eq!(counters(&world, run).await, (deaths, deaths));
    }
}

pub async fn a_run_that_made_progress_is_not_blamed(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 1).await;
    note(&node, 0, Some(grant.run));
    assert_eq!(world.fail(&node).await, []);
    assert_eq!(counters(&world, grant.run).await, (0, 0));
}

pub async fn a_run_of_somebody_else_is_not_blamed(world: World) {
    let (node, other) = (world.node().await, world.node().await);
    let foreign = world.granted(&other).await;
    let ended = world.ended(&node, crate::contract::RunState::Failed, world.now()).await;
    note(&node, 0, Some(foreign.run));
    note(&node, 1, Some(ended));
    note(&node, 2, Some(world.run_id()));
    assert_eq!(world.fail(&node).await, []);
    assert_eq!(counters(&world, foreign.run).await, (1, 0));
}

pub async fn a_death_is_counted_once(world: World) {
    let node = world.node().await;
    let run = world.granted(&node).await.run;
    note(&node, 0, Some(run));
    world.fail(&node).await;
    world.fail(&node).await;
    assert_eq!(counters(&world, run).await, (1, 1));
}

pub async fn a_farewell_is_no_death(world: World) {
    let (node, other) = (world.node().await, world.node().await);
    let run = world.granted(&node).await.run;
    note(&node, 0, Some(run));
    node.leave().await;
    let grant = other.claim_one().await;
    assert_eq!((grant.run, grant.deaths), (run, 0));
}

pub async fn a_note_about_a_slot_that_does_not_exist_is_ignored(world: World) {
    let node = world.node().await;
    let run = world.granted(&node).await.run;
    note(&node, 4, Some(run));
    note(&node, usize::MAX, Some(run));
    node.tiers.members.note(world.incarnation(), 0, Some(run));
    assert_eq!(world.fail(&node).await, []);
}

pub async fn a_run_that_keeps_killing_its_process_is_executed_alone(world: World) {
    let run = world.created().await;
    for deaths in 0..limits::DEATHS_ALONE {
        let node = world.node().await;
        assert_eq!(claims(&node, true).await, []);
        let grants = claims(&node, false).await;
        assert_eq!((grants[0].run, grants[0].deaths, grants[0].attempts), (run, deaths, deaths + 1));
        note(&node, 0, Some(run));
        assert_eq!(world.fail(&node).await, [run]);
    }
    let healthy = world.created().await;
    let node = world.node().await;
    let company: Vec<_> = claims(&node, false).await.into_iter().map(|grant| grant.run).collect();
    assert_eq!(company, [healthy]);
    let alone = claims(&node, true).await;
    assert_eq!((alone.len(), alone[0].run, alone[0].deaths), (1, run, limits::DEATHS_ALONE));
    node.append(offer(&alone[0]).results(1).release().synced(node.incarnation)).await;
    let company: Vec<_> = claims(&node, false).await.into_iter().map(|grant| grant.run).collect();
    assert_eq!(company, [run], "it made progress");
}

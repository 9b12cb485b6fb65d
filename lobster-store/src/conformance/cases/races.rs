//! Races: whatever happens at the same time, one of the orders happened.

use crate::{
    conformance::build::{Build, fate, offer, outcome, step},
    conformance::world::{World, both, together},
    contract::{
        Answer, Beat, Cancelled, Claim, Evidence, NewVerdict, NodeState, Origin, Renewed, Revoked, RunState, Submitted,
        VerdictAnswer,
    },
};
use std::{collections::BTreeMap, time::Duration};

pub async fn many_submits_of_one_key_create_one_run(world: World) {
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let process = world.process().await;
        for _ in 0..8 {
            let (tiers, run) = (process.clone(), world.keyed("k"));
            tasks.push(async move { (run.id, tiers.journal.submit(vec![run]).await.expect("a submit is answered")[0]) });
        }
    }
    let answers = together(tasks).await;
    let created: Vec<_> = answers.iter().filter(|(_, answer)| *answer == Submitted::Created).map(|(id, _)| *id).collect();
    assert_eq!(created.len(), 1);
    for (_, answer) in answers.iter().filter(|(id, _)| *id != created[0]) {
        assert_eq!(*answer, Submitted::Existing { id: created[0], same: true });
    }
}

pub async fn many_claims_grant_each_run_once(world: World) {
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(world.node().await);
    }
    let runs: Vec<_> = (0..60).map(|_| world.new_run()).collect();
    world.tiers.journal.submit(runs).await.expect("a submit is answered");
    let claims = nodes.iter().flat_map(|node| (0..6).map(move |_| (node.tiers.clone(), node.asks())));
    let tasks = claims
        .map(|(tiers, asks)| async move { tiers.journal.claim(Claim { limit: 5, ..asks }).await.expect("a claim is answered") });
    let mut grants: Vec<_> = together(tasks).await.into_iter().flatten().collect();
    for node in &nodes {
        grants.extend(node.claim().await);
    }
    let mut owners = BTreeMap::new();
    for grant in grants {
        assert_eq!(grant.epoch, 1);
        assert_eq!(owners.insert(grant.run, grant.epoch), None, "granted twice under one epoch");
    }
    assert_eq!(owners.len(), 60);
}

pub async fn epochs_only_grow_while_nodes_take_runs_from_one_another(world: World) {
    let run = world.created().await;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let node = world.node().await;
        tasks.push(async move {
            let mut epochs = Vec::new();
            for _ in 0..20 {
                for grant in node.claim().await {
                    epochs.push(grant.epoch);
                    let seen = node.append(offer(&grant).results(1).release().synced(node.incarnation)).await;
                    assert_eq!((seen.rows, seen.then, seen.mine), (1, true, true), "a holder keeps its run until it lets go");
                }
                tokio::task::yield_now().await;
            }
            epochs
        });
    }
    let each = together(tasks).await;
    assert!(each.iter().all(|epochs| epochs.is_sorted_by(|a, b| a < b)));
    let mut epochs: Vec<_> = each.into_iter().flatten().collect();
    epochs.sort_unstable();
    let last = epochs.len() as u64;
    assert_eq!(epochs, (1..=last).collect::<Vec<_>>(), "one owner per epoch, and none was skipped");
    assert_eq!(world.seqs(run).await, (1..=last).collect::<Vec<_>>(), "and one delta of each");
}

pub async fn many_verdicts_on_one_intent_leave_one(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).intent().synced(node.incarnation)).await;
    let mut tasks = Vec::new();
    for number in 0..12 {
        let (tiers, run, at) = (world.process().await, grant.run, world.now());
        let (step, origin, fate) = (step(1), Origin::Settle, fate(run, number % 2 == 0));
        let verdict = NewVerdict { run, step, intent: 1, tail: 1, origin, fate, at };
        tasks.push(async move { tiers.journal.verdict(verdict).await.expect("a verdict is answered") });
    }
    let answers = together(tasks).await;
    assert_eq!(answers.iter().filter(|answer| **answer == VerdictAnswer::Accepted).count(), 1);
    assert_eq!(answers.iter().filter(|answer| **answer == VerdictAnswer::Exists).count(), 11);
    assert_eq!(node.recording(&grant).await.verdicts.len(), 1);
}

pub async fn a_cancel_and_a_finish_leave_one_end(world: World) {
    for _ in 0..10 {
        let node = world.node().await;
        let grant = world.granted(&node).await;
        let run = grant.run;
        let (tiers, at) = (world.tiers.clone(), world.now());
        let cancel = async move { tiers.journal.cancel(run, outcome(run, "no"), at).await.expect("a cancel is answered") };
        let batch = offer(&grant).finish(RunState::Succeeded, at).synced(node.incarnation);
        let (answer, seen) = both(cancel, async move { node.append(batch).await }).await;
        assert!(seen.then, "a cancel asks; it does not end what runs");
        assert!([Cancelled::Asked, Cancelled::Ended(RunState::Succeeded)].contains(&answer));
        assert_eq!(world.row(run).await.state, RunState::Succeeded);
    }
}

pub async fn a_cancel_and_an_intent_see_each_other(world: World) {
    for _ in 0..10 {
        let node = world.node().await;
        let grant = world.granted(&node).await;
        let run = grant.run;
        let (tiers, at) = (world.tiers.clone(), world.now());
        let cancel = async move { tiers.journal.cancel(run, outcome(run, "no"), at).await.expect("a cancel is answered") };
        let (asked, seen) = both(cancel, {
            let (node, batch) = (node.clone(), offer(&grant).intent().synced(node.incarnation));
            async move { node.append(batch).await }
        })
        .await;
        assert_eq!(asked, Cancelled::Asked);
        assert_eq!(seen.rows == 0, seen.cancel, "an intent is refused if and only if the cancel came first");
        assert_eq!(world.row(run).await.tail, seen.rows as u64);
        node.append(offer(&grant).after(seen.tail).finish(RunState::Cancelled, at).synced(node.incarnation)).await;
    }
}

pub async fn a_take_over_and_an_append_see_each_other(world: World) {
    for _ in 0..10 {
        let (old, new) = (world.node().await, world.node().await);
        let grant = world.granted(&old).await;
        world.fail(&old).await;
        let batch = offer(&grant).results(1).synced(old.incarnation);
        let taker = new.clone();
        let (seen, next) = both(async move { old.append(batch).await }, async move { taker.claim().await }).await;
        // A claim may pass a row that the append has locked.
        let next = if next.is_empty() { new.claim_one().await } else { next[0].clone() };
        assert_eq!(next.tail, seen.rows as u64, "what came before the claim is in it, and what came after was refused");
        assert_eq!(new.recording(&next).await.tail, next.tail);
        new.append(offer(&next).finish(RunState::Succeeded, world.now()).synced(new.incarnation)).await;
    }
}

pub async fn a_revoke_and_a_renewal_see_each_other(world: World) {
    for _ in 0..10 {
        let node = world.node().await;
        let (tiers, incarnation) = (world.tiers.clone(), node.incarnation);
        let evidence = Evidence::Silence { beat: 0, age: Duration::ZERO };
        let beat = Beat { seq: 1, at: node.boot(), lapsed: true };
        let revoke = async move { tiers.members.revoke(incarnation, evidence).await.expect("a revoke is answered") };
        let renew = async move { node.tiers.members.renew(incarnation, beat).await.expect("a renewal is answered") };
        let (revoked, renewed) = both(revoke, renew).await;
        assert_eq!(revoked == Revoked::Refused, renewed == Renewed::Good, "one of the two, never both: {revoked:?} {renewed:?}");
        let peers = world.tiers.members.peers().await.expect("peers are answered");
        let state = peers.iter().find(|peer| peer.incarnation == incarnation).map(|peer| peer.state);
        let expected = if renewed == Renewed::Good { NodeState::Active } else { NodeState::Failed };
        assert_eq!(state, Some(expected));
    }
}

pub async fn one_row_offered_by_many_tasks_is_stored_once(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    let tasks = (0..12).map(|_| {
        let (tiers, batch) = (node.tiers.clone(), offer(&grant).results(3).synced(node.incarnation));
        async move { tiers.journal.append(batch).await.expect("an append is answered") }
    });
    let answers: Vec<_> = together(tasks).await.into_iter().flatten().collect();
    let applied = answers.iter().filter(|answer| matches!(answer, Answer::Seen(seen) if seen.rows == 1)).count();
    assert_eq!(applied, 1);
    assert_eq!(world.seqs(grant.run).await, [1, 2, 3]);
}

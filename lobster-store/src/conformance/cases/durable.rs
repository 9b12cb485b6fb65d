//! Synced and relaxed: what is acknowledged survives the store as far as it was promised to.

use crate::{
    conformance::build::{Build, fate, offer, outcome, step},
    conformance::world::{Node, World},
    contract::{
        Batch, Cancelled, NewVerdict, NodeState, Offer, Origin, Peer, Renewed, RunId, RunState, Submitted, VerdictAnswer,
    },
};

pub async fn a_relaxed_row_is_visible_to_every_process(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).results(2).relaxed(node.incarnation)).await;
    assert_eq!(world.seqs(grant.run).await, [1, 2]);
}

pub async fn a_relaxed_row_survives_its_process(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    let grant = world.granted(&old).await;
    old.append(offer(&grant).results(2).relaxed(old.incarnation)).await;
    world.fail(&old).await;
    world.kill(old).await;
    let next = new.claim_one().await;
    assert_eq!((next.tail, new.recording(&next).await.tail), (2, 2));
}

pub async fn a_synced_row_survives_the_store(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    let seen = node.append(offer(&grant).results(2).intent().synced(node.incarnation)).await;
    world.crash_store().await;
    let recording = node.recording(&grant).await;
    assert_eq!((recording.tail, recording.mark), (3, seen.mark));
    assert_eq!(world.seqs(grant.run).await, [1, 2, 3]);
}

pub async fn a_synced_row_takes_the_relaxed_ones_before_it_along(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    for tail in [0, 2, 4] {
        node.append(offer(&grant).after(tail).results(2).relaxed(node.incarnation)).await;
    }
    node.append(offer(&grant).after(6).intent().synced(node.incarnation)).await;
    world.crash_store().await;
    assert_eq!(world.seqs(grant.run).await, [1, 2, 3, 4, 5, 6, 7]);
}

pub async fn a_synced_batch_that_applies_nothing_still_syncs_the_runs_it_locked(world: World) {
    let node = world.node().await;
    let offers: [fn(Offer) -> Offer; 2] = [|nothing| nothing.after(2), |again| again.results(2)];
    for offered in offers {
        let grant = world.granted(&node).await;
        node.append(offer(&grant).results(2).relaxed(node.incarnation)).await;
        let seen = node.append(offered(offer(&grant)).synced(node.incarnation)).await;
        assert_eq!((seen.rows, seen.tail), (0, 2));
        world.crash_store().await;
        assert_eq!(world.seqs(grant.run).await, [1, 2]);
    }
}

pub async fn after_a_crash_the_tail_says_what_is_left_and_its_holder_goes_on(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 2).await;
    for tail in [2, 4, 6] {
        node.append(offer(&grant).after(tail).results(2).relaxed(node.incarnation)).await;
    }
    world.crash_store().await;
    let seen = node.append(offer(&grant).after(8).intent().synced(node.incarnation)).await;
    assert!(seen.mine && [2, 4, 6, 8, 9].contains(&seen.tail), "whole rows are left: {seen:?}");
    assert_eq!(seen.rows, usize::from(seen.tail == 9), "the intent is stored behind no gap");
    let recording = node.recording(&grant).await;
    assert_eq!((recording.tail, recording.mark), (seen.tail, seen.mark));
    assert_eq!(recording.deltas.last().map(|row| (row.to, row.sealed.crc)), Some((seen.tail, seen.mark)));
    let missing = 9 - seen.tail;
    if missing > 0 {
        let seen = node.append(offer(&grant).after(seen.tail).results(missing).synced(node.incarnation)).await;
        assert_eq!((seen.rows, seen.tail), (1, 9));
    }
    assert_eq!(world.seqs(grant.run).await, (1..=9).collect::<Vec<_>>());
}

pub async fn lost_progress_is_counted_as_none(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).results(2).relaxed(node.incarnation)).await;
    world.crash_store().await;
    let row = world.row(grant.run).await;
    assert!([(0, 1), (2, 0)].contains(&(row.tail, row.attempts)), "row and counters are lost together: {row:?}");
}

pub async fn a_lost_release_leaves_the_run_with_its_holder(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).release().relaxed(node.incarnation)).await;
    world.crash_store().await;
    let seen = node.append(offer(&grant).release().synced(node.incarnation)).await;
    assert_eq!((seen.then, seen.state), (seen.mine, RunState::Ready), "applied again, or still applied");
    assert_eq!(node.claim_one().await.run, grant.run);
}

pub async fn an_outcome_that_was_told_is_synced(world: World) {
    let node = world.node().await;
    let told_by_outcomes = finished_relaxed(&world, &node).await;
    let told = world.tiers.catalog.outcomes(&[told_by_outcomes]).await.expect("outcomes are answered")[0].clone().flatten();
    world.crash_store().await;
    assert_still_told(&world, told_by_outcomes, told.is_some()).await;

    let told_by_read = finished_relaxed(&world, &node).await;
    let told = world.read(told_by_read).await.ended;
    world.crash_store().await;
    assert_still_told(&world, told_by_read, told.is_some()).await;

    let told_by_cancel = finished_relaxed(&world, &node).await;
    let cancel = world.tiers.journal.cancel(told_by_cancel, outcome(told_by_cancel, "no"), world.now()).await;
    let told = cancel.expect("a cancel is answered") == Cancelled::Ended(RunState::Succeeded);
    world.crash_store().await;
    assert_still_told(&world, told_by_cancel, told).await;
}

async fn finished_relaxed(world: &World, node: &Node) -> RunId {
    let grant = world.granted(node).await;
    let batch = offer(&grant).finish(RunState::Succeeded, world.now()).relaxed(node.incarnation);
    assert!(node.append(batch).await.then);
    grant.run
}

async fn assert_still_told(world: &World, run: RunId, told: bool) {
    assert!(!told || world.row(run).await.state == RunState::Succeeded, "an outcome that was told has vanished");
}

pub async fn what_a_submit_acknowledged_survives_the_store(world: World) {
    let run = world.created().await;
    let keyed = world.create(world.keyed("k")).await;
    world.crash_store().await;
    assert_eq!(world.row(run).await.id, run);
    assert_eq!(world.submit(world.keyed("k")).await, Submitted::Existing { id: keyed, same: true });
}

pub async fn a_claim_survives_the_store(world: World) {
    let (node, other) = (world.node().await, world.node().await);
    let grant = world.granted(&node).await;
    world.crash_store().await;
    assert_eq!(other.claim().await, []);
    assert_eq!(node.recording(&grant).await.tail, 0);
    assert_eq!(world.row(grant.run).await.epoch, 1);
}

pub async fn a_cancel_survives_the_store(world: World) {
    let node = world.node().await;
    let (asked, ready) = (world.granted(&node).await.run, world.created().await);
    for run in [asked, ready] {
        world.tiers.journal.cancel(run, outcome(run, "no"), world.now()).await.expect("a cancel is answered");
        world.crash_store().await;
    }
    assert!(world.row(asked).await.cancel);
    assert_eq!(world.row(ready).await.state, RunState::Cancelled);
}

pub async fn a_verdict_survives_the_store(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).intent().hold(grant.wake).synced(node.incarnation)).await;
    let (run, step, fate, at) = (grant.run, step(1), fate(grant.run, false), world.now());
    let verdict = NewVerdict { run, step, intent: 1, tail: 1, origin: Origin::Person, fate, at };
    assert_eq!(world.tiers.journal.verdict(verdict).await.expect("a verdict is answered"), VerdictAnswer::Accepted);
    world.crash_store().await;
    assert_eq!(node.recording(&node.claim_one().await).await.verdicts.len(), 1);
}

pub async fn a_revoke_and_a_farewell_survive_the_store(world: World) {
    let (failed, left) = (world.node().await, world.node().await);
    world.fail(&failed).await;
    world.crash_store().await;
    left.leave().await;
    world.crash_store().await;
    let state = |peers: &[Peer], of| peers.iter().find(|peer| peer.incarnation == of).map(|peer| peer.state);
    let peers = world.tiers.members.peers().await.expect("peers are answered");
    assert_eq!(state(&peers, failed.incarnation), Some(NodeState::Failed));
    assert_eq!(state(&peers, left.incarnation), Some(NodeState::Left));
    assert_eq!(failed.renew(9).await, Renewed::Revoked);
}

pub async fn a_join_survives_the_store(world: World) {
    let node = world.node().await;
    world.crash_store().await;
    world.created().await;
    node.claim_one().await;
}

pub async fn a_node_whose_renewals_were_lost_goes_on_renewing(world: World) {
    let node = world.node().await;
    for seq in 1..=3 {
        assert_eq!(node.renew(seq).await, Renewed::Good);
    }
    world.crash_store().await;
    assert_eq!(node.renew(4).await, Renewed::Good);
}

pub async fn a_sweep_survives_the_store(world: World) {
    let node = world.node().await;
    let run = world.ended(&node, RunState::Succeeded, world.now()).await;
    assert_eq!(world.tiers.journal.sweep(world.in_an_hour(), 10).await.expect("a sweep is answered"), 1);
    world.crash_store().await;
    assert_eq!(world.tiers.catalog.read(run).await.expect("a read is answered"), None);
}

pub async fn relaxed_and_synced_batches_of_several_runs_mix(world: World) {
    let node = world.node().await;
    let (one, two) = (world.granted(&node).await, world.granted(&node).await);
    let incarnation = node.incarnation;
    let both = |synced, tail| Batch {
        incarnation,
        synced,
        patient: None,
        offers: vec![offer(&one).after(tail).results(1), offer(&two).after(tail).results(1)],
    };
    for (tail, synced) in [(0, false), (1, true), (2, false), (3, true)] {
        let seen = node.append_all(both(synced, tail)).await;
        assert!(seen.iter().all(|seen| seen.rows == 1 && seen.tail == tail + 1));
    }
    world.crash_store().await;
    assert_eq!(world.seqs(one.run).await, [1, 2, 3, 4]);
    assert_eq!(world.seqs(two.run).await, [1, 2, 3, 4]);
}

//! Restore: what was recorded, or that the run is somebody else's.

use crate::{
    conformance::build::{Build, fate, offer, seqs},
    conformance::world::World,
    contract::{Grant, NewVerdict, Origin, Restored, RunState, VerdictAnswer},
};

pub async fn a_fresh_run_restores_an_empty_recording(world: World) {
    let node = world.node().await;
    let new = world.new_run();
    world.create(new.clone()).await;
    let recording = node.recording(&node.claim_one().await).await;
    assert_eq!(recording.input, new.input);
    assert_eq!((recording.deltas.len(), recording.verdicts.len(), recording.tail, recording.mark), (0, 0, 0, 0));
}

pub async fn a_recording_holds_all_rows_in_order_under_their_epochs(world: World) {
    let mut node = world.node().await;
    let run = world.created().await;
    for round in 0..4 {
        let grant = node.claim_one().await;
        assert_eq!(grant.tail, round * 3);
        node.append(offer(&grant).results(2).intent().synced(node.incarnation)).await;
        let next = world.node().await;
        node.leave().await;
        node = next;
    }
    let grant = node.claim_one().await;
    let recording = node.recording(&grant).await;
    let found: Vec<_> = recording.deltas.iter().map(|row| (row.epoch, seqs(run, row))).collect();
    let expected: Vec<_> = (0..4).flat_map(|at| [(at + 1, vec![at * 3 + 1, at * 3 + 2]), (at + 1, vec![at * 3 + 3])]).collect();
    assert_eq!(found, expected);
    assert_eq!((recording.tail, recording.mark), (grant.tail, grant.mark));
    assert_eq!(recording.deltas.last().map(|row| row.sealed.crc), Some(grant.mark));
}

pub async fn a_restore_reads_what_was_appended_since_the_claim(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    let seen = node.append(offer(&grant).results(2).relaxed(node.incarnation)).await;
    let recording = node.recording(&grant).await;
    assert_eq!((recording.tail, recording.mark, recording.deltas.len()), (2, seen.mark, 1));
}

pub async fn a_displaced_holder_restores_nothing(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    let grant = world.begun(&old, 2).await;
    world.fail(&old).await;
    new.claim_one().await;
    assert_eq!(old.restore(&[grant]).await, [Restored::Fenced]);
}

pub async fn an_older_epoch_of_the_same_owner_restores_nothing(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).release().synced(node.incarnation)).await;
    let next = node.claim_one().await;
    assert_eq!(node.restore(&[grant]).await, [Restored::Fenced]);
    assert_eq!(node.recording(&next).await.tail, 0);
}

pub async fn a_grant_of_somebody_else_restores_nothing(world: World) {
    let (node, other) = (world.node().await, world.node().await);
    let grant = world.granted(&node).await;
    assert_eq!(other.restore(std::slice::from_ref(&grant)).await, [Restored::Fenced]);
}

pub async fn a_run_that_is_not_running_restores_nothing(world: World) {
    let node = world.node().await;
    let released = world.granted(&node).await;
    let finished = {
        let grant = world.granted(&node).await;
        node.append(offer(&grant).finish(RunState::Succeeded, world.now()).synced(node.incarnation)).await;
        grant
    };
    node.append(offer(&released).release().synced(node.incarnation)).await;
    assert_eq!(node.restore(&[released, finished]).await, [Restored::Fenced, Restored::Fenced]);
}

pub async fn a_run_that_does_not_exist_restores_nothing(world: World) {
    let node = world.node().await;
    let grant = Grant { run: world.run_id(), ..world.granted(&node).await };
    assert_eq!(node.restore(&[grant]).await, [Restored::Fenced]);
}

pub async fn verdicts_come_with_the_recording(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).intent().synced(node.incarnation)).await;
    node.append(offer(&grant).after(1).intent().synced(node.incarnation)).await;
    for (intent, origin) in [(2, Origin::Person), (1, Origin::Settle)] {
        let step = crate::conformance::build::step(intent);
        let (run, fate, at) = (grant.run, fate(grant.run, intent == 2), world.now());
        let verdict = NewVerdict { run, step, intent, tail: 2, origin, fate, at };
        assert_eq!(world.tiers.journal.verdict(verdict).await.expect("a verdict is answered"), VerdictAnswer::Accepted);
    }
    let mut verdicts = node.recording(&grant).await.verdicts;
    verdicts.sort_unstable_by_key(|verdict| verdict.intent);
    let found: Vec<_> = verdicts.into_iter().map(|verdict| (verdict.intent, verdict.fate)).collect();
    assert_eq!(found, [(1, fate(grant.run, false)), (2, fate(grant.run, true))]);
}

pub async fn restores_are_answered_one_by_one_in_their_order(world: World) {
    let node = world.node().await;
    let first = world.begun(&node, 1).await;
    let gone = Grant { epoch: 9, ..world.begun(&node, 2).await };
    let last = world.begun(&node, 3).await;
    let answers = node.restore(&[last.clone(), gone, first.clone(), last.clone()]).await;
    let tails: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Restored::Recording(recording) => Some(recording.tail),
            Restored::Fenced => None,
        })
        .collect();
    assert_eq!(tails, [Some(3), None, Some(1), Some(3)]);
}

pub async fn an_empty_restore_is_answered_by_nothing(world: World) {
    let node = world.node().await;
    assert_eq!(node.restore(&[]).await, []);
}

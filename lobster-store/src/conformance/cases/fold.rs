//! Folds: a snapshot takes the place of the changes it covers, whole or not at all, and of nothing else.

use crate::{
    conformance::build::{self, Build, going_on, offer, outcome, part},
    conformance::world::{Node, World, both, together},
    contract::{Fold, Folded, Grant, Recording, Restored, RunId, RunState, Seq, StoredPart},
};

/// Seq and part ids of the snapshot, seqs of the deltas, seqs of the changes.
type Found = (Option<(Seq, Vec<u64>)>, Vec<Seq>, Vec<Seq>);

fn found_in(run: RunId, recording: &Recording) -> Found {
    let snapshot = recording.snapshot.as_ref().map(|snapshot| build::taken(run, snapshot));
    let deltas = recording.deltas.iter().flat_map(|row| build::seqs(run, row)).collect();
    let changes = recording.changes.iter().flat_map(|row| build::changed(run, row)).collect();
    (snapshot, deltas, changes)
}

async fn found(world: &World, run: RunId) -> Found {
    found_in(run, &world.read(run).await.recording)
}

/// What is expected of a run whose every seq had both: this snapshot, all deltas, and the changes after it.
fn with(snapshot: Option<(Seq, &[u64])>, tail: Seq) -> Found {
    let covered = snapshot.map_or(0, |(seq, _)| seq);
    (snapshot.map(|(seq, parts)| (seq, parts.to_vec())), (1..=tail).collect(), (covered + 1..=tail).collect())
}

/// A run with `count` rows of a result and a change each, which `node` has claimed and goes on with.
async fn changed(world: &World, node: &Node, count: u64) -> Grant {
    let mut grant = world.granted(node).await;
    for _ in 0..count {
        let seen = node.append(offer(&grant).both(1).synced(node.incarnation)).await;
        (grant.tail, grant.mark) = (seen.tail, seen.mark);
    }
    assert_eq!(grant.tail, count);
    grant
}

/// A fold by `node` with one new part for each of these ids.
fn fold(node: &Node, grant: &Grant, base: Seq, seq: Seq, ids: &[u64]) -> Fold {
    build::fold(grant, node.incarnation, base, seq, ids.iter().map(|id| part(grant.run, *id, id.to_string())).collect())
}

async fn parts(world: &World, run: RunId, ids: &[u64]) -> Vec<StoredPart> {
    world.tiers.journal.parts(run, ids).await.expect("parts are answered")
}

pub async fn a_row_of_changes_alone_is_a_row_like_any_other(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    let batch = offer(&grant).changes(3).synced(node.incarnation);
    let row = batch.offers[0].rows[0].clone();
    let seen = node.append(batch.clone()).await;
    assert_eq!((seen.rows, seen.tail, seen.mark), (1, 3, row.mark));
    let recording = node.recording(&grant).await;
    assert_eq!((recording.tail, recording.mark), (3, row.mark));
    assert_eq!(recording.changes[0].sealed, row.changes.expect("it has changes"));
    assert_eq!(found_in(grant.run, &recording), (None, vec![], vec![1, 2, 3]));
    let again = node.append(batch).await;
    assert_eq!((again.rows, again.mine, again.tail, again.mark), (0, true, 3, row.mark), "tail and mark tell that it is there");
    assert_eq!(world.row(grant.run).await.attempts, 1, "a change is no progress");
}

pub async fn a_row_may_have_deltas_and_changes(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    let offer_of_two = offer(&grant).both(2).intent();
    let (first, last) = (offer_of_two.rows[0].clone(), offer_of_two.rows[1].mark);
    assert_ne!(Some(first.mark), first.deltas.as_ref().map(|half| half.crc), "the mark is of both");
    let seen = node.append(offer_of_two.synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.tail, seen.mark), (2, 3, last));
    let seen = node.append(offer(&grant).after(3).either().relaxed(node.incarnation)).await;
    assert_eq!((seen.rows, seen.tail), (1, 5));
    let recording = node.recording(&grant).await;
    assert_eq!(found_in(grant.run, &recording), (None, vec![1, 2, 3, 4], vec![1, 2, 5]));
    let places: Vec<_> = recording.changes.iter().map(|row| (row.epoch, row.from, row.to)).collect();
    assert_eq!(places, [(1, 1, 2), (1, 4, 5)]);
    assert_eq!(
        (Some(&recording.deltas[0].sealed), Some(&recording.changes[0].sealed)),
        (first.deltas.as_ref(), first.changes.as_ref())
    );
}

pub async fn a_refused_row_leaves_no_changes(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 1).await;
    node.append(offer(&grant).after(4).both(1).changes(1).synced(node.incarnation)).await;
    world.tiers.journal.cancel(grant.run, outcome(grant.run, "no"), world.now()).await.expect("a cancel is answered");
    // What precedes a refused intent is applied: changes in the first row are, and the intent's row is not.
    let seen = node.append(offer(&grant).both(1).intent().synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.tail), (1, 2));
    assert_eq!(found(&world, grant.run).await, (None, vec![1, 2], vec![2]));
}

pub async fn changes_of_a_full_batch_are_kept_apart(world: World) {
    let node = world.node().await;
    let mut grants = Vec::new();
    for _ in 0..20 {
        grants.push(world.granted(&node).await);
    }
    let gap = 7;
    let offers = grants.iter().enumerate().map(|(at, grant)| match at {
        _ if at == gap => offer(grant).after(3).both(1),
        _ if at % 3 == 0 => offer(grant).results(2),
        _ if at % 3 == 1 => offer(grant).changes(2),
        _ => offer(grant).both(1).changes(1),
    });
    let batch = crate::contract::Batch { incarnation: node.incarnation, synced: false, patient: None, offers: offers.collect() };
    let seen = node.append_all(batch).await;
    for (at, (grant, seen)) in grants.iter().zip(seen).enumerate() {
        let expected = match at {
            _ if at == gap => (None, vec![], vec![]),
            _ if at % 3 == 0 => (None, vec![1, 2], vec![]),
            _ if at % 3 == 1 => (None, vec![], vec![1, 2]),
            _ => (None, vec![1], vec![1, 2]),
        };
        assert_eq!(seen.tail, if at == gap { 0 } else { 2 });
        assert_eq!(found(&world, grant.run).await, expected);
    }
}

pub async fn a_fold_makes_its_snapshot_current(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 3).await;
    let new = fold(&node, &grant, 0, 3, &[1, 2]);
    assert_eq!(node.fold(new.clone()).await, Folded::Done);
    let recording = node.recording(&grant).await;
    let snapshot = recording.snapshot.as_ref().expect("there is one now");
    assert_eq!((snapshot.seq, &snapshot.manifest, &snapshot.parts), (3, &new.manifest, &new.parts));
    assert_eq!(found_in(grant.run, &recording), with(Some((3, &[1, 2])), 3));
}

pub async fn a_fold_removes_the_changes_it_covers_and_no_others(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    for (tail, count) in [(0, 2), (2, 1), (3, 2), (5, 1)] {
        node.append(offer(&grant).after(tail).changes(count).synced(node.incarnation)).await;
    }
    assert_eq!(node.fold(fold(&node, &grant, 0, 3, &[1])).await, Folded::Done);
    assert_eq!(found(&world, grant.run).await, (Some((3, vec![1])), vec![], vec![4, 5, 6]));
    let rows: Vec<_> = node.recording(&grant).await.changes.iter().map(|row| (row.from, row.to)).collect();
    assert_eq!(rows, [(4, 5), (6, 6)]);
}

pub async fn a_row_with_both_halves_loses_only_its_changes(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).both(2).synced(node.incarnation)).await;
    node.append(offer(&grant).after(2).either().synced(node.incarnation)).await;
    node.append(offer(&grant).after(4).both(1).intent().synced(node.incarnation)).await;
    let before = node.recording(&grant).await;
    assert_eq!(found_in(grant.run, &before), (None, vec![1, 2, 3, 5, 6], vec![1, 2, 4, 5]));
    assert_eq!(node.fold(fold(&node, &grant, 0, 4, &[1])).await, Folded::Done);
    let after = node.recording(&grant).await;
    assert_eq!(after.deltas, before.deltas);
    assert_eq!(found_in(grant.run, &after), (Some((4, vec![1])), vec![1, 2, 3, 5, 6], vec![5]));
}

pub async fn a_fold_changes_nothing_else(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 2).await;
    let other = changed(&world, &node, 2).await;
    assert_eq!(node.fold(fold(&node, &other, 0, 1, &[1, 2])).await, Folded::Done);
    let (before, of_other) = (world.read(grant.run).await, world.read(other.run).await);
    assert_eq!(node.fold(fold(&node, &grant, 0, 2, &[1, 3])).await, Folded::Done);
    let after = world.read(grant.run).await;
    assert_eq!(after.summary, before.summary);
    assert_eq!((after.recording.tail, after.recording.mark), (2, grant.mark));
    assert_eq!((&after.recording.deltas, &after.recording.input), (&before.recording.deltas, &before.recording.input));
    assert_eq!(world.read(other.run).await, of_other);
    let seen = node.append(offer(&grant).both(1).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.tail), (1, 3), "its holder goes on");
}

pub async fn folds_follow_one_another(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 4).await;
    for (base, seq) in [(0, 1), (1, 2), (2, 4)] {
        let next = going_on(fold(&node, &grant, base, seq, &[seq]), &[], &[base]);
        assert_eq!(node.fold(next).await, Folded::Done);
        assert_eq!(found(&world, grant.run).await, with(Some((seq, &[seq])), 4));
    }
}

pub async fn dropped_parts_go_and_kept_ones_stay(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 3).await;
    let first = fold(&node, &grant, 0, 1, &[1, 2, 3]);
    assert_eq!(node.fold(first.clone()).await, Folded::Done);
    let kept = [first.parts[0].clone(), first.parts[2].clone()];
    let second = going_on(fold(&node, &grant, 1, 3, &[4, 5]), &kept, &[2]);
    assert_eq!(node.fold(second.clone()).await, Folded::Done);
    let recording = node.recording(&grant).await;
    let snapshot = recording.snapshot.as_ref().expect("there is one");
    assert_eq!(snapshot.manifest, second.manifest, "one manifest, the last");
    assert_eq!(snapshot.parts, [&kept[..], &second.parts].concat());
    assert_eq!(found_in(grant.run, &recording), with(Some((3, &[1, 3, 4, 5])), 3));
    let third = going_on(fold(&node, &grant, 3, 4, &[]), &[], &[1, 3, 4, 5, 77]);
    node.append(offer(&grant).changes(1).synced(node.incarnation)).await;
    assert_eq!(node.fold(third).await, Folded::Done, "a part that is not there is no obstacle");
    assert_eq!(found(&world, grant.run).await, (Some((4, vec![])), vec![1, 2, 3], vec![]));
}

pub async fn a_fold_beyond_the_tail_is_behind(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 2).await;
    let before = world.read(grant.run).await;
    for seq in [3, 100] {
        assert_eq!(node.fold(fold(&node, &grant, 0, seq, &[1])).await, Folded::Behind);
    }
    assert_eq!(world.read(grant.run).await, before);
    assert_eq!(parts(&world, grant.run, &[1]).await, []);
}

pub async fn a_fold_from_a_snapshot_that_is_not_the_stored_one_is_behind(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 4).await;
    assert_eq!(node.fold(fold(&node, &grant, 1, 2, &[1])).await, Folded::Behind, "there is none");
    assert_eq!(found(&world, grant.run).await, with(None, 4));
    assert_eq!(node.fold(fold(&node, &grant, 0, 2, &[1])).await, Folded::Done);
    let before = world.read(grant.run).await;
    for (base, seq) in [(0, 2), (0, 3), (1, 3), (3, 4)] {
        assert_eq!(node.fold(going_on(fold(&node, &grant, base, seq, &[2]), &[], &[1])).await, Folded::Behind);
    }
    assert_eq!(world.read(grant.run).await, before);
}

pub async fn a_fold_offered_again_is_there_already(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 4).await;
    let first = fold(&node, &grant, 0, 2, &[1]);
    assert_eq!(node.fold(first.clone()).await, Folded::Done);
    let second = going_on(fold(&node, &grant, 2, 3, &[2]), &[], &[1]);
    assert_eq!(node.fold(second.clone()).await, Folded::Done);
    let before = world.read(grant.run).await;
    assert_eq!(node.fold(second).await, Folded::Done, "its answer was lost");
    assert_eq!(node.fold(first).await, Folded::Behind, "another one has followed");
    assert_eq!(world.read(grant.run).await, before);
}

pub async fn a_fold_by_a_displaced_holder_is_fenced(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    let grant = changed(&world, &old, 3).await;
    assert_eq!(old.fold(fold(&old, &grant, 0, 1, &[1])).await, Folded::Done);
    world.fail(&old).await;
    let second = going_on(fold(&old, &grant, 1, 2, &[2]), &[part(grant.run, 1, "1")], &[]);
    assert_eq!(old.fold(second).await, Folded::Done, "the run's row decides, not the node's");
    let next = new.claim_one().await;
    let before = world.read(grant.run).await;
    for late in [fold(&old, &grant, 2, 3, &[3]), fold(&old, &next, 2, 3, &[3]), fold(&new, &grant, 2, 3, &[3])] {
        assert_eq!(old.fold(going_on(late, &[], &[1, 2])).await, Folded::Fenced);
    }
    assert_eq!(world.read(grant.run).await, before);
    assert_eq!(found_in(grant.run, &new.recording(&next).await), with(Some((2, &[1, 2])), 3));
    assert_eq!(new.fold(going_on(fold(&new, &next, 2, 3, &[3]), &[], &[1, 2])).await, Folded::Done, "its next holder goes on");
    assert_eq!(found(&world, grant.run).await, with(Some((3, &[3])), 3));
}

pub async fn a_fold_under_an_older_epoch_is_fenced(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 2).await;
    node.append(offer(&grant).release().synced(node.incarnation)).await;
    node.claim_one().await;
    let before = world.read(grant.run).await;
    assert_eq!(node.fold(fold(&node, &grant, 0, 2, &[1])).await, Folded::Fenced);
    assert_eq!(node.fold(fold(&node, &grant, 0, 9, &[1])).await, Folded::Fenced, "whatever else stands against it");
    assert_eq!(world.read(grant.run).await, before);
}

pub async fn a_fold_by_a_stranger_is_fenced(world: World) {
    let (node, other) = (world.node().await, world.node().await);
    let grant = changed(&world, &node, 2).await;
    let before = world.read(grant.run).await;
    assert_eq!(other.fold(fold(&other, &grant, 0, 2, &[1])).await, Folded::Fenced);
    assert_eq!(world.read(grant.run).await, before);
}

pub async fn a_fold_of_a_run_that_is_not_running_is_fenced(world: World) {
    let node = world.node().await;
    let finished = changed(&world, &node, 2).await;
    node.append(offer(&finished).finish(RunState::Succeeded, world.now()).synced(node.incarnation)).await;
    let held = changed(&world, &node, 2).await;
    node.append(offer(&held).hold(held.wake).synced(node.incarnation)).await;
    let released = changed(&world, &node, 2).await;
    node.append(offer(&released).release().synced(node.incarnation)).await;
    for grant in [finished, held, released] {
        let before = world.read(grant.run).await;
        assert_eq!(node.fold(fold(&node, &grant, 0, 2, &[1])).await, Folded::Fenced);
        assert_eq!(world.read(grant.run).await, before);
        assert_eq!(parts(&world, grant.run, &[1]).await, []);
    }
}

pub async fn a_fold_of_a_run_that_does_not_exist_is_fenced(world: World) {
    let node = world.node().await;
    let grant = Grant { run: world.run_id(), ..world.granted(&node).await };
    assert_eq!(node.fold(fold(&node, &grant, 0, 1, &[1])).await, Folded::Fenced);
    assert_eq!(parts(&world, grant.run, &[1]).await, []);
}

pub async fn a_run_is_folded_after_a_cancel_was_asked_for(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 2).await;
    world.tiers.journal.cancel(grant.run, outcome(grant.run, "no"), world.now()).await.expect("a cancel is answered");
    assert_eq!(node.fold(fold(&node, &grant, 0, 2, &[1])).await, Folded::Done);
    assert!(world.row(grant.run).await.cancel);
}

pub async fn parts_are_read_in_the_order_asked(world: World) {
    let node = world.node().await;
    let (grant, other) = (changed(&world, &node, 2).await, changed(&world, &node, 1).await);
    let one = fold(&node, &grant, 0, 1, &[1, 2, 3]);
    assert_eq!(node.fold(one.clone()).await, Folded::Done);
    assert_eq!(node.fold(fold(&node, &other, 0, 1, &[2, 9])).await, Folded::Done);
    let [first, second, third] = [0, 1, 2].map(|at| one.parts[at].clone());
    assert_eq!(parts(&world, grant.run, &[3, 1, 2]).await, [third.clone(), first.clone(), second.clone()]);
    assert_eq!(parts(&world, grant.run, &[9, 2, 0, u64::MAX, 1]).await, [second, first.clone()], "what is not there is left out");
    assert_eq!(parts(&world, grant.run, &[3, 3]).await, [third.clone(), third.clone()]);
    assert_eq!(parts(&world, grant.run, &[]).await, []);
    assert_eq!(parts(&world, world.run_id(), &[1]).await, []);
    let two = going_on(fold(&node, &grant, 1, 2, &[4]), std::slice::from_ref(&third), &[1, 2]);
    assert_eq!(node.fold(two.clone()).await, Folded::Done);
    assert_eq!(parts(&world, grant.run, &[1, 2, 3, 4]).await, [third, two.parts[0].clone()], "nor what was dropped");
    assert_eq!(parts(&world, other.run, &[1, 2]).await, [part(other.run, 2, "2")]);
}

pub async fn a_read_shows_the_snapshot_and_the_changes(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 4).await;
    assert_eq!(node.fold(fold(&node, &grant, 0, 2, &[1, 2])).await, Folded::Done);
    let stored = world.read(grant.run).await;
    assert_eq!(stored.recording, node.recording(&grant).await);
    assert_eq!(found_in(grant.run, &stored.recording), with(Some((2, &[1, 2])), 4));
    node.append(offer(&grant).finish(RunState::Succeeded, world.now()).synced(node.incarnation)).await;
    assert_eq!(world.read(grant.run).await.recording, stored.recording, "and so it stays");
}

pub async fn each_run_is_restored_with_its_own_snapshot(world: World) {
    let node = world.node().await;
    let mut grants = Vec::new();
    for at in 0..6 {
        let grant = changed(&world, &node, 4).await;
        if at % 2 == 1 {
            assert_eq!(node.fold(fold(&node, &grant, 0, at.min(4), &[at, at + 10])).await, Folded::Done);
        }
        grants.push(grant);
    }
    for (at, (grant, restored)) in (0u64..).zip(grants.iter().zip(node.restore(&grants).await)) {
        let Restored::Recording(recording) = restored else { panic!("the grant still holds") };
        let seq = if at % 2 == 1 { at.min(4) } else { 0 };
        let parts = [at, at + 10];
        let snapshot = (seq > 0).then_some((seq, &parts[..]));
        assert_eq!(found_in(grant.run, &recording), with(snapshot, 4));
    }
}

pub async fn a_fold_survives_its_process(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    let grant = changed(&world, &old, 3).await;
    assert_eq!(old.fold(fold(&old, &grant, 0, 2, &[1])).await, Folded::Done);
    world.fail(&old).await;
    world.kill(old).await;
    let next = new.claim_one().await;
    assert_eq!(found_in(next.run, &new.recording(&next).await), with(Some((2, &[1])), 3));
}

pub async fn a_crash_takes_a_fold_back_whole_or_not_at_all(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 4).await;
    assert_eq!(node.fold(fold(&node, &grant, 0, 1, &[1, 2])).await, Folded::Done);
    node.append(offer(&grant).both(1).synced(node.incarnation)).await;
    let first = node.recording(&grant).await;
    assert_eq!(node.fold(going_on(fold(&node, &grant, 1, 3, &[3]), &[part(grant.run, 2, "2")], &[1])).await, Folded::Done);
    let second = node.recording(&grant).await;
    assert_eq!(node.fold(going_on(fold(&node, &grant, 3, 4, &[4]), &[part(grant.run, 3, "3")], &[2])).await, Folded::Done);
    let third = node.recording(&grant).await;
    world.crash_store().await;
    let left = node.recording(&grant).await;
    assert!([&first, &second, &third].contains(&&left), "half a fold is left: {left:?}");
    let read: Vec<_> = parts(&world, grant.run, &[1, 2, 3, 4]).await.into_iter().map(|part| part.id).collect();
    let (seq, ids) = found_in(grant.run, &left).0.expect("the first one was synced");
    assert_eq!(read, ids);
    let next = going_on(fold(&node, &grant, seq, 5, &[5]), &[], &ids);
    assert_eq!(node.fold(next).await, Folded::Done, "its holder folds on from what is left");
    assert_eq!(found(&world, grant.run).await, with(Some((5, &[5])), 5));
}

pub async fn a_fold_is_never_left_without_the_rows_it_covers(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 1).await;
    for tail in [1, 2] {
        node.append(offer(&grant).after(tail).both(1).relaxed(node.incarnation)).await;
    }
    let new = fold(&node, &grant, 0, 3, &[1]);
    assert_eq!(node.fold(new.clone()).await, Folded::Done);
    node.append(offer(&grant).after(3).both(1).relaxed(node.incarnation)).await;
    world.crash_store().await;
    let left = node.recording(&grant).await;
    let (tail, seq) = (left.tail, left.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq));
    assert!(seq <= tail, "a snapshot at {seq} of a recording that ends at {tail}");
    let snapshot = (seq > 0).then_some((3, &[1][..]));
    assert_eq!(found_in(grant.run, &left), with(snapshot, tail));
    if tail < 3 {
        assert_eq!(node.fold(new.clone()).await, Folded::Behind, "the store lost what it builds on");
        let seen = node.append(offer(&grant).after(tail).both(3 - tail).synced(node.incarnation)).await;
        assert_eq!(seen.tail, 3);
        assert_eq!(node.fold(new).await, Folded::Done);
        assert_eq!(found(&world, grant.run).await, with(Some((3, &[1])), 3));
    }
}

pub async fn a_synced_append_takes_the_folds_before_it_along(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 2).await;
    assert_eq!(node.fold(fold(&node, &grant, 0, 1, &[1])).await, Folded::Done);
    assert_eq!(node.fold(going_on(fold(&node, &grant, 1, 2, &[2]), &[], &[1])).await, Folded::Done);
    // Even one that applies nothing.
    let seen = node.append(offer(&grant).after(0).both(1).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.tail), (0, 2));
    node.append(offer(&grant).both(1).relaxed(node.incarnation)).await;
    world.crash_store().await;
    let left = node.recording(&grant).await;
    assert_eq!(found_in(grant.run, &left), with(Some((2, &[2])), left.tail));
    assert_eq!(parts(&world, grant.run, &[1, 2]).await, [part(grant.run, 2, "2")]);
}

pub async fn parts_of_several_megabytes_are_kept(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 1).await;
    let megabytes = |id: u64| -> Vec<u8> {
        let seed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..id << 18).flat_map(|at| ((at ^ seed) as u32).wrapping_mul(0x9e37_79b9).to_le_bytes()).collect()
    };
    let new: Vec<_> = (1..=5).map(|id| part(grant.run, id, megabytes(id))).collect();
    assert_eq!(node.fold(build::fold(&grant, node.incarnation, 0, 1, new.clone())).await, Folded::Done);
    let snapshot = node.recording(&grant).await.snapshot.expect("there is one");
    assert!(snapshot.parts == new && parts(&world, grant.run, &[1, 2, 3, 4, 5]).await == new, "large parts came back otherwise");
}

pub async fn a_fold_may_have_hundreds_of_parts(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 2).await;
    let ids: Vec<u64> = (1..=1500).collect();
    let first = fold(&node, &grant, 0, 1, &ids);
    assert_eq!(node.fold(first.clone()).await, Folded::Done);
    assert_eq!(found(&world, grant.run).await, with(Some((1, &ids)), 2));
    assert_eq!(parts(&world, grant.run, &ids).await, first.parts);
    let (kept, dropped): (Vec<_>, Vec<_>) = first.parts.into_iter().partition(|part| part.id % 10 == 0);
    let dropped: Vec<_> = dropped.iter().map(|part| part.id).collect();
    assert_eq!(node.fold(going_on(fold(&node, &grant, 1, 2, &[1501, 1502]), &kept, &dropped)).await, Folded::Done);
    let left: Vec<_> = kept.iter().map(|part| part.id).chain([1501, 1502]).collect();
    assert_eq!(found(&world, grant.run).await, with(Some((2, &left)), 2));
}

pub async fn a_sweep_removes_everything_of_a_folded_run(world: World) {
    let node = world.node().await;
    let new = world.new_run();
    let run = world.create(new.clone()).await;
    let stays = {
        let grant = node.claim_one().await;
        node.append(offer(&grant).both(1).synced(node.incarnation)).await;
        node.append(offer(&grant).after(1).both(2).synced(node.incarnation)).await;
        assert_eq!(node.fold(fold(&node, &grant, 0, 1, &[1, 2])).await, Folded::Done);
        node.append(offer(&grant).after(3).finish(RunState::Succeeded, world.now()).synced(node.incarnation)).await;
        changed(&world, &node, 2).await
    };
    assert_eq!(node.fold(fold(&node, &stays, 0, 1, &[1])).await, Folded::Done);
    assert_eq!(world.tiers.journal.sweep(world.in_an_hour(), 10).await.expect("a sweep is answered"), 1);
    assert_eq!(world.tiers.catalog.read(run).await.expect("a read is answered"), None);
    assert_eq!(parts(&world, run, &[1, 2]).await, []);
    assert_eq!(found(&world, stays.run).await, with(Some((1, &[1])), 2));
    // The very same run once more: whatever was left of the first would show.
    world.create(new).await;
    let grant = node.claim_one().await;
    assert_eq!(found(&world, run).await, (None, vec![], vec![]));
    let seen = node.append(offer(&grant).both(2).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.tail), (1, 2));
    assert_eq!(node.fold(fold(&node, &grant, 0, 2, &[1])).await, Folded::Done);
    assert_eq!(found(&world, run).await, with(Some((2, &[1])), 2));
}

pub async fn a_fold_and_an_append_leave_both(world: World) {
    for _ in 0..10 {
        let node = world.node().await;
        let grant = changed(&world, &node, 2).await;
        let (folder, new) = (node.clone(), fold(&node, &grant, 0, 2, &[1]));
        let (appender, batch) = (node.clone(), offer(&grant).both(1).synced(node.incarnation));
        let (folded, seen) = both(async move { folder.fold(new).await }, async move { appender.append(batch).await }).await;
        assert_eq!((folded, seen.rows, seen.tail), (Folded::Done, 1, 3));
        assert_eq!(found(&world, grant.run).await, with(Some((2, &[1])), 3));
        node.append(offer(&grant).after(3).finish(RunState::Succeeded, world.now()).synced(node.incarnation)).await;
    }
}

pub async fn a_fold_and_the_row_it_builds_on_see_each_other(world: World) {
    for _ in 0..10 {
        let node = world.node().await;
        let grant = changed(&world, &node, 2).await;
        let (folder, new) = (node.clone(), fold(&node, &grant, 0, 3, &[1]));
        let (appender, batch) = (node.clone(), offer(&grant).both(1).relaxed(node.incarnation));
        let (folded, seen) = both(async move { folder.fold(new).await }, async move { appender.append(batch).await }).await;
        assert_eq!((seen.rows, seen.tail), (1, 3));
        let expected = match folded {
            Folded::Done => with(Some((3, &[1])), 3),
            Folded::Behind => with(None, 3),
            other => panic!("a holder is answered with {other:?}"),
        };
        assert_eq!(found(&world, grant.run).await, expected);
        node.append(offer(&grant).after(3).finish(RunState::Succeeded, world.now()).synced(node.incarnation)).await;
    }
}

pub async fn a_fold_and_a_take_over_see_each_other(world: World) {
    for _ in 0..10 {
        let (old, new) = (world.node().await, world.node().await);
        let grant = changed(&world, &old, 3).await;
        world.fail(&old).await;
        let late = fold(&old, &grant, 0, 2, &[1]);
        let taker = new.clone();
        let (folded, next) = both(async move { old.fold(late).await }, async move { taker.claim().await }).await;
        // A claim may pass a row that the fold has locked.
        let next = if next.is_empty() { new.claim_one().await } else { next[0].clone() };
        let expected = match folded {
            Folded::Done => with(Some((2, &[1])), 3),
            Folded::Fenced => with(None, 3),
            other => panic!("a fold that meets a claim is answered with {other:?}"),
        };
        assert_eq!(
            found_in(next.run, &new.recording(&next).await),
            expected,
            "the claim came after the fold, or the fold was refused"
        );
        new.append(offer(&next).finish(RunState::Succeeded, world.now()).synced(new.incarnation)).await;
    }
}

pub async fn many_folds_from_one_snapshot_leave_one(world: World) {
    let node = world.node().await;
    let grant = changed(&world, &node, 3).await;
    let tasks = (1..=8).map(|id| {
        let (node, new) = (node.clone(), fold(&node, &grant, 0, 1 + id % 3, &[id]));
        async move { (new.clone(), node.fold(new).await) }
    });
    let mut done = Vec::new();
    for (new, folded) in together(tasks).await {
        match folded {
            Folded::Done => done.push((new.seq, vec![new.parts[0].id])),
            other => assert_eq!(other, Folded::Behind),
        }
    }
    assert_eq!(done.len(), 1, "only one of them found the snapshot it builds on");
    let seq = done[0].0;
    assert_eq!(found(&world, grant.run).await, (done.pop(), vec![1, 2, 3], (seq + 1..=3).collect()));
}

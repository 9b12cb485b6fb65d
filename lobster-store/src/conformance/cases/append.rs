//! Append: the fence on the run's row, and the chain of its rows.

use crate::{
    conformance::build::{Build, offer, outcome},
    conformance::world::World,
    contract::{Batch, NewRun, Offer, RunState, Seen, limits},
};

pub async fn an_append_moves_tail_and_mark(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    let offer = offer(&grant).results(3);
    let mark = offer.rows[0].mark;
    let seen = node.append(offer.synced(node.incarnation)).await;
    let (wake, state) = (grant.wake, RunState::Running);
    assert_eq!(seen, Seen { rows: 1, then: false, mine: true, state, tail: 3, mark, cancel: false, wake });
    let stored = world.read(grant.run).await;
    assert_eq!((stored.summary.tail, stored.recording.tail, stored.recording.mark), (3, 3, mark));
    assert_eq!(world.seqs(grant.run).await, [1, 2, 3]);
}

pub async fn rows_must_follow_the_tail_without_a_gap(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 2).await;
    let seen = node.append(offer(&grant).after(3).results(1).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.mine, seen.tail, seen.mark), (0, true, 2, grant.mark));
    assert_eq!(world.seqs(grant.run).await, [1, 2]);
}

pub async fn a_row_offered_again_is_there_already(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    let batch = offer(&grant).results(2).synced(node.incarnation);
    let first = node.append(batch.clone()).await;
    let again = node.append(batch).await;
    assert_eq!((again.rows, again.mine, again.tail, again.mark), (0, true, 2, first.mark), "tail and mark tell that it is");
    assert_eq!(world.seqs(grant.run).await, [1, 2]);
}

pub async fn a_displaced_holder_appends_nothing(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    let grant = world.begun(&old, 2).await;
    world.fail(&old).await;
    let next = new.claim_one().await;
    assert_eq!((next.run, next.epoch, next.tail), (grant.run, grant.epoch + 1, 2));
    let Seen { rows, then, mine, tail, .. } = old.append(offer(&grant).results(1).release().synced(old.incarnation)).await;
    assert_eq!((rows, then, mine, tail), (0, false, false, 2));
    assert_eq!(world.seqs(grant.run).await, [1, 2]);
    let seen = new.append(offer(&next).results(1).synced(new.incarnation)).await;
    assert_eq!((seen.rows, seen.tail), (1, 3));
}

pub async fn a_failed_owner_whose_run_nobody_took_goes_on_appending(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 1).await;
    world.fail(&node).await;
    let seen = node.append(offer(&grant).results(1).finish(RunState::Succeeded, world.now()).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.mine), (1, true, true), "the run's row decides, not the node's");
}

pub async fn an_older_epoch_of_the_same_owner_appends_nothing(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).release().synced(node.incarnation)).await;
    node.claim_one().await;
    let seen = node.append(offer(&grant).results(1).finish(RunState::Failed, world.now()).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.mine, seen.tail, seen.state), (0, false, false, 0, RunState::Running));
}

pub async fn a_stranger_with_the_right_epoch_appends_nothing(world: World) {
    let (node, other) = (world.node().await, world.node().await);
    let grant = world.granted(&node).await;
    let seen = other.append(offer(&grant).results(1).hold(grant.wake).synced(other.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.mine, seen.state), (0, false, false, RunState::Running));
}

pub async fn a_run_that_is_not_running_takes_no_rows(world: World) {
    let node = world.node().await;
    let ways = [
        |offer: Offer, _: u64| offer.release(),
        |offer: Offer, wake| offer.hold(wake),
        |offer: Offer, _| offer.finish(RunState::Failed, crate::contract::Wall(1)),
    ];
    for (way, state) in ways.into_iter().zip([RunState::Ready, RunState::Held, RunState::Failed]) {
        let run = world.create(NewRun { due: world.ago(crate::conformance::world::HOUR), ..world.new_run() }).await;
        let grant = node.claim().await.into_iter().find(|grant| grant.run == run).expect("the oldest due time is granted");
        assert!(node.append(way(offer(&grant), grant.wake).synced(node.incarnation)).await.then);
        let seen = node.append(offer(&grant).results(1).synced(node.incarnation)).await;
        assert_eq!((seen.rows, seen.mine, seen.state, seen.tail), (0, false, state, 0));
    }
}

pub async fn a_run_that_does_not_exist_is_a_lost_fence(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    let offer = Offer { run: world.run_id(), ..offer(&grant) }.results(1).release();
    let seen = node.append(offer.synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.then, seen.mine), (0, false, false));
}

pub async fn two_rows_of_one_run_are_both_applied(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    let offer = offer(&grant).results(2).intent();
    let mark = offer.rows[1].mark;
    let seen = node.append(offer.synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.tail, seen.mark), (2, 3, mark));
    assert_eq!(world.seqs(grant.run).await, [1, 2, 3]);
}

pub async fn two_rows_of_one_run_are_both_refused_after_a_gap(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    let seen = node.append(offer(&grant).after(1).results(2).intent().synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.mine, seen.tail), (0, true, 0));
    assert_eq!(world.seqs(grant.run).await, []);
}

pub async fn an_intent_is_refused_after_a_cancel(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 1).await;
    world.tiers.journal.cancel(grant.run, outcome(grant.run, "no"), world.now()).await.expect("a cancel is answered");
    let seen = node.append(offer(&grant).intent().synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.mine, seen.cancel, seen.tail, seen.mark), (0, true, true, 1, grant.mark));
    assert_eq!(world.seqs(grant.run).await, [1]);
}

pub async fn what_precedes_a_refused_intent_is_applied(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    world.tiers.journal.cancel(grant.run, outcome(grant.run, "no"), world.now()).await.expect("a cancel is answered");
    let offer = offer(&grant).results(2).intent();
    let mark = offer.rows[0].mark;
    let seen = node.append(offer.release().synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.mine, seen.cancel, seen.tail, seen.mark), (1, true, true, 2, mark));
    assert!(!seen.then, "what follows a refused row is refused");
    assert_eq!(world.seqs(grant.run).await, [1, 2]);
}

pub async fn a_result_is_recorded_after_a_cancel(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).intent().synced(node.incarnation)).await;
    world.tiers.journal.cancel(grant.run, outcome(grant.run, "no"), world.now()).await.expect("a cancel is answered");
    let seen = node.append(offer(&grant).after(1).results(1).synced(node.incarnation)).await;
    assert_eq!((seen.rows, seen.tail, seen.cancel), (1, 2, true));
}

pub async fn a_refused_offer_does_not_stop_the_others(world: World) {
    let (node, other) = (world.node().await, world.node().await);
    let lost = world.begun(&node, 1).await;
    node.append(offer(&lost).release().synced(node.incarnation)).await;
    other.claim_one().await;
    let [first, gap, cancelled, last] =
        [world.begun(&node, 1).await, world.begun(&node, 1).await, world.begun(&node, 1).await, world.begun(&node, 1).await];
    world.tiers.journal.cancel(cancelled.run, outcome(cancelled.run, "no"), world.now()).await.expect("a cancel is answered");
    let offers = vec![
        offer(&last).results(2),
        offer(&lost).results(1),
        offer(&gap).after(5).results(1),
        offer(&cancelled).results(1).intent(),
        offer(&first).results(1).finish(RunState::Succeeded, world.now()),
    ];
    let seen = node.append_all(Batch { incarnation: node.incarnation, synced: true, patient: None, offers }).await;
    let answers: Vec<_> = seen.iter().map(|seen| (seen.rows, seen.then, seen.mine, seen.tail)).collect();
    assert_eq!(
        answers,
        [(1, false, true, 3), (0, false, false, 1), (0, false, true, 1), (1, false, true, 2), (1, true, true, 2)]
    );
    for (grant, tail) in [(last, 3), (lost, 1), (gap, 1), (cancelled, 2), (first, 2)] {
        assert_eq!(world.seqs(grant.run).await, (1..=tail).collect::<Vec<_>>());
    }
}

pub async fn an_offer_without_rows_shows_the_row(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 2).await;
    let seen = node.append(offer(&grant).synced(node.incarnation)).await;
    let (tail, mark, wake, state) = (2, grant.mark, grant.wake, RunState::Running);
    assert_eq!(seen, Seen { rows: 0, then: false, mine: true, state, tail, mark, cancel: false, wake });
}

pub async fn an_answer_tells_of_a_cancel_and_of_a_wake(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    world.tiers.journal.cancel(grant.run, outcome(grant.run, "no"), world.now()).await.expect("a cancel is answered");
    let seen = node.append(offer(&grant).results(1).relaxed(node.incarnation)).await;
    assert!(seen.cancel && seen.wake > grant.wake);
}

pub async fn an_empty_batch_is_answered_by_nothing(world: World) {
    let node = world.node().await;
    for synced in [false, true] {
        let batch = Batch { incarnation: node.incarnation, synced, patient: None, offers: Vec::new() };
        assert_eq!(node.append_all(batch).await, []);
    }
}

pub async fn progress_counts_attempts_and_deaths_anew(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    let run = world.granted(&old).await.run;
    old.tiers.members.note(old.incarnation, 0, Some(run));
    assert_eq!(world.fail(&old).await, [run]);
    let grant = new.claim_one().await;
    assert_eq!((grant.attempts, grant.deaths), (2, 1));
    new.append(offer(&grant).intent().synced(new.incarnation)).await;
    let row = world.row(run).await;
    assert_eq!((row.attempts, row.deaths), (2, 1), "an intent is no progress");
    new.append(offer(&grant).after(1).results(1).relaxed(new.incarnation)).await;
    let row = world.row(run).await;
    assert_eq!((row.attempts, row.deaths), (0, 0));
}

pub async fn progress_that_was_refused_counts_for_nothing(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    node.append(offer(&grant).after(3).results(1).synced(node.incarnation)).await;
    assert_eq!(world.row(grant.run).await.attempts, 1);
}

pub async fn a_full_batch_is_answered_in_its_order(world: World) {
    let node = world.node().await;
    let runs: Vec<_> = (0..limits::BATCH_RUNS).map(|_| world.new_run()).collect();
    world.tiers.journal.submit(runs).await.expect("a submit is answered");
    let grants = node.claim_as(crate::contract::Claim { limit: limits::BATCH_RUNS, ..node.asks() }).await;
    assert_eq!(grants.len(), limits::BATCH_RUNS);
    let offers = grants.iter().zip(1..).map(|(grant, number)| offer(grant).results(1 + number % 3)).collect();
    let seen = node.append_all(Batch { incarnation: node.incarnation, synced: false, patient: None, offers }).await;
    assert_eq!(
        seen.iter().map(|seen| seen.tail).collect::<Vec<_>>(),
        (1..=1024).map(|number| 1 + number % 3).collect::<Vec<_>>()
    );
}

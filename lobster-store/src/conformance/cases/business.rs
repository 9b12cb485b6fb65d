//! Business transactions: a row is recorded by the work that returns it, under the same fence as any.

use crate::{
    conformance::world::{Node, World, task, work as work_task},
    contract::{BusinessKind, Failed, Grant, Hold, NewRun, Result, Row, RunState, Seq, Submitted, Transacted, Work},
};
use bytes::Bytes;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

fn hold(node: &Node, grant: &Grant, head: Seq) -> Hold {
    let (run, epoch, incarnation) = (grant.run, grant.epoch, node.incarnation);
    Hold { incarnation, run, epoch, head, most: Duration::from_secs(5) }
}

/// Work that returns `row`, and says that it began.
fn work(row: Option<Row>, began: &Arc<AtomicBool>) -> Work {
    let began = began.clone();
    Box::new(move |_| {
        Box::pin(async move {
            began.store(true, Ordering::SeqCst);
            row
        })
    })
}

fn row(grant: &Grant, seq: Seq) -> Row {
    let body = Bytes::from_static(b"a record of work");
    Row::new(grant.run, grant.epoch, seq, seq, Some(body), None)
}

async fn transact(node: &Node, hold: Hold, work: Work) -> Transacted {
    node.tiers.journal.transact(hold, work).await.expect("a transaction is answered")
}

fn kind(node: &Node) -> Option<BusinessKind> {
    node.tiers.journal.business()
}

pub async fn a_row_of_work_is_recorded(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 2).await;
    let (began, new) = (Arc::default(), row(&grant, 3));
    assert!(kind(&node).is_some_and(|kind| kind.most > Duration::ZERO));
    assert_eq!(transact(&node, hold(&node, &grant, 3), work(Some(new.clone()), &began)).await, Transacted::Done);
    let stored = world.read(grant.run).await;
    assert_eq!((stored.recording.tail, stored.recording.mark), (3, new.mark));
    let last = stored.recording.deltas.last().expect("rows are recorded");
    assert_eq!((last.from, last.to, Some(&last.sealed)), (3, 3, new.deltas.as_ref()));
    assert_eq!((stored.summary.attempts, stored.summary.deaths), (0, 0), "a result is progress");
}

pub async fn work_that_wants_nothing_kept_records_nothing(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 2).await;
    let began = Arc::default();
    assert_eq!(transact(&node, hold(&node, &grant, 3), work(None, &began)).await, Transacted::Undone);
    assert!(began.load(Ordering::SeqCst));
    assert_eq!(world.row(grant.run).await.tail, 2);
    // And the run goes on, once the store has let go of it: a server may still be about to see that the connection is gone.
    let again = loop {
        match transact(&node, hold(&node, &grant, 3), work(Some(row(&grant, 3)), &began)).await {
            Transacted::Busy => {}
            again => break again,
        }
    };
    assert_eq!(again, Transacted::Done);
}

pub async fn a_refused_hold_begins_nothing(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 2).await;
    let began = Arc::default();
    for head in [1, 2, 4] {
        let answer = transact(&node, hold(&node, &grant, head), work(Some(row(&grant, head)), &began)).await;
        assert!(matches!(&answer, Transacted::Seen(seen) if seen.mine && seen.tail == 2), "{answer:?}");
    }
    let stranger = Hold { incarnation: world.incarnation(), ..hold(&node, &grant, 3) };
    let answer = transact(&node, stranger, work(Some(row(&grant, 3)), &began)).await;
    assert!(matches!(&answer, Transacted::Seen(seen) if !seen.mine), "{answer:?}");
    assert!(!began.load(Ordering::SeqCst));
    assert_eq!(world.row(grant.run).await.tail, 2);
}

pub async fn nothing_is_offered_through_a_hold_of_an_older_epoch(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    let grant = world.begun(&old, 1).await;
    world.fail(&old).await;
    let taken = new.claim_one().await;
    let began = Arc::default();
    let answer = transact(&old, hold(&old, &grant, 2), work(Some(row(&grant, 2)), &began)).await;
    assert!(matches!(&answer, Transacted::Seen(seen) if !seen.mine), "{answer:?}");
    assert_eq!(transact(&new, hold(&new, &taken, 2), work(Some(row(&taken, 2)), &began)).await, Transacted::Done);
}

/// What submits of one transaction were answered.
type Answers = Arc<Mutex<Vec<Result<Submitted>>>>;

/// Work that submits `runs`, one after the other, and returns `row`.
fn submitting(node: &Node, runs: Vec<NewRun>, row: Option<Row>) -> (Work, Answers) {
    let (tiers, answers) = (node.tiers.clone(), Answers::default());
    let told = answers.clone();
    let work: Work = Box::new(move |transaction| {
        Box::pin(async move {
            for run in runs {
                let answer = tiers.journal.submit_in(transaction, run).await;
                told.lock().expect("nobody panics under this lock").push(answer);
            }
            row
        })
    });
    (work, answers)
}

/// Submits `runs` in a transaction that is committed, or not; what each was answered.
async fn submitted(node: &Node, grant: &Grant, runs: Vec<NewRun>, committed: bool) -> Vec<Submitted> {
    let (work, answers) = submitting(node, runs, committed.then(|| row(grant, grant.tail + 1)));
    let expected = if committed { Transacted::Done } else { Transacted::Undone };
    assert_eq!(transact(node, hold(node, grant, grant.tail + 1), work).await, expected);
    let answers = answers.lock().expect("nobody panics under this lock");
    answers.iter().map(|answer| answer.clone().expect("a submit is answered")).collect()
}

pub async fn a_run_is_there_with_the_commit_that_it_was_submitted_in(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 1).await;
    let new = NewRun { tags: vec!["a".into(), "b".into()], ..world.keyed("followed") };
    assert_eq!(submitted(&node, &grant, vec![new.clone()], true).await, [Submitted::Created]);
    let stored = world.read(new.id).await;
    assert_eq!((stored.summary.state, stored.summary.key.as_deref()), (RunState::Ready, Some("followed")));
    assert_eq!((stored.summary.tags, stored.recording.input), (new.tags, new.input));
    assert_eq!(node.claim_one().await.run, new.id, "it is free, as any");
}

pub async fn a_run_that_was_submitted_in_what_is_undone_never_was(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 1).await;
    let new = world.keyed("gone");
    assert_eq!(submitted(&node, &grant, vec![new.clone()], false).await, [Submitted::Created]);
    assert!(world.tiers.catalog.read(new.id).await.expect("a read is answered").is_none());
    assert_eq!(world.tiers.catalog.find("gone").await.expect("a look is answered"), None);
    assert!(node.claim().await.is_empty());
    // Its key is as free as ever.
    let other = world.keyed("gone");
    assert_eq!(submitted(&node, &grant, vec![other.clone()], true).await, [Submitted::Created]);
    assert_eq!(world.tiers.catalog.find("gone").await.expect("a look is answered"), Some(other.id));
}

pub async fn a_key_is_compared_inside_of_a_transaction_as_outside(world: World) {
    let node = world.node().await;
    let before = world.keyed("before");
    world.create(NewRun { due: world.in_an_hour(), ..before.clone() }).await;
    let grant = world.begun(&node, 1).await;
    let first = world.keyed("within");
    let other_input = |key: &str| NewRun { digest: [8; 32], ..world.keyed(key) };
    let other_task = |key: &str| NewRun { task: task("rest", 1), ..world.keyed(key) };
    let asked = vec![
        world.keyed("before"),
        other_input("before"),
        first.clone(),
        world.keyed("within"),
        first.clone(),
        other_task("within"),
        NewRun { task: task("work", 2), ..world.keyed("within") },
        world.new_run(),
        world.new_run(),
    ];
    let found = |id, same| Submitted::Existing { id, same };
    let expected = [
        found(before.id, true),
        found(before.id, false),
        Submitted::Created,
        found(first.id, true),
        found(first.id, true),
        found(first.id, false),
        found(first.id, true),
        Submitted::Created,
        Submitted::Created,
    ];
    assert_eq!(submitted(&node, &grant, asked, true).await, expected);
    assert_eq!(world.row(first.id).await.task, work_task());
    assert_eq!(node.claim().await.len(), 3);
}

pub async fn a_run_is_submitted_in_no_transaction_but_one_of_the_store(world: World) {
    struct Strange;
    let new = world.new_run();
    let answer = world.tiers.journal.submit_in(&mut Strange, new.clone()).await;
    assert!(matches!(answer, Err(Failed::Refused(_))), "{answer:?}");
    assert!(world.tiers.catalog.read(new.id).await.expect("a read is answered").is_none());
}

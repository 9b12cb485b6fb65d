//! Business transactions: a row is recorded by the work that returns it, under the same fence as any.

use crate::{
    conformance::world::{Node, World},
    contract::{BusinessKind, Grant, Hold, Row, Seq, Transacted, Work},
};
use bytes::Bytes;
use std::{
    sync::{
        Arc,
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
    // And the run goes on.
    assert_eq!(transact(&node, hold(&node, &grant, 3), work(Some(row(&grant, 3)), &began)).await, Transacted::Done);
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

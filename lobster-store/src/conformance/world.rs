//! The world of one case: a store, the processes that share it, and ids for what they make.
//!
//! Invariant: no randomness; a case makes the same ids each time.

use super::{
    Harness,
    build::{self, Build},
};
use crate::{
    Tiers,
    contract::{
        Answer, Batch, Beat, Boot, Claim, Clock, Evidence, Fold, Folded, Grant, Incarnation, Joined, NewNode, NewRun, Offer,
        Recording, Renewed, Restored, Revoked, RunId, RunState, RunSummary, Seen, Seq, Stored, Submitted, TaskVersion, Wall,
    },
};
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};
use uuid::Builder;

/// Lease of every node here.
pub(super) const TTL: Duration = Duration::from_secs(10);
/// Far from now.
pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// The task `name`, version `version`.
pub(super) fn task(name: &str, version: u32) -> TaskVersion {
    TaskVersion { task: name.to_owned(), version }
}

/// The task of every run, unless a case says otherwise.
pub(super) fn work() -> TaskVersion {
    task("work", 1)
}

/// One store, seen by one process.
pub struct World {
    harness: Arc<dyn Harness>,
    clock: Arc<dyn Clock>,
    // Read once: what a case compares stays the same even where the clock is not ours to stop.
    now: AtomicI64,
    made: AtomicU64,
    /// The stores of this process.
    pub tiers: Tiers,
}

impl World {
    /// Opens the store of `harness`.
    pub async fn new(harness: Arc<dyn Harness>) -> Self {
        let (tiers, clock) = (harness.open().await, harness.clock());
        Self { now: AtomicI64::new(clock.wall().0), clock, harness, made: AtomicU64::new(0), tiers }
    }

    /// One more process.
    pub async fn process(&self) -> Tiers {
        self.harness.open().await
    }

    /// The moment at which the case plays.
    pub(super) fn now(&self) -> Wall {
        Wall(self.now.load(Ordering::Relaxed))
    }

    /// A moment that is past, by so much.
    pub(super) fn ago(&self, by: Duration) -> Wall {
        self.now().minus(by)
    }

    /// A moment to come.
    pub(super) fn in_an_hour(&self) -> Wall {
        self.now().plus(HOUR)
    }

    /// A run's id. Ids grow.
    pub(super) fn run_id(&self) -> RunId {
        let made = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let mut tail = [0; 10];
        tail[2..].copy_from_slice(&made.to_be_bytes());
        let millis = u64::try_from(self.now().0).expect("no test plays before 1970");
        RunId(Builder::from_unix_timestamp_millis(millis, &tail).into_uuid())
    }

    /// An incarnation that no node has.
    pub(super) fn incarnation(&self) -> Incarnation {
        let made = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        Incarnation(Builder::from_random_bytes(u128::from(made).to_be_bytes()).into_uuid())
    }

    /// A run of [`work`], without a key, due since a second ago.
    pub(super) fn new_run(&self) -> NewRun {
        let id = self.run_id();
        NewRun {
            id,
            key: None,
            digest: [7; 32],
            task: work(),
            tags: Vec::new(),
            due: self.ago(Duration::from_secs(1)),
            input: build::input(id, "\"input\""),
        }
    }

    /// The same, with a key.
    pub(super) fn keyed(&self, key: &str) -> NewRun {
        NewRun { key: Some(key.to_owned()), ..self.new_run() }
    }

    /// Submits one run.
    pub(super) async fn submit(&self, run: NewRun) -> Submitted {
        let answers = self.tiers.journal.submit(vec![run]).await.expect("a submit is answered");
        assert_eq!(answers.len(), 1, "one run, one answer");
        answers[0]
    }

    /// Submits one run that must be new, and returns its id.
    pub(super) async fn create(&self, run: NewRun) -> RunId {
        let id = run.id;
        assert_eq!(self.submit(run).await, Submitted::Created);
        id
    }

    /// A new run of [`work`].
    pub(super) async fn created(&self) -> RunId {
        self.create(self.new_run()).await
    }

    /// A new run that `node` has claimed.
    pub(super) async fn granted(&self, node: &Node) -> Grant {
        let run = self.created().await;
        let grant = node.claim_one().await;
        assert_eq!(grant.run, run, "only the new run is free");
        grant
    }

    /// A run with `count` results that `node` has claimed and goes on with; the grant's tail and mark are moved on.
    pub(super) async fn begun(&self, node: &Node, count: u64) -> Grant {
        let mut grant = self.granted(node).await;
        let seen = node.append(build::offer(&grant).results(count).synced(node.incarnation)).await;
        assert_eq!((seen.rows, seen.tail), (1, count));
        (grant.tail, grant.mark) = (seen.tail, seen.mark);
        grant
    }

    /// A run that ended with `state`, at `at`.
    pub(super) async fn ended(&self, node: &Node, state: RunState, at: Wall) -> RunId {
        let grant = self.granted(node).await;
        let seen = node.append(build::offer(&grant).finish(state, at).synced(node.incarnation)).await;
        assert!(seen.then, "nothing stands in the way of this finish");
        grant.run
    }

    /// A process that has joined under a default name and executes [`work`].
    pub(super) async fn node(&self) -> Node {
        let new = self.new_node();
        self.join(new).await
    }

    pub(super) fn new_node(&self) -> NewNode {
        NewNode { incarnation: self.incarnation(), name: None, tasks: vec![work()], slots: 4, ttl: TTL }
    }

    /// A process of its own that joins as `node`.
    pub(super) async fn join(&self, node: NewNode) -> Node {
        let tiers = self.process().await;
        let incarnation = node.incarnation;
        let joined = tiers.members.join(node).await.expect("nothing stands in the way of this join");
        Node { tiers, incarnation, joined, clock: self.clock.clone() }
    }

    /// Revokes a node whose last beat is `beat`, as if it had been silent for long.
    pub(super) async fn revoke(&self, incarnation: Incarnation, beat: u64) -> Revoked {
        let evidence = Evidence::Silence { beat, age: Duration::ZERO };
        self.tiers.members.revoke(incarnation, evidence).await.expect("a revoke is answered")
    }

    /// Makes a node that never beat failed, and returns the runs that were blamed.
    pub(super) async fn fail(&self, node: &Node) -> Vec<RunId> {
        match self.revoke(node.incarnation, 0).await {
            Revoked::Failed { suspects } => suspects,
            Revoked::Refused => panic!("a silence of no length at all is certain"),
        }
    }

    /// A run with its recording.
    pub(super) async fn read(&self, run: RunId) -> Stored {
        self.tiers.catalog.read(run).await.expect("a read is answered").expect("the run exists")
    }

    /// A run's row.
    pub(super) async fn row(&self, run: RunId) -> RunSummary {
        self.read(run).await.summary
    }

    /// The seqs in a run's recording.
    pub(super) async fn seqs(&self, run: RunId) -> Vec<Seq> {
        let stored = self.read(run).await;
        stored.recording.deltas.iter().flat_map(|row| build::seqs(run, row)).collect()
    }

    /// See [`Harness::advance`].
    pub(super) async fn advance(&self, by: Duration) {
        assert!(self.harness.advance(by).await, "its clock cannot be moved: say `without advance`");
        self.now.store(self.clock.wall().0, Ordering::Relaxed);
    }

    /// See [`Harness::crash_store`].
    pub(super) async fn crash_store(&self) {
        assert!(self.harness.crash_store().await, "the store does not crash without its processes: say `without crash_store`");
    }

    /// See [`Harness::kill`].
    pub(super) async fn kill(&self, node: Node) {
        assert!(self.harness.kill(node.tiers, node.incarnation).await, "no death can be proved: say `without kill`");
    }
}

/// A process that has joined.
#[derive(Clone)]
pub struct Node {
    /// Its stores.
    pub tiers: Tiers,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// What it was told when it joined.
    pub joined: Joined,
    clock: Arc<dyn Clock>,
}

impl Node {
    /// Now, on the clock that renewals are stamped with.
    pub(super) fn boot(&self) -> Boot {
        self.clock.boot()
    }

    /// A claim for everything it executes.
    pub(super) fn asks(&self) -> Claim {
        Claim { incarnation: self.incarnation, tasks: vec![work()], limit: 100, alone: false, now: self.clock.wall() }
    }

    pub(super) async fn claim_as(&self, claim: Claim) -> Vec<Grant> {
        self.tiers.journal.claim(claim).await.expect("a claim is answered")
    }

    pub(super) async fn claim(&self) -> Vec<Grant> {
        self.claim_as(self.asks()).await
    }

    /// Claims the only run there is.
    pub(super) async fn claim_one(&self) -> Grant {
        let mut grants = self.claim().await;
        assert_eq!(grants.len(), 1, "one run is free: {grants:?}");
        grants.remove(0)
    }

    /// The runs it gets for a claim.
    pub(super) async fn claimed(&self) -> Vec<RunId> {
        self.claim().await.into_iter().map(|grant| grant.run).collect()
    }

    /// Sends a batch of one offer until the row was looked at.
    pub(super) async fn append(&self, batch: Batch) -> Seen {
        let mut seen = self.append_all(batch).await;
        assert_eq!(seen.len(), 1, "one offer, one answer");
        seen.remove(0)
    }

    /// Sends a batch; offers that found their row locked are sent again.
    pub(super) async fn append_all(&self, mut batch: Batch) -> Vec<Seen> {
        let mut seen: Vec<Option<Seen>> = vec![None; batch.offers.len()];
        let mut places: Vec<usize> = (0..seen.len()).collect();
        loop {
            let answers = self.tiers.journal.append(batch.clone()).await.expect("an append is answered");
            assert_eq!(answers.len(), batch.offers.len(), "one answer per offer");
            let mut again: (Vec<usize>, Vec<Offer>) = Default::default();
            for ((place, offer), answer) in places.into_iter().zip(batch.offers).zip(answers) {
                match answer {
                    Answer::Seen(answer) => seen[place] = Some(answer),
                    Answer::Busy => again.extend([(place, offer)]),
                }
            }
            if again.0.is_empty() {
                return seen.into_iter().flatten().collect();
            }
            (places, batch.offers) = again;
            tokio::task::yield_now().await;
        }
    }

    /// Sends a fold until the row was looked at.
    pub(super) async fn fold(&self, fold: Fold) -> Folded {
        loop {
            match self.tiers.journal.fold(fold.clone()).await.expect("a fold is answered") {
                Folded::Busy => tokio::task::yield_now().await,
                answer => return answer,
            }
        }
    }

    pub(super) async fn restore(&self, grants: &[Grant]) -> Vec<Restored> {
        self.tiers.journal.restore(self.incarnation, grants).await.expect("a restore is answered")
    }

    /// The recording of a grant that still holds.
    pub(super) async fn recording(&self, grant: &Grant) -> Recording {
        match self.restore(std::slice::from_ref(grant)).await.as_slice() {
            [Restored::Recording(recording)] => recording.clone(),
            other => panic!("the grant still holds: {other:?}"),
        }
    }

    pub(super) async fn renew(&self, seq: u64) -> Renewed {
        let beat = Beat { seq, at: self.clock.boot(), lapsed: false };
        self.tiers.members.renew(self.incarnation, beat).await.expect("a renewal is answered")
    }

    pub(super) async fn leave(&self) {
        self.tiers.members.leave(self.incarnation).await.expect("a farewell is answered");
    }
}

/// Runs two tasks side by side.
#[allow(clippy::disallowed_methods, reason = "a race needs tasks, and this suite runs on a real runtime")]
pub(super) async fn both<A: Send + 'static, B: Send + 'static>(
    one: impl Future<Output = A> + Send + 'static,
    two: impl Future<Output = B> + Send + 'static,
) -> (A, B) {
    let (one, two) = (tokio::spawn(one), tokio::spawn(two));
    let proof = "no task of a race panics";
    (one.await.expect(proof), two.await.expect(proof))
}

/// Runs tasks side by side and returns what each came to, in order.
#[allow(clippy::disallowed_methods, reason = "a race needs tasks, and this suite runs on a real runtime")]
pub(super) async fn together<T: Send + 'static>(
    tasks: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let running: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    let mut ended = Vec::with_capacity(running.len());
    for task in running {
        ended.push(task.await.expect("no task of a race panics"));
    }
    ended
}

//! A journal in front of a journal: it sees when a window opens and closes, and how many synced statements lie within.
//!
//! Invariant: it passes every call on as it is, and costs two clock readings a call.

use crate::Result;
use async_trait::async_trait;
use lobster_core::{
    RunId, Wall,
    store::{
        Tiers,
        contract::{
            Answer, Attention, Batch, Business, BusinessKind, Cancelled, Claim, Failed, Fold, Folded, Grant, Hold, Incarnation,
            Journal, Lacking, NewRun, NewVerdict, Restored, Sealed, StoredPart, Submitted, Then, Transacted, VerdictAnswer,
            Vouched, Work,
        },
    },
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// What a round took.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// From its opening to its close.
    pub took: Duration,
    /// Synced statements within.
    pub syncs: u64,
    /// Time spent in them.
    pub syncing: Duration,
}

/// A moment, and what had been synced before it.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    at: Instant,
    syncs: u64,
    syncing: Duration,
}

impl Mark {
    /// The window from here to there.
    pub fn until(self, end: Mark) -> Window {
        Window { took: end.at - self.at, syncs: end.syncs - self.syncs, syncing: end.syncing - self.syncing }
    }
}

/// The wrapping journal.
pub struct Meter {
    inner: Arc<dyn Journal>,
    syncs: AtomicU64,
    syncing_ns: AtomicU64,
    /// Highest tail that the store acknowledged to anybody.
    tail: AtomicU64,
    /// Bytes of records handed to the store: deltas, changes, parts and manifests.
    written: AtomicU64,
    seen: Mutex<Seen>,
    bell: Notify,
}

#[derive(Default)]
struct Seen {
    claimed: Option<Mark>,
    finished: u64,
    last: Option<Mark>,
}

impl Meter {
    /// Bytes of records handed to the store so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }
    /// The tiers with a meter before their journal.
    pub fn before(tiers: Tiers) -> (Tiers, Arc<Self>) {
        let meter = Arc::new(Self {
            inner: tiers.journal.clone(),
            syncs: AtomicU64::new(0),
            syncing_ns: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            written: AtomicU64::new(0),
            seen: Mutex::default(),
            bell: Notify::new(),
        });
        (Tiers { journal: meter.clone(), ..tiers }, meter)
    }

    /// Now.
    pub fn mark(&self) -> Mark {
        Mark {
            at: Instant::now(),
            syncs: self.syncs.load(Ordering::SeqCst),
            syncing: Duration::from_nanos(self.syncing_ns.load(Ordering::SeqCst)),
        }
    }

    /// Waits until so many runs have ended, and returns what it took since `from`, or since the first claim.
    pub async fn ended(&self, runs: u64, from: impl FnOnce() -> Option<Mark>) -> Result<Window> {
        let last = self.until(|seen| seen.last.filter(|_| seen.finished >= runs)).await;
        let claimed = self.seen.lock().expect("no code that can panic runs under this lock").claimed;
        let began = from().or(claimed).ok_or("runs ended that never began")?;
        Ok(began.until(last))
    }

    /// Waits until some run has this tail in the store.
    pub async fn recorded(&self, tail: u64) {
        self.until(|_| (self.tail.load(Ordering::SeqCst) >= tail).then_some(())).await;
    }

    async fn until<T>(&self, look: impl Fn(&Seen) -> Option<T>) -> T {
        loop {
            let mut rung = std::pin::pin!(self.bell.notified());
            rung.as_mut().enable();
            if let Some(found) = look(&self.seen.lock().expect("no code that can panic runs under this lock")) {
                return found;
            }
            rung.await;
        }
    }

    fn synced(&self, asked: Mark) {
        let took = u64::try_from(asked.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.syncing_ns.fetch_add(took, Ordering::SeqCst);
        self.syncs.fetch_add(1, Ordering::SeqCst);
    }

    fn answered(&self, finishes: u64, answers: &[Answer]) {
        let seen = |answer: &Answer| match answer {
            Answer::Seen(seen) => Some((seen.tail, seen.then)),
            Answer::Busy => None,
        };
        let tail = answers.iter().filter_map(seen).map(|(tail, _)| tail).max().unwrap_or(0);
        self.tail.fetch_max(tail, Ordering::SeqCst);
        if finishes > 0 {
            let mark = self.mark();
            let mut seen = self.seen.lock().expect("no code that can panic runs under this lock");
            seen.finished += finishes;
            seen.last = Some(mark);
        }
        self.bell.notify_waiters();
    }
}

#[async_trait]
impl Journal for Meter {
    fn beside(&self) -> Option<usize> {
        self.inner.beside()
    }

    async fn submit(&self, runs: Vec<NewRun>) -> Result<Vec<Submitted>, Failed> {
        let asked = self.mark();
        let answers = self.inner.submit(runs).await?;
        if answers.contains(&Submitted::Created) {
            self.synced(asked);
        }
        Ok(answers)
    }

    async fn submit_in(&self, transaction: &mut Business, run: NewRun) -> Result<Submitted, Failed> {
        self.inner.submit_in(transaction, run).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Grant>, Failed> {
        let asked = self.mark();
        let grants = self.inner.claim(claim).await?;
        if !grants.is_empty() {
            self.synced(asked);
            self.seen.lock().expect("no code that can panic runs under this lock").claimed.get_or_insert(asked);
        }
        Ok(grants)
    }

    async fn restore(&self, incarnation: Incarnation, grants: &[Grant]) -> Result<Vec<Restored>, Failed> {
        self.inner.restore(incarnation, grants).await
    }

    async fn append(&self, batch: Batch) -> Result<Vec<Answer>, Failed> {
        let synced = batch.synced;
        let halves = batch.offers.iter().flat_map(|offer| &offer.rows).flat_map(|row| row.deltas.iter().chain(&row.changes));
        self.written.fetch_add(halves.map(|half| half.body.len() as u64).sum(), Ordering::SeqCst);
        let ends: Vec<bool> = batch.offers.iter().map(|offer| matches!(offer.then, Some(Then::Finish { .. }))).collect();
        let asked = self.mark();
        let answers = self.inner.append(batch).await?;
        if synced {
            self.synced(asked);
        }
        let ended = |(end, answer): (&bool, &Answer)| *end && matches!(answer, Answer::Seen(seen) if seen.then);
        let finishes = ends.iter().zip(&answers).filter(|pair| ended(*pair)).count() as u64;
        self.answered(finishes, &answers);
        Ok(answers)
    }

    fn business(&self) -> Option<BusinessKind> {
        self.inner.business()
    }

    async fn transact(&self, hold: Hold, work: Work) -> Result<Transacted, Failed> {
        self.inner.transact(hold, work).await
    }

    async fn fold(&self, fold: Fold) -> Result<Folded, Failed> {
        let bytes = fold.manifest.body.len() + fold.parts.iter().map(|part| part.sealed.body.len()).sum::<usize>();
        self.written.fetch_add(bytes as u64, Ordering::SeqCst);
        self.inner.fold(fold).await
    }

    async fn parts(&self, run: RunId, ids: &[u64]) -> Result<Vec<StoredPart>, Failed> {
        self.inner.parts(run, ids).await
    }

    async fn cancel(&self, run: RunId, outcome: Sealed, at: Wall) -> Result<Cancelled, Failed> {
        self.inner.cancel(run, outcome, at).await
    }

    async fn verdict(&self, verdict: NewVerdict) -> Result<VerdictAnswer, Failed> {
        self.inner.verdict(verdict).await
    }

    async fn attend(&self, incarnation: Incarnation) -> Result<Vec<Attention>, Failed> {
        self.inner.attend(incarnation).await
    }

    async fn vouch(&self, vouched: Vec<Vouched>) -> Result<Vec<Lacking>, Failed> {
        self.inner.vouch(vouched).await
    }

    async fn sweep(&self, before: Wall, limit: usize) -> Result<usize, Failed> {
        self.inner.sweep(before, limit).await
    }
}

//! A journal that a test can take away: every call forwarded; `append` held, refused, or answered with "unknown" after it applied;
//! `transact` answered so when it is deaf; `claim` held on its way there or back, or saying that the store may have lost what happened.
//!
//! Invariant: it changes no answer except as told.

use async_trait::async_trait;
use lobster_store::{
    Tiers,
    contract::{
        Answer, Attention, Batch, Business, BusinessKind, Cancelled, Claim, Epoch, Failed, Fold, Folded, Grant, Hold,
        Incarnation, Journal, Lacking, NewRun, NewVerdict, Offer, Restored, Result, RunId, Sealed, StoredPart, Submitted,
        Transacted, VerdictAnswer, Vouched, Wall, Work,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};
use tokio::sync::watch;

/// What happens to an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// It goes through.
    Well,
    /// It waits until the mood changes.
    Held,
    /// It is refused before it applies.
    Away,
    /// It applies, and the answer to every second one is lost.
    Fitful,
    /// One with which a run leaves applies, and its answer waits until the mood changes.
    Farewell,
    /// A transaction commits, and its answer is lost when the mood changes; until then nobody is told what is asked of his runs.
    Deaf,
}

/// Where a claim waits until that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claims {
    /// Nowhere.
    Well,
    /// Before it applies.
    Sent,
    /// With its answer.
    Applied,
}

/// The journal.
pub struct Flaky {
    inner: Arc<dyn Journal>,
    mood: watch::Sender<Mood>,
    claims: watch::Sender<Claims>,
    struck: watch::Sender<u64>,
    appends: AtomicU64,
    doubled: AtomicU64,
    largest: AtomicUsize,
    synced: AtomicUsize,
    spoiled: Mutex<BTreeSet<RunId>>,
    loses: AtomicBool,
    doubts: Mutex<BTreeMap<RunId, Epoch>>,
    swept: watch::Sender<usize>,
}

impl Flaky {
    /// Wraps the journal of some tiers.
    pub fn wrap(tiers: &Tiers) -> (Arc<Self>, Tiers) {
        let flaky = Arc::new(Self {
            inner: tiers.journal.clone(),
            mood: watch::Sender::new(Mood::Well),
            claims: watch::Sender::new(Claims::Well),
            struck: watch::Sender::new(0),
            appends: AtomicU64::new(0),
            doubled: AtomicU64::new(0),
            largest: AtomicUsize::new(0),
            synced: AtomicUsize::new(0),
            spoiled: Mutex::default(),
            loses: AtomicBool::new(false),
            doubts: Mutex::default(),
            swept: watch::Sender::new(0),
        });
        let mut wrapped = tiers.clone();
        wrapped.journal = flaky.clone();
        (flaky, wrapped)
    }
    /// From now on.
    pub fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }
    /// The same for claims.
    pub fn set_claims(&self, claims: Claims) {
        self.claims.send_replace(claims);
    }
    /// Appends, transactions and claims that met something else than `Well` so far.
    pub fn struck(&self) -> u64 {
        *self.struck.borrow()
    }
    /// Waits until so many did.
    pub async fn until_struck(&self, count: u64) {
        self.struck.subscribe().wait_for(|struck| *struck >= count).await.expect("this outlives its receivers");
    }
    /// Waits until so many runs were removed.
    pub async fn until_swept(&self, count: usize) {
        self.swept.subscribe().wait_for(|swept| *swept >= count).await.expect("this outlives its receivers");
    }
    /// From now on it says of each run, when it is claimed for the first time, that what happened before may be lost.
    pub fn lose(&self) {
        self.loses.store(true, Ordering::SeqCst);
    }
    /// Rows of this run are neither taken nor given, nor anything that is asked for beside them; until [`heal`](Self::heal).
    pub fn spoil(&self, run: RunId) {
        self.spoiled.lock().expect("no test panics under this lock").insert(run);
    }
    /// All is well again.
    pub fn heal(&self) {
        self.spoiled.lock().expect("no test panics under this lock").clear();
    }
    fn spoils(&self, runs: impl IntoIterator<Item = RunId>) -> Result<()> {
        let spoiled = self.spoiled.lock().expect("no test panics under this lock");
        match runs.into_iter().find(|run| spoiled.contains(run)) {
            Some(run) => Err(Failed::Internal(format!("{run} is spoiled on purpose"))),
            None => Ok(()),
        }
    }
    /// Encoded bytes of the largest batch so far.
    pub fn largest(&self) -> usize {
        self.largest.load(Ordering::SeqCst)
    }
    /// Synced batches so far.
    pub fn synced(&self) -> usize {
        self.synced.load(Ordering::SeqCst)
    }
    /// Batches with two offers of one run, which the contract forbids.
    pub fn doubled(&self) -> u64 {
        self.doubled.load(Ordering::SeqCst)
    }
    fn strike(&self) {
        self.struck.send_modify(|struck| *struck += 1);
    }
    async fn changed<T: PartialEq>(of: &watch::Sender<T>, from: T) {
        of.subscribe().wait_for(|now| *now != from).await.expect("this outlives its receivers");
    }
}

#[async_trait]
impl Journal for Flaky {
    fn beside(&self) -> Option<usize> {
        self.inner.beside()
    }

    async fn submit(&self, runs: Vec<NewRun>) -> Result<Vec<Submitted>> {
        self.inner.submit(runs).await
    }
    async fn submit_in(&self, transaction: &mut Business, run: NewRun) -> Result<Submitted> {
        self.inner.submit_in(transaction, run).await
    }
    async fn claim(&self, claim: Claim) -> Result<Vec<Grant>> {
        let claims = *self.claims.borrow();
        if claims == Claims::Sent {
            self.strike();
            Self::changed(&self.claims, claims).await;
        }
        let mut grants = self.inner.claim(claim).await;
        if self.loses.load(Ordering::SeqCst) {
            let mut doubts = self.doubts.lock().expect("no test panics under this lock");
            for grant in grants.iter_mut().flatten() {
                grant.doubt = Some(*doubts.entry(grant.run).or_insert(grant.epoch - 1));
            }
        }
        if claims == Claims::Applied && grants.as_ref().is_ok_and(|grants| !grants.is_empty()) {
            self.strike();
            Self::changed(&self.claims, claims).await;
        }
        grants
    }
    async fn restore(&self, incarnation: Incarnation, grants: &[Grant]) -> Result<Vec<Restored>> {
        self.spoils(grants.iter().map(|grant| grant.run))?;
        self.inner.restore(incarnation, grants).await
    }
    async fn append(&self, batch: Batch) -> Result<Vec<Answer>> {
        let runs: BTreeSet<_> = batch.offers.iter().map(|offer| offer.run).collect();
        self.doubled.fetch_add(u64::from(runs.len() < batch.offers.len()), Ordering::SeqCst);
        self.synced.fetch_add(usize::from(batch.synced), Ordering::SeqCst);
        self.largest.fetch_max(batch.offers.iter().map(Offer::bytes).sum(), Ordering::SeqCst);
        self.spoils(batch.offers.iter().filter(|offer| !offer.rows.is_empty()).map(|offer| offer.run))?;
        let mut mood = *self.mood.borrow();
        if mood == Mood::Held {
            self.strike();
            Self::changed(&self.mood, mood).await;
            mood = *self.mood.borrow();
        }
        match mood {
            Mood::Away => {
                self.strike();
                Err(Failed::Unavailable("away on purpose".into()))
            }
            Mood::Fitful if self.appends.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) => {
                self.inner.append(batch).await?;
                self.strike();
                Err(Failed::Unknown("silent on purpose".into()))
            }
            Mood::Farewell if batch.offers.iter().any(|offer| offer.then.is_some()) => {
                let answers = self.inner.append(batch).await;
                self.strike();
                Self::changed(&self.mood, mood).await;
                answers
            }
            Mood::Well | Mood::Held | Mood::Fitful | Mood::Farewell | Mood::Deaf => self.inner.append(batch).await,
        }
    }
    fn business(&self) -> Option<BusinessKind> {
        self.inner.business()
    }

    async fn transact(&self, hold: Hold, work: Work) -> Result<Transacted> {
        let answer = self.inner.transact(hold, work).await;
        let deaf = *self.mood.borrow() == Mood::Deaf;
        if !deaf {
            return answer;
        }
        self.strike();
        Self::changed(&self.mood, Mood::Deaf).await;
        Err(Failed::Unknown("silent on purpose".into()))
    }

    async fn fold(&self, fold: Fold) -> Result<Folded> {
        self.inner.fold(fold).await
    }
    async fn parts(&self, run: RunId, ids: &[u64]) -> Result<Vec<StoredPart>> {
        self.inner.parts(run, ids).await
    }
    async fn cancel(&self, run: RunId, outcome: Sealed, at: Wall) -> Result<Cancelled> {
        self.inner.cancel(run, outcome, at).await
    }
    async fn verdict(&self, verdict: NewVerdict) -> Result<VerdictAnswer> {
        self.inner.verdict(verdict).await
    }
    async fn attend(&self, incarnation: Incarnation) -> Result<Vec<Attention>> {
        let deaf = *self.mood.borrow() == Mood::Deaf;
        if deaf { Ok(Vec::new()) } else { self.inner.attend(incarnation).await }
    }
    async fn vouch(&self, vouched: Vec<Vouched>) -> Result<Vec<Lacking>> {
        self.inner.vouch(vouched).await
    }
    async fn sweep(&self, before: Wall, limit: usize) -> Result<usize> {
        let removed = self.inner.sweep(before, limit).await?;
        self.swept.send_modify(|swept| *swept += removed);
        Ok(removed)
    }
}

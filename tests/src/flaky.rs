//! A journal that a test can take away: every call forwarded, `append` held, refused, or answered with "unknown" after it applied.
//!
//! Invariant: it changes no answer except as told.

use async_trait::async_trait;
use lobster_store::{
    Tiers,
    contract::{
        Answer, Attention, Batch, Cancelled, Claim, Failed, Grant, Incarnation, Journal, NewRun, NewVerdict, Restored, Result,
        RunId, Sealed, Submitted, VerdictAnswer, Wall,
    },
};
use std::sync::Arc;
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
    /// It applies, and its answer is lost.
    Silent,
}

/// The journal.
pub struct Flaky {
    inner: Arc<dyn Journal>,
    mood: watch::Sender<Mood>,
}

impl Flaky {
    /// Wraps the journal of some tiers.
    pub fn wrap(tiers: &Tiers) -> (Arc<Self>, Tiers) {
        let flaky = Arc::new(Self { inner: tiers.journal.clone(), mood: watch::channel(Mood::Well).0 });
        let mut wrapped = tiers.clone();
        wrapped.journal = flaky.clone();
        (flaky, wrapped)
    }
    /// From now on.
    pub fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }
}

#[async_trait]
impl Journal for Flaky {
    async fn submit(&self, runs: Vec<NewRun>) -> Result<Vec<Submitted>> {
        self.inner.submit(runs).await
    }
    async fn claim(&self, claim: Claim) -> Result<Vec<Grant>> {
        self.inner.claim(claim).await
    }
    async fn restore(&self, incarnation: Incarnation, grants: &[Grant]) -> Result<Vec<Restored>> {
        self.inner.restore(incarnation, grants).await
    }
    async fn append(&self, batch: Batch) -> Result<Vec<Answer>> {
        let mut mood = self.mood.subscribe();
        let now = *mood.wait_for(|mood| *mood != Mood::Held).await.map_err(|_| Failed::Unavailable("gone".into()))?;
        match now {
            Mood::Away => Err(Failed::Unavailable("away on purpose".into())),
            Mood::Silent => {
                self.inner.append(batch).await?;
                Err(Failed::Unknown("silent on purpose".into()))
            }
            Mood::Well | Mood::Held => self.inner.append(batch).await,
        }
    }
    async fn cancel(&self, run: RunId, outcome: Sealed, at: Wall) -> Result<Cancelled> {
        self.inner.cancel(run, outcome, at).await
    }
    async fn verdict(&self, verdict: NewVerdict) -> Result<VerdictAnswer> {
        self.inner.verdict(verdict).await
    }
    async fn attend(&self, incarnation: Incarnation) -> Result<Vec<Attention>> {
        self.inner.attend(incarnation).await
    }
    async fn sweep(&self, before: Wall, limit: usize) -> Result<usize> {
        self.inner.sweep(before, limit).await
    }
}

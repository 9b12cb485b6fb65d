//! A journal in front of the store's: it writes into the tally how many bytes of records go through, before they do, and how long the
//! whole state is at the record of each page.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use lobster_core::store::Tiers;
use lobster_core::store::contract::{
    Answer, Attention, Batch, Business, BusinessKind, Cancelled, Claim, Failed, Fold, Folded, Grant, Hold, Incarnation, Journal,
    Lacking, NewRun, NewVerdict, Restored, Sealed, StoredPart, Submitted, Transacted, VerdictAnswer, Vouched, Work,
};
use lobster_core::{RunId, Wall};
use lobster_examples::navaids::tally::{Fact, Tally};

use crate::whole::Whole;

/// The journal.
pub struct Door {
    inner: Arc<dyn Journal>,
    tally: Arc<Tally>,
    /// By run: how long its whole state is, as far as it was offered.
    wholes: Mutex<HashMap<RunId, Whole>>,
}

impl Door {
    /// The tiers with a door before their journal.
    pub fn before(tiers: Tiers, tally: Arc<Tally>) -> Tiers {
        let journal = Arc::new(Self { inner: tiers.journal.clone(), tally, wholes: Mutex::default() });
        Tiers { journal, ..tiers }
    }

    fn written(&self, bytes: usize) {
        if bytes > 0 {
            self.add(&Fact::Written(bytes as u64));
        }
    }

    fn add(&self, fact: &Fact) {
        // A figure that lacks something would be worse than none.
        self.tally.add(fact).expect("the tally lies on the disk of the records and can be written");
    }

    /// What every page that is recorded here would have written, had it written everything.
    fn full(&self, batch: &Batch) {
        let mut wholes = self.wholes.lock().unwrap_or_else(PoisonError::into_inner);
        for offer in &batch.offers {
            let whole = wholes.entry(offer.run).or_default();
            for row in &offer.rows {
                let Some(changes) = &row.changes else { continue };
                let pages = whole.row(offer.run, offer.epoch, (row.from, row.to), changes);
                for (seq, bytes) in pages.expect("what is offered was sealed a moment ago") {
                    self.add(&Fact::Full { seq, bytes });
                }
            }
        }
    }
}

#[async_trait]
impl Journal for Door {
    fn beside(&self) -> Option<usize> {
        self.inner.beside()
    }

    async fn append(&self, batch: Batch) -> Result<Vec<Answer>, Failed> {
        self.full(&batch);
        let rows = batch.offers.iter().flat_map(|offer| &offer.rows);
        self.written(rows.flat_map(|row| row.deltas.iter().chain(&row.changes)).map(|half| half.body.len()).sum());
        self.inner.append(batch).await
    }

    fn business(&self) -> Option<BusinessKind> {
        self.inner.business()
    }

    async fn transact(&self, hold: Hold, work: Work) -> Result<Transacted, Failed> {
        self.inner.transact(hold, work).await
    }

    async fn fold(&self, fold: Fold) -> Result<Folded, Failed> {
        self.written(fold.manifest.body.len() + fold.parts.iter().map(|part| part.sealed.body.len()).sum::<usize>());
        self.inner.fold(fold).await
    }

    async fn submit(&self, runs: Vec<NewRun>) -> Result<Vec<Submitted>, Failed> {
        self.inner.submit(runs).await
    }

    async fn submit_in(&self, transaction: &mut Business, run: NewRun) -> Result<Submitted, Failed> {
        self.inner.submit_in(transaction, run).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Grant>, Failed> {
        self.inner.claim(claim).await
    }

    async fn restore(&self, incarnation: Incarnation, grants: &[Grant]) -> Result<Vec<Restored>, Failed> {
        let restored = self.inner.restore(incarnation, grants).await?;
        let mut wholes = self.wholes.lock().unwrap_or_else(PoisonError::into_inner);
        for (grant, restored) in grants.iter().zip(&restored) {
            // One that is damaged is held by the engine, and writes nothing.
            if let Restored::Recording(recording) = restored
                && let Ok(whole) = Whole::of(grant.run, recording)
            {
                wholes.insert(grant.run, whole);
            }
        }
        Ok(restored)
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

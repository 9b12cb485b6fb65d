//! The journal, through the simulation.
//!
//! Invariant: what applied is logged with what applied it, in the same moment.

use super::{
    SimStore,
    facts::{done, entries, offered},
};
use crate::{
    history::Event,
    swarm::Call,
    world::{Fault, World},
};
use async_trait::async_trait;
use lobster_core::{
    RunId, Wall,
    store::contract::{
        Answer, Attention, Batch, Business, BusinessKind, Cancelled, Catalog, Claim, Fold, Folded, Grant, Hold, Incarnation,
        Journal, Lacking, NewRun, NewVerdict, Offer, Restored, Result, RunState, Sealed, StoredPart, Submitted, Then, Transacted,
        VerdictAnswer, Vouched, Work,
    },
};

fn call_of(batch: &Batch) -> Call {
    if batch.patient.is_some() {
        let asks = |offer: &Offer| offer.rows.is_empty() && offer.then.is_none();
        return if batch.offers.iter().all(asks) { Call::FindOut } else { Call::Patient };
    }
    let mut call = if batch.synced { Call::Synced } else { Call::Relaxed };
    for offer in &batch.offers {
        match offer.then {
            Some(Then::Finish { .. }) => call = Call::Finish,
            Some(_) if call != Call::Finish => call = Call::Away,
            _ => {}
        }
        if offer.rows.iter().any(|row| row.intent) {
            return Call::Intent;
        }
    }
    call
}

/// Appends the offers whose rows nobody has locked; a patient batch waits for its row.
async fn unless_busy(world: &World, call: Call, batch: Batch) -> Result<Vec<Answer>> {
    if let (Some(patience), Some(offer)) = (batch.patient, batch.offers.first()) {
        world.locks.wait(offer.run, patience).await;
    }
    let busy: Vec<bool> = batch.offers.iter().map(|offer| world.locks.is_held(offer.run)).collect();
    if busy.contains(&true) {
        world.met(call, Fault::Busy);
    }
    let free = batch.offers.into_iter().zip(&busy).filter(|(_, busy)| !**busy).map(|(offer, _)| offer).collect();
    let mut seen = world.memory.append(Batch { offers: free, ..batch }).await?.into_iter();
    let answer = |busy| if busy { Answer::Busy } else { seen.next().expect("each offer has its answer") };
    Ok(busy.into_iter().map(answer).collect())
}

/// Offers in few words, for readers of traces.
struct Offers<'a>(&'a Batch);

impl std::fmt::Display for Offers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for offer in &self.0.offers {
            write!(f, "[{} e{} head {}", offer.run, offer.epoch, offer.head)?;
            for row in &offer.rows {
                write!(f, " {}..={}{}", row.from, row.to, if row.intent { " intent" } else { "" })?;
            }
            match &offer.then {
                Some(Then::Evict { reason, .. }) => write!(f, " evict ({reason})")?,
                Some(Then::Release) => write!(f, " release")?,
                Some(Then::Hold { reason, .. }) => write!(f, " hold ({reason})")?,
                Some(Then::Finish { state, .. }) => write!(f, " finish {state:?}")?,
                None => {}
            }
            write!(f, "]")?;
        }
        Ok(())
    }
}

#[async_trait]
impl Journal for SimStore {
    fn beside(&self) -> Option<usize> {
        self.world.swarm.beside
    }

    async fn submit(&self, runs: Vec<NewRun>) -> Result<Vec<Submitted>> {
        let what = runs.len();
        self.op(Call::Submit, what, |world| Box::pin(async move { world.memory.submit(runs).await })).await
    }

    async fn submit_in(&self, transaction: &mut Business, run: NewRun) -> Result<Submitted> {
        // A part of the operation that carries the transaction.
        self.world.memory.submit_in(transaction, run).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Grant>> {
        let (node, leased) = (self.node.serial, self.node.lease_good());
        let grants = self
            .op(Call::Claim, claim.limit, move |world| {
                Box::pin(async move {
                    let mut grants = world.memory.claim(claim).await?;
                    for grant in &mut grants {
                        grant.doubt = world.doubt(grant.run, grant.epoch);
                        let recording = world.memory.durable(grant.run).map(|stored| stored.recording);
                        if let Some(recording) = &recording {
                            world.log(crate::store::look(grant.run, recording));
                        }
                        let done = recording.map(|recording| done(grant.run, &recording)).unwrap_or_default();
                        let (run, epoch, deaths) = (grant.run, grant.epoch, grant.deaths);
                        world.log(Event::Claimed { run, epoch, node, leased, deaths, done });
                    }
                    Ok(grants)
                })
            })
            .await?;
        for grant in &grants {
            self.world.grant(self.node.serial, grant.run, grant.epoch);
        }
        Ok(grants)
    }

    async fn restore(&self, incarnation: Incarnation, grants: &[Grant]) -> Result<Vec<Restored>> {
        let grants = grants.to_vec();
        self.op(Call::Restore, grants.len(), move |world| {
            Box::pin(async move { world.memory.restore(incarnation, &grants).await })
        })
        .await
    }

    async fn append(&self, batch: Batch) -> Result<Vec<Answer>> {
        let places: Vec<_> = batch.offers.iter().map(|offer| (offer.run, offer.epoch)).collect();
        for (run, epoch) in &places {
            let alone = self.away.lock().expect("nobody panics under it").insert((*run, *epoch));
            assert!(alone, "{run} is in two batches at once");
        }
        let (call, what) = (call_of(&batch), Offers(&batch).to_string());
        let answers = self
            .op(call, what, move |world| {
                Box::pin(async move {
                    let offers = batch.offers.clone();
                    let answers = unless_busy(&world, call, batch).await?;
                    for (offer, answer) in offers.iter().zip(&answers) {
                        let Answer::Seen(seen) = answer else { continue };
                        let (run, epoch) = (offer.run, offer.epoch);
                        if let Some(last) = offer.rows[..seen.rows].last() {
                            let facts = offered(run, epoch, &offer.rows[..seen.rows]);
                            let entries = entries(run, epoch, &offer.rows[..seen.rows]);
                            let (from, to) = (offer.head, last.to);
                            world.log(Event::Appended { run, epoch, from, to, facts });
                            world.log(Event::Recorded { run, to, entries });
                        }
                        match &offer.then {
                            Some(Then::Finish { state, .. }) if seen.then => world.log(Event::Ended { run, state: *state }),
                            Some(Then::Hold { reason, .. }) if seen.then => {
                                world.log(Event::Held { run, reason: reason.clone() });
                            }
                            _ => {}
                        }
                    }
                    Ok(answers)
                })
            })
            .await;
        self.away.lock().expect("nobody panics under it").retain(|place| !places.contains(place));
        let answers = answers?;
        let node = self.node.serial;
        for ((run, epoch), answer) in places.into_iter().zip(&answers) {
            if let Answer::Seen(seen) = answer {
                self.world.note(format_args!("node {node} {run} e{epoch} told {seen:?}"));
                if !seen.mine || (seen.cancel && !seen.then) {
                    self.world.log(Event::Stopped { node, run, epoch });
                }
            }
        }
        Ok(answers)
    }

    fn business(&self) -> Option<BusinessKind> {
        self.world.memory.business()
    }

    async fn transact(&self, hold: Hold, work: Work) -> Result<Transacted> {
        self.transact_run(hold, work).await
    }

    async fn fold(&self, fold: Fold) -> Result<Folded> {
        let what = format!("{} e{} {}..={}", fold.run, fold.epoch, fold.base, fold.seq);
        self.op(Call::Fold, what, move |world| {
            Box::pin(async move {
                let (run, epoch, seq) = (fold.run, fold.epoch, fold.seq);
                if world.locks.is_held(run) {
                    world.met(Call::Fold, Fault::Busy);
                    return Ok(Folded::Busy);
                }
                let folded = world.memory.fold(fold).await?;
                world.log(Event::Folded { run, epoch, seq, folded });
                if folded == Folded::Done
                    && let Some(stored) = world.memory.read(run).await?
                {
                    world.log(crate::store::look(run, &stored.recording));
                }
                Ok(folded)
            })
        })
        .await
    }

    async fn parts(&self, run: RunId, ids: &[u64]) -> Result<Vec<StoredPart>> {
        let ids = ids.to_vec();
        self.op(Call::Parts, run, move |world| Box::pin(async move { world.memory.parts(run, &ids).await })).await
    }

    async fn cancel(&self, run: RunId, outcome: Sealed, at: Wall) -> Result<Cancelled> {
        self.op(Call::Cancel, run, move |world| {
            Box::pin(async move {
                let answer = world.memory.cancel(run, outcome, at).await?;
                match answer {
                    Cancelled::Asked => world.log(Event::CancelAsked { run }),
                    Cancelled::Done => {
                        world.log(Event::CancelAsked { run });
                        world.log(Event::Ended { run, state: RunState::Cancelled });
                    }
                    Cancelled::Ended(_) | Cancelled::NotFound => {}
                }
                Ok(answer)
            })
        })
        .await
    }

    async fn verdict(&self, verdict: NewVerdict) -> Result<VerdictAnswer> {
        let what = format!("{} intent {} {:?}", verdict.run, verdict.intent, verdict.origin);
        self.op(Call::Verdict, what, |world| {
            Box::pin(async move {
                let (run, intent) = (verdict.run, verdict.intent);
                let answer = world.memory.verdict(verdict).await?;
                world.note(format_args!("verdict on {run} intent {intent}: {answer:?}"));
                Ok(answer)
            })
        })
        .await
    }

    async fn attend(&self, incarnation: Incarnation) -> Result<Vec<Attention>> {
        self.op(Call::Attend, "", move |world| Box::pin(async move { world.memory.attend(incarnation).await })).await
    }

    async fn vouch(&self, vouched: Vec<Vouched>) -> Result<Vec<Lacking>> {
        self.world.memory.vouch(vouched).await
    }

    async fn sweep(&self, before: Wall, limit: usize) -> Result<usize> {
        self.op(Call::Sweep, "", move |world| Box::pin(async move { world.memory.sweep(before, limit).await })).await
    }
}

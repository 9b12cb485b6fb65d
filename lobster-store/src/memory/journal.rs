//! The journal of the memory tier.
//!
//! Invariant: `append` decides by [`decide`] alone, so this tier cannot have a fence of its own.

use super::{
    Memory,
    business::{MOST, MemoryTx},
    state::{Folding, Hot, Run, State},
    strict,
};
use crate::contract::{
    Answer, Attention, Batch, Business, BusinessKind, Cancelled, Claim, FORKED, Fold, Folded, Grant, Hold, Incarnation, Journal,
    Lacking, NewRun, NewVerdict, NodeState, Offer, Recording, Restored, Result, RunId, RunRow, RunState, Sealed, Seen, Seq,
    Snapshot, StoredPart, StoredRow, StoredVerdict, Submitted, Then, Transacted, VerdictAnswer, Vouched, Wall, Work, decide,
    decide_fold, limits,
};
use crate::planted;
use async_trait::async_trait;
use std::any::TypeId;
use std::{borrow::Cow, collections::BTreeMap};

#[async_trait]
impl Journal for Memory {
    fn beside(&self) -> Option<usize> {
        None
    }

    async fn submit(&self, runs: Vec<NewRun>) -> Result<Vec<Submitted>> {
        if self.strict {
            strict::runs(&runs)?;
        }
        let now = self.clock.wall();
        Ok(self.with(|state| runs.into_iter().map(|run| state.submit(run, now)).collect()))
    }

    async fn submit_in(&self, transaction: &mut Business, run: NewRun) -> Result<Submitted> {
        if self.strict {
            strict::runs(std::slice::from_ref(&run))?;
        }
        self.submit_run_in(transaction, run)
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Grant>> {
        Ok(self.with(|state| state.claim(&claim)))
    }

    async fn restore(&self, incarnation: Incarnation, grants: &[Grant]) -> Result<Vec<Restored>> {
        Ok(self.with(|state| grants.iter().map(|grant| state.restore(incarnation, grant)).collect()))
    }

    async fn append(&self, batch: Batch) -> Result<Vec<Answer>> {
        if self.strict {
            strict::batch(&batch)?;
        }
        Ok(self.with(|state| state.append(batch)))
    }

    fn business(&self) -> Option<BusinessKind> {
        Some(BusinessKind { of: TypeId::of::<MemoryTx>(), most: MOST })
    }

    async fn transact(&self, hold: Hold, work: Work) -> Result<Transacted> {
        self.transact_run(hold, work).await
    }

    async fn fold(&self, fold: Fold) -> Result<Folded> {
        if self.strict {
            strict::fold(&fold)?;
        }
        Ok(self.with(|state| state.fold(fold)))
    }

    async fn parts(&self, run: RunId, ids: &[u64]) -> Result<Vec<StoredPart>> {
        Ok(self.with(|state| {
            let parts = state.run(run).map(|run| &run.folding.parts);
            let part = |id: &u64| Some(StoredPart { id: *id, sealed: parts?.get(id)?.clone() });
            ids.iter().filter_map(part).collect()
        }))
    }

    async fn cancel(&self, run: RunId, outcome: Sealed, at: Wall) -> Result<Cancelled> {
        Ok(self.with(|state| state.cancel(run, outcome, at)))
    }

    async fn verdict(&self, verdict: NewVerdict) -> Result<VerdictAnswer> {
        Ok(self.with(|state| state.verdict(verdict)))
    }

    async fn attend(&self, incarnation: Incarnation) -> Result<Vec<Attention>> {
        Ok(self.with(|state| state.attend(incarnation)))
    }

    async fn vouch(&self, _vouched: Vec<Vouched>) -> Result<Vec<Lacking>> {
        Ok(Vec::new())
    }

    async fn sweep(&self, before: Wall, limit: usize) -> Result<usize> {
        Ok(self.with(|state| state.sweep(before, limit)))
    }
}

/// What the fence of a run looks like before its first claim.
const UNCLAIMED: RunRow = RunRow { owner: None, epoch: 0, state: RunState::Ready, tail: 0, mark: 0, cancel: false, wake: 0 };

/// The fence of a run as an append reads it: as it is.
fn misread<'a>(fence: &'a RunRow, offer: &Offer, incarnation: Incarnation) -> Cow<'a, RunRow> {
    if planted!("tail_not_compared") && fence.tail >= offer.head {
        return Cow::Owned(RunRow { tail: offer.head - 1, ..fence.clone() });
    }
    if planted!("epoch_not_compared") && fence.state == RunState::Running {
        return Cow::Owned(RunRow { owner: Some(incarnation), epoch: offer.epoch, ..fence.clone() });
    }
    if planted!("cancel_not_read") {
        return Cow::Owned(RunRow { cancel: false, ..fence.clone() });
    }
    Cow::Borrowed(fence)
}

impl State {
    /// The run that a submit finds in its place.
    pub(super) fn known(&self, new: &NewRun) -> Option<Submitted> {
        let of_key = new.key.as_deref().filter(|_| !planted!("key_not_compared")).and_then(|key| self.of_key(key));
        let id = of_key.unwrap_or(new.id);
        let run = self.run(id)?;
        // By name: a newer version of the task asks for the same run.
        Some(Submitted::Existing { id, same: run.task.task == new.task.task && run.digest == new.digest })
    }

    pub(super) fn submit(&mut self, new: NewRun, now: Wall) -> Submitted {
        if let Some(known) = self.known(&new) {
            return known;
        }
        let hot = Hot { fence: UNCLAIMED, seen: 0, attempts: 0, deaths: 0, due: new.due, reason: String::new(), ended: None };
        let run = Run {
            key: new.key,
            digest: new.digest,
            task: new.task,
            tags: new.tags,
            submitted: now,
            input: new.input,
            deltas: Vec::new(),
            folding: Folding::default(),
            verdicts: BTreeMap::new(),
            hot,
        };
        self.insert(new.id, run);
        self.sync();
        self.stirred = true;
        Submitted::Created
    }

    fn claim(&mut self, claim: &Claim) -> Vec<Grant> {
        if !self.is_active(claim.incarnation) {
            return Vec::new();
        }
        let wanted = |id: RunId| {
            self.run(id).is_some_and(|run| {
                (run.hot.deaths >= limits::DEATHS_ALONE) == claim.alone
                    && claim.tasks.iter().any(|asked| asked.task == run.task.task && run.task.version <= asked.version)
            })
        };
        let ready = self.due(claim.now).filter(|(_, id)| wanted(*id)).take(claim.limit);
        let orphans = self.orphans().filter(|id| wanted(*id)).filter_map(|id| Some((self.run(id)?.hot.due, id)));
        let mut chosen: Vec<_> = ready.chain(orphans).collect();
        chosen.sort_unstable();
        chosen.truncate(claim.limit);
        if planted!("claim_unsynced") {
            chosen.iter().for_each(|(_, id)| self.remember_run(*id));
        }
        let grants: Vec<_> = chosen.into_iter().filter_map(|(_, id)| self.grant(id, claim.incarnation)).collect();
        if !grants.is_empty() && !planted!("claim_unsynced") {
            self.sync();
        }
        grants
    }

    fn grant(&mut self, id: RunId, incarnation: Incarnation) -> Option<Grant> {
        self.change(id, |run| {
            let hot = &mut run.hot;
            hot.fence.owner = Some(incarnation);
            hot.fence.epoch += 1;
            hot.fence.state = RunState::Running;
            hot.attempts += 1;
            hot.seen = hot.fence.wake;
            hot.reason.clear();
            Grant {
                run: id,
                epoch: hot.fence.epoch,
                tail: hot.fence.tail,
                mark: hot.fence.mark,
                task: run.task.clone(),
                attempts: hot.attempts,
                deaths: hot.deaths,
                cancel: hot.fence.cancel,
                wake: hot.fence.wake,
                doubt: None,
            }
        })
    }

    fn restore(&self, incarnation: Incarnation, grant: &Grant) -> Restored {
        match self.run(grant.run) {
            Some(run)
                if run.hot.fence.state == RunState::Running
                    && run.hot.fence.owner == Some(incarnation)
                    && run.hot.fence.epoch == grant.epoch =>
            {
                Restored::Recording(run.recording())
            }
            _ => Restored::Fenced,
        }
    }

    fn append(&mut self, batch: Batch) -> Vec<Answer> {
        let mut locked = false;
        let answers = batch
            .offers
            .into_iter()
            .map(|offer| {
                locked |= self.run(offer.run).is_some();
                Answer::Seen(self.apply(batch.incarnation, batch.synced, offer))
            })
            .collect();
        // A synced batch writes each row it locked, whatever it decided. One that locked none writes and syncs nothing.
        if batch.synced && locked && !planted!("sync_writes_nothing") {
            self.sync();
        }
        answers
    }

    pub(super) fn apply(&mut self, incarnation: Incarnation, synced: bool, offer: Offer) -> Seen {
        let fence = self.run(offer.run).map(|run| misread(&run.hot.fence, &offer, incarnation));
        let seen = decide(fence.as_deref(), &offer, incarnation);
        if seen.rows == 0 && !seen.then {
            return seen;
        }
        if !synced {
            self.remember_run(offer.run);
        }
        self.stirred |= seen.then;
        self.change(offer.run, |run| {
            for row in offer.rows.into_iter().take(seen.rows) {
                let stored = |sealed| StoredRow { epoch: offer.epoch, from: row.from, to: row.to, sealed };
                run.deltas.extend(row.deltas.map(stored));
                run.folding.changes.extend(row.changes.map(stored));
            }
            run.hot.fence.tail = seen.tail;
            run.hot.fence.mark = seen.mark;
            if offer.progress && seen.rows > 0 {
                run.hot.attempts = 0;
                run.hot.deaths = 0;
            }
            if let Some(then) = offer.then.filter(|_| seen.then) {
                run.go_on(then);
            }
        });
        seen
    }

    fn fold(&mut self, fold: Fold) -> Folded {
        let run = self.run(fold.run);
        let snapshot = run.and_then(|run| run.folding.snapshot.as_ref()).map(|(seq, manifest)| (*seq, manifest.crc));
        let fence = run.map(|run| &run.hot.fence);
        let fence = match fence {
            Some(fence) if planted!("fold_not_fenced") => Some(Cow::Owned(RunRow {
                owner: Some(fold.incarnation),
                epoch: fold.epoch,
                state: RunState::Running,
                ..fence.clone()
            })),
            Some(fence) if planted!("fold_of_what_is_not_there") => Some(Cow::Owned(RunRow { tail: Seq::MAX, ..fence.clone() })),
            fence => fence.map(Cow::Borrowed),
        };
        let answer = decide_fold(fence.as_deref(), snapshot, &fold);
        if answer != Folded::Done {
            return answer;
        }
        self.remember_folding(fold.run);
        self.change(fold.run, |run| {
            let folding = &mut run.folding;
            let covered = if planted!("fold_drops_what_follows") { Seq::MAX } else { fold.seq };
            folding.changes.retain(|row| row.to > covered);
            if !planted!("parts_not_dropped") {
                fold.dropped.iter().for_each(|id| _ = folding.parts.remove(id));
            }
            folding.parts.extend(fold.parts.into_iter().map(|part| (part.id, part.sealed)));
            folding.snapshot = Some((fold.seq, fold.manifest));
        });
        answer
    }

    fn cancel(&mut self, id: RunId, outcome: Sealed, at: Wall) -> Cancelled {
        let answer = self.change(id, |run| match run.hot.fence.state {
            state if state.ended() => Cancelled::Ended(state),
            RunState::Running => {
                run.hot.fence.cancel = true;
                run.hot.fence.wake += 1;
                Cancelled::Asked
            }
            _ => {
                run.hot.fence.cancel = true;
                run.end(RunState::Cancelled, outcome, at);
                Cancelled::Done
            }
        });
        match answer {
            None => return Cancelled::NotFound,
            Some(Cancelled::Ended(_)) => self.sync_end(id),
            Some(_) => {
                self.sync();
                self.stirred = true;
            }
        }
        answer.unwrap_or(Cancelled::NotFound)
    }

    fn verdict(&mut self, new: NewVerdict) -> VerdictAnswer {
        let answer = self.change(new.run, |run| {
            let hot = &mut run.hot;
            if hot.fence.state.ended() {
                return VerdictAnswer::Ended;
            }
            if hot.fence.tail != new.tail {
                return VerdictAnswer::Moved;
            }
            if run.verdicts.contains_key(&new.intent) {
                return VerdictAnswer::Exists;
            }
            run.verdicts.insert(new.intent, new.fate);
            hot.fence.wake += 1;
            match hot.fence.state {
                RunState::Held if !hot.reason.starts_with(FORKED) => {
                    hot.fence.state = RunState::Ready;
                    hot.due = new.at;
                    hot.reason.clear();
                }
                RunState::Ready => hot.due = hot.due.min(new.at),
                _ => {}
            }
            VerdictAnswer::Accepted
        });
        match answer {
            Some(VerdictAnswer::Accepted) => {
                self.sync();
                self.stirred = true;
            }
            Some(VerdictAnswer::Ended) => self.sync_end(new.run),
            _ => {}
        }
        answer.unwrap_or(VerdictAnswer::NotFound)
    }

    fn attend(&self, incarnation: Incarnation) -> Vec<Attention> {
        let mine = self.owned_by(incarnation).filter_map(|id| Some((id, &self.run(id)?.hot)));
        mine.filter(|(_, hot)| hot.fence.cancel || hot.fence.wake > hot.seen)
            .map(|(run, hot)| Attention { run, epoch: hot.fence.epoch, cancel: hot.fence.cancel, wake: hot.fence.wake })
            .collect()
    }

    fn sweep(&mut self, before: Wall, limit: usize) -> usize {
        let gone: Vec<_> = self.ended_before(before).take(limit).collect();
        for id in &gone {
            self.remove(*id);
        }
        let named = |incarnation: &Incarnation| self.owns(*incarnation);
        let idle: Vec<_> = self
            .nodes
            .iter()
            .filter(|(incarnation, node)| node.state != NodeState::Active && !named(incarnation))
            .map(|(incarnation, _)| *incarnation)
            .collect();
        for incarnation in &idle {
            self.nodes.remove(incarnation);
        }
        if !gone.is_empty() || !idle.is_empty() {
            self.sync();
        }
        gone.len()
    }
}

impl Run {
    pub(super) fn recording(&self) -> Recording {
        self.recording_of(&self.hot, self.deltas.clone(), &self.folding)
    }

    /// The recording, with these versions of what changes.
    pub(super) fn recording_of(&self, hot: &Hot, deltas: Vec<StoredRow>, folding: &Folding) -> Recording {
        let verdicts = self.verdicts.iter().map(|(intent, fate)| StoredVerdict { intent: *intent, fate: fate.clone() });
        let parts = folding.parts.iter().map(|(id, sealed)| StoredPart { id: *id, sealed: sealed.clone() });
        Recording {
            input: self.input.clone(),
            snapshot: folding.snapshot.as_ref().map(|(seq, manifest)| Snapshot {
                seq: *seq,
                manifest: manifest.clone(),
                parts: parts.collect(),
            }),
            deltas,
            changes: folding.changes.clone(),
            verdicts: verdicts.collect(),
            tail: hot.fence.tail,
            mark: hot.fence.mark,
        }
    }

    /// Applies what becomes of the run after its rows.
    fn go_on(&mut self, then: Then) {
        self.hot.fence.owner = None;
        match then {
            Then::Evict { due, reason, wake: _ } => {
                self.hot.fence.state = RunState::Ready;
                self.hot.due = due;
                self.hot.reason = reason;
                self.give_attempt_back();
            }
            Then::Release => {
                self.hot.fence.state = RunState::Ready;
                self.give_attempt_back();
            }
            Then::Hold { reason, wake: _ } => {
                self.hot.fence.state = RunState::Held;
                self.hot.reason = reason;
            }
            Then::Finish { state, outcome, at } => self.end(state, outcome, at),
        }
    }
}

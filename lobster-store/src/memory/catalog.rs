//! Reads of the memory tier.
//!
//! Invariant: an end is synced before it is told.

use super::{
    Memory,
    state::{Hot, Run, State},
};
use crate::contract::{Catalog, Ended, Result, RunFilter, RunId, RunSummary, Stored};
use async_trait::async_trait;

#[async_trait]
impl Catalog for Memory {
    async fn find(&self, key: &str) -> Result<Option<RunId>> {
        Ok(self.with(|state| state.of_key(key)))
    }

    async fn list(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>> {
        Ok(self.with(|state| state.matching(&filter).take(limit).map(|(id, run)| run.summary(id, &run.hot)).collect()))
    }

    async fn count(&self, filter: RunFilter) -> Result<u64> {
        Ok(self.with(|state| state.matching(&filter).count() as u64))
    }

    async fn read(&self, run: RunId) -> Result<Option<Stored>> {
        Ok(self.with(|state| {
            let ended = state.tell_end(run)?;
            let stored = state.run(run)?;
            Some(Stored { summary: stored.summary(run, &stored.hot), recording: stored.recording(), ended })
        }))
    }

    async fn outcomes(&self, runs: &[RunId]) -> Result<Vec<Option<Option<Ended>>>> {
        Ok(self.with(|state| runs.iter().map(|id| state.tell_end(*id)).collect()))
    }
}

impl State {
    fn matching<'a>(&'a self, filter: &'a RunFilter) -> impl Iterator<Item = (RunId, &'a Run)> {
        self.runs_after(filter.after).filter(|(_, run)| {
            filter.task.as_ref().is_none_or(|task| *task == run.task.task)
                && (filter.states.is_empty() || filter.states.contains(&run.hot.fence.state))
                && filter.tags.iter().all(|tag| run.tags.contains(tag))
                && filter.since.is_none_or(|since| run.submitted >= since)
        })
    }

    /// The run as a crash would leave it.
    pub(super) fn durable(&self, id: RunId) -> Option<Stored> {
        let (run, hot, deltas, folding) = self.synced(id)?;
        let recording = run.recording_of(hot, deltas, &folding);
        let ended = hot.ended.as_ref().map(|(_, outcome)| Ended { state: hot.fence.state, outcome: outcome.clone() });
        Some(Stored { summary: run.summary(id, hot), recording, ended })
    }

    fn tell_end(&mut self, id: RunId) -> Option<Option<Ended>> {
        let run = self.run(id)?;
        let state = run.hot.fence.state;
        let ended = run.hot.ended.as_ref().map(|(_, outcome)| Ended { state, outcome: outcome.clone() });
        if ended.is_some() {
            self.sync_end(id);
        }
        Some(ended)
    }
}

impl Run {
    fn summary(&self, id: RunId, hot: &Hot) -> RunSummary {
        RunSummary {
            id,
            key: self.key.clone(),
            digest: self.digest,
            task: self.task.clone(),
            tags: self.tags.clone(),
            state: hot.fence.state,
            reason: hot.reason.clone(),
            owner: hot.fence.owner,
            epoch: hot.fence.epoch,
            tail: hot.fence.tail,
            attempts: hot.attempts,
            deaths: hot.deaths,
            cancel: hot.fence.cancel,
            submitted: self.submitted,
            due: hot.due,
            ended: hot.ended.as_ref().map(|(at, _)| *at),
        }
    }
}

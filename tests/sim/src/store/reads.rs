//! Reads and hints, through the simulation.
//!
//! Invariant: a lost hint is a hint that nobody hears, never an error.

use super::SimStore;
use crate::swarm::Call;
use async_trait::async_trait;
use lobster_core::{
    RunId, RunSummary,
    store::contract::{Catalog, Ended, Result, RunFilter, Stored, Wake},
};

#[async_trait]
impl Catalog for SimStore {
    async fn find(&self, key: &str) -> Result<Option<RunId>> {
        let key = key.to_owned();
        self.op(Call::Read, "find", |world| Box::pin(async move { world.memory.find(&key).await })).await
    }

    async fn list(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>> {
        self.op(Call::Read, "list", move |world| Box::pin(async move { world.memory.list(filter, limit).await })).await
    }

    async fn count(&self, filter: RunFilter) -> Result<u64> {
        self.op(Call::Read, "count", |world| Box::pin(async move { world.memory.count(filter).await })).await
    }

    async fn read(&self, run: RunId) -> Result<Option<Stored>> {
        self.op(Call::Read, run, move |world| Box::pin(async move { world.memory.read(run).await })).await
    }

    async fn outcomes(&self, runs: &[RunId]) -> Result<Vec<Option<Option<Ended>>>> {
        let runs = runs.to_vec();
        self.op(Call::Read, "outcomes", |world| Box::pin(async move { world.memory.outcomes(&runs).await })).await
    }
}

#[async_trait]
impl Wake for SimStore {
    fn hint(&self) {
        if self.node.dead() {
            return;
        }
        self.memory().hint();
    }

    fn hints(&self) -> u64 {
        self.memory().hints()
    }

    async fn hinted(&self, seen: u64) -> u64 {
        loop {
            let hints = self.memory().hinted(seen).await;
            let deaf = self.world.swarm.deaf;
            if self.world.healed() || deaf == 0 || !self.world.faults().chance(deaf) {
                return hints;
            }
            // Unheard: the poll must find it. Nothing wakes this waiter until the next hint.
            self.memory().hinted(hints).await;
        }
    }

    fn stride(&self) -> u32 {
        1
    }
}

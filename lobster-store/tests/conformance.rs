//! The memory tier keeps the contract: the whole suite, with every check on the caller switched on.

use async_trait::async_trait;
use lobster_store::{
    Tiers,
    conformance::{Harness, TestClock},
    contract::{Clock, Incarnation},
    memory::Memory,
};
use std::{sync::Arc, time::Duration};

struct InMemory {
    clock: Arc<TestClock>,
    store: Arc<Memory>,
}

impl InMemory {
    fn fresh() -> Self {
        let clock = TestClock::new();
        Self { store: Memory::strict(clock.clone()), clock }
    }
}

#[async_trait]
impl Harness for InMemory {
    async fn open(&self) -> Tiers {
        Tiers::of(self.store.clone(), "memory")
    }
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
    async fn advance(&self, by: Duration) -> bool {
        self.clock.advance(by);
        true
    }
    async fn crash_store(&self) -> bool {
        self.store.crash_store();
        true
    }
    async fn kill(&self, _process: Tiers, incarnation: Incarnation) -> bool {
        self.store.kill(incarnation);
        true
    }
}

lobster_store::conformance!(InMemory::fresh());

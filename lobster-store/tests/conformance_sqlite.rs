//! The SQLite tier keeps the contract: the whole suite, each case on a file of its own.
#![cfg(feature = "sqlite")]

mod scratch;

use async_trait::async_trait;
use lobster_store::{
    Tiers,
    conformance::{Harness, TestClock},
    contract::{Clock, Incarnation},
    sqlite::Sqlite,
};
use scratch::Scratch;
use std::{sync::Arc, time::Duration};

struct OnFile {
    clock: Arc<TestClock>,
    dir: Scratch,
}

impl OnFile {
    fn fresh() -> Self {
        Self { clock: TestClock::new(), dir: Scratch::new() }
    }
}

#[async_trait]
impl Harness for OnFile {
    async fn open(&self) -> Tiers {
        let store = Sqlite::open(&self.dir.join("store.db"), self.clock.clone()).await;
        Tiers::of(store.expect("a file in a fresh directory can be opened"), "sqlite")
    }
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
    async fn advance(&self, by: Duration) -> bool {
        self.clock.advance(by);
        true
    }
    async fn crash_store(&self) -> bool {
        // The store is a library in its processes: it crashes with the host, and that takes them along.
        false
    }
    async fn kill(&self, process: Tiers, _incarnation: Incarnation) -> bool {
        // What a SIGKILL does to the locks, closing the files does too.
        drop(process);
        // Elsewhere nothing proves it.
        cfg!(all(target_os = "linux", not(lobster_portable)))
    }
}

#[cfg(all(target_os = "linux", not(lobster_portable)))]
lobster_store::conformance!(OnFile::fresh(); without crash_store);
#[cfg(not(all(target_os = "linux", not(lobster_portable))))]
lobster_store::conformance!(OnFile::fresh(); without crash_store kill);

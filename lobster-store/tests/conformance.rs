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

/// A case that nobody lists is never run: each one in the sources must stand in the list.
#[test]
fn every_case_is_in_the_list() {
    let cases = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance/cases");
    let list = std::fs::read_to_string(cases.join("mod.rs")).expect("the sources of this crate are here");
    let listed: std::collections::BTreeSet<_> = list.split_whitespace().collect();
    let mut found = 0;
    for file in std::fs::read_dir(&cases).expect("the sources of this crate are here") {
        let source = std::fs::read_to_string(file.expect("a listed file exists").path()).expect("sources are text");
        for name in source.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next()) {
            assert!(listed.contains(name), "the case {name} is not in the list");
            found += 1;
        }
    }
    assert!(found >= 200, "only {found} cases were found");
}

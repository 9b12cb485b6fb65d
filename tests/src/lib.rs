//! What several tests of the engine share: engines on either embedded store, and an outside world that counts.
//!
//! Invariant: helpers wait on signals, never on the clock.

#![allow(clippy::disallowed_methods, reason = "tests are applications: they may spawn and sleep")]

pub mod flaky;
pub mod world;

use lobster_core::{Builder, Lobster, Settings};
use std::{
    collections::BTreeMap,
    sync::{LazyLock, Mutex},
};
use tokio::sync::Notify;

/// Where an engine of a test keeps its runs.
pub struct Place {
    url: String,
    _folder: Option<tempfile::TempDir>,
}

impl Place {
    /// In memory: each engine has its own.
    pub fn memory() -> Self {
        Self { url: "memory:".into(), _folder: None }
    }
    /// In a SQLite file of its own.
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let url = format!("sqlite://{}", folder.path().join("runs.db").display());
        Self { url, _folder: Some(folder) }
    }
    /// A builder with the settings for tests.
    pub fn open(&self) -> Builder {
        Lobster::open(&self.url).settings(Settings::test())
    }
    /// The URL.
    pub fn url(&self) -> &str {
        &self.url
    }
}

static WORLDS: LazyLock<Mutex<BTreeMap<String, BTreeMap<String, u64>>>> = LazyLock::new(Mutex::default);
static HAPPENED: Notify = Notify::const_new();

/// Something happened in the world of a test; returns how often it has happened, this time included.
pub fn happen(world: &str, what: impl Into<String>) -> u64 {
    let mut worlds = WORLDS.lock().expect("no test panics under this lock");
    let count = worlds.entry(world.to_owned()).or_default().entry(what.into()).or_default();
    *count += 1;
    let now = *count;
    drop(worlds);
    HAPPENED.notify_waiters();
    now
}

/// How often it has happened.
pub fn happened(world: &str, what: &str) -> u64 {
    WORLDS.lock().expect("no test panics under this lock").get(world).and_then(|world| world.get(what)).copied().unwrap_or(0)
}

/// All that has happened.
pub fn all(world: &str) -> BTreeMap<String, u64> {
    WORLDS.lock().expect("no test panics under this lock").get(world).cloned().unwrap_or_default()
}

/// Waits until it has happened so often.
pub async fn until(world: &str, what: &str, count: u64) {
    loop {
        let mut notified = std::pin::pin!(HAPPENED.notified());
        notified.as_mut().enable();
        if happened(world, what) >= count {
            return;
        }
        notified.await;
    }
}

/// Writes tests once for both embedded stores: `on_both!(async fn a_sentence(place: Place) { .. })`.
#[macro_export]
macro_rules! on_both {
    ($($(#[$attribute:meta])* async fn $name:ident($place:ident) $body:block)*) => {$(
        $(#[$attribute])*
        mod $name {
            use super::*;
            async fn test($place: $crate::Place) $body
            #[tokio::test(flavor = "multi_thread")]
            async fn memory() {
                test($crate::Place::memory()).await;
            }
            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                test($crate::Place::sqlite()).await;
            }
        }
    )*};
}

/// The stores of a place, to be opened by several engines.
pub async fn tiers(place: &Place) -> lobster_store::Tiers {
    use lobster_store::{Tiers, memory::Memory, sqlite::Sqlite};
    use std::{path::Path, sync::Arc};
    let clock = Arc::new(lobster_core::OsHost::current().expect("tests run inside a runtime"));
    match place.url().strip_prefix("sqlite://") {
        Some(path) => Tiers::of(Sqlite::open(Path::new(path), clock).await.expect("the file can be opened"), "sqlite"),
        None => Tiers::of(Memory::new(clock), "memory"),
    }
}

//! What several tests of the engine share: engines on either embedded store, and an outside world that counts.
//!
//! Invariant: helpers wait on signals, never on the clock.

#![allow(clippy::disallowed_methods, reason = "tests are applications: they may spawn and sleep")]

pub mod flaky;
pub mod steered;
pub mod world;

use lobster_core::{Builder, Client, Lobster, OsHost, Reason, RunId, Settings};
use lobster_store::{Tiers, memory::Memory, sqlite::Sqlite};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, LazyLock, Mutex},
};
use tokio::sync::{Notify, OnceCell};

/// Where an engine of a test keeps its runs.
pub struct Place {
    url: String,
    /// In a file: beside the ones that its engines open by URL, for whoever looks on.
    tiers: OnceCell<Tiers>,
    folder: Option<tempfile::TempDir>,
}

impl Place {
    /// In memory: one for all engines of the place. Inside a runtime.
    pub fn memory() -> Self {
        let tiers = Tiers::of(Memory::new(clock()), "memory");
        Self { url: "memory:".into(), tiers: OnceCell::new_with(Some(tiers)), folder: None }
    }
    /// In a SQLite file of its own.
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let url = format!("sqlite://{}", folder.path().join("runs.db").display());
        Self { url, tiers: OnceCell::new(), folder: Some(folder) }
    }
    /// In a database of its own, on the shared server of the tests.
    pub fn postgres() -> Self {
        // A folder of its own for proofs of death, so that tests do not look at each other's processes.
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let url = format!("{}?lobster_local_path={}", lobster_servers::shared::postgres(), folder.path().display());
        Self { url, tiers: OnceCell::new(), folder: Some(folder) }
    }
    /// A builder with the settings for tests.
    pub fn open(&self) -> Builder {
        let builder = Lobster::open(&self.url).settings(Settings::test());
        match (&self.folder, self.tiers.get()) {
            (None, Some(tiers)) => builder.tiers(tiers.clone()),
            _ => builder,
        }
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

fn clock() -> Arc<OsHost> {
    Arc::new(OsHost::current().expect("tests run inside a runtime"))
}

/// The stores in a file.
pub async fn stores_in(file: &Path) -> Tiers {
    Tiers::of(Sqlite::open(file, clock()).await.expect("the file can be opened"), "sqlite")
}

/// The stores of a place, to be opened by several engines, or to look on.
pub async fn tiers(place: &Place) -> Tiers {
    let file = || place.url().strip_prefix("sqlite://").expect("a place that is not in memory is in a file");
    place.tiers.get_or_init(async || stores_in(Path::new(file())).await).await.clone()
}

/// Looks, and looks again at every hint of the store, until there is something to see.
///
/// A living store hints at whatever becomes of a run (ready, held, ended), at revocations and at what is asked for, after it was
/// committed; only a process killed between the two hints at nothing. A claim is no such thing.
pub async fn eventually<T>(tiers: &Tiers, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    loop {
        // Counted before the look: what comes after it is not missed.
        let hints = tiers.wake.hints();
        if let Some(seen) = look().await {
            return seen;
        }
        tiers.wake.hinted(hints).await;
    }
}

/// Waits until a run is held; returns why.
pub async fn held(place: &Place, client: &Client, run: RunId) -> String {
    eventually(&tiers(place).await, async || match client.why_not_running(run).await.expect("the store answers") {
        Some(Reason::Held(why)) => Some(why),
        _ => None,
    })
    .await
}

//! What several tests of the engine share: engines on every store, and an outside world that counts.
//!
//! Invariant: helpers wait on signals, never on the clock.

#![allow(clippy::disallowed_methods, reason = "tests are applications: they may spawn and sleep")]

pub mod flaky;
pub mod process;
pub mod steered;
pub mod world;

use lobster_core::{Builder, Client, Lobster, OsHost, Reason, RunId, Settings};
use lobster_servers::shared;
use lobster_store::{
    Tiers,
    memory::Memory,
    postgres::{self, Options, Postgres},
    sqlite::Sqlite,
};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, LazyLock, Mutex},
};
use tokio::sync::{Notify, OnceCell};

/// Where an engine of a test keeps its runs.
pub struct Place {
    url: String,
    database: String,
    /// Of a store with a URL: beside the ones that its engines open by it, for whoever looks on.
    tiers: OnceCell<Tiers>,
    folder: Option<tempfile::TempDir>,
}

impl Place {
    /// In memory: one for all engines of the place. Inside a runtime.
    pub fn memory() -> Self {
        let tiers = Tiers::of(Memory::new(clock()), "memory");
        let url = || "memory:".to_owned();
        Self { database: url(), url: url(), tiers: OnceCell::new_with(Some(tiers)), folder: None }
    }
    /// In a SQLite file of its own.
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let url = format!("sqlite://{}", folder.path().join("runs.db").display());
        Self { database: url.clone(), url, tiers: OnceCell::new(), folder: Some(folder) }
    }
    /// In a PostgreSQL database of its own.
    pub fn postgres() -> Self {
        Self::postgres_at(&shared::postgres())
    }
    /// In a database of whatever server, or of one behind a proxy, that the URL of a superuser names: as a role that may do no more than a
    /// worker, by the pooler if the run has one, with a directory of its own for proofs of death. The same again is another host's view of
    /// it, which has no proofs of death of this one's.
    pub fn postgres_at(database: &str) -> Self {
        let schema = [postgres::sql(postgres::SCHEMA, 0), postgres::roles(postgres::SCHEMA)].concat();
        let way = shared::by_the_pooler(&shared::as_member(database, "lobster_worker", &schema));
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mark = if way.contains('?') { '&' } else { '?' };
        let url = format!("{way}{mark}lobster_local_path={}", folder.path().display());
        Self { database: database.to_owned(), url, tiers: OnceCell::new(), folder: Some(folder) }
    }
    /// With one more parameter for the engine. Of a place on a server.
    pub fn with(self, parameter: &str) -> Self {
        Self { url: format!("{}&{parameter}", self.url), ..self }
    }
    /// A builder with the settings for tests.
    pub fn open(&self) -> Builder {
        let builder = Lobster::open(&self.url).settings(Settings::test());
        match (&self.folder, self.tiers.get()) {
            (None, Some(tiers)) => builder.tiers(tiers.clone()),
            _ => builder,
        }
    }
    /// The URL, with what it says to an engine.
    pub fn url(&self) -> &str {
        &self.url
    }
    /// The file, or the database on its server as its superuser names it: for whoever looks without an engine.
    pub fn database(&self) -> &str {
        &self.database
    }
    /// The folder of its files; nothing in memory has one.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(tempfile::TempDir::path)
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

/// Writes tests once for all stores: `on_each!(async fn a_sentence(place) { .. })`; with `on one thread:` before them, for tests that
/// decide who goes on.
#[macro_export]
macro_rules! on_each {
    (on one thread: $($tests:tt)*) => {
        $crate::on_each! { @"current_thread" $($tests)* }
    };
    (@$flavor:tt $($(#[$attribute:meta])* async fn $name:ident($place:ident) $body:block)*) => {$(
        $(#[$attribute])*
        mod $name {
            use super::*;
            async fn test($place: $crate::Place) $body
            #[tokio::test(flavor = $flavor)]
            async fn memory() {
                test($crate::Place::memory()).await;
            }
            #[tokio::test(flavor = $flavor)]
            async fn sqlite() {
                test($crate::Place::sqlite()).await;
            }
            #[tokio::test(flavor = $flavor)]
            async fn postgres() {
                test($crate::Place::postgres()).await;
            }
        }
    )*};
    ($($tests:tt)*) => {
        $crate::on_each! { @"multi_thread" $($tests)* }
    };
}

/// Writes tests once for the stores that several processes share, without a runtime: `on_shared!(fn a_sentence(store) { .. })`, where
/// `store()` is a new [`Place`].
#[macro_export]
macro_rules! on_shared {
    ($($(#[$attribute:meta])* fn $name:ident($place:ident) $body:block)*) => {$(
        $(#[$attribute])*
        mod $name {
            use super::*;
            fn test($place: fn() -> $crate::Place) $body
            #[test]
            fn sqlite() {
                test($crate::Place::sqlite);
            }
            #[test]
            fn postgres() {
                test($crate::Place::postgres);
            }
        }
    )*};
}

fn clock() -> Arc<OsHost> {
    Arc::new(OsHost::current().expect("tests run inside a runtime"))
}

/// The stores that a URL names.
pub async fn stores_of(url: &str) -> Tiers {
    match url.strip_prefix("sqlite://") {
        Some(file) => Tiers::of(Sqlite::open(Path::new(file), clock()).await.expect("the file can be opened"), "sqlite"),
        None => {
            let options = Options::from_url(url).expect("a place that is not in memory or in a file is on a server");
            Tiers::of(Postgres::open(options, clock()).await.expect("the database can be opened"), "postgres")
        }
    }
}

/// The stores of a place, to be opened by several engines, or to look on.
pub async fn tiers(place: &Place) -> Tiers {
    place.tiers.get_or_init(|| stores_of(place.url())).await.clone()
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

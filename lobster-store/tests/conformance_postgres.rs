//! The PostgreSQL tier keeps the contract: the whole suite, each case in a database of its own, or on a server of its own where the
//! store has to crash.
#![cfg(feature = "postgres")]

use async_trait::async_trait;
use lobster_servers::{
    postgres::{self as server, Durability},
    shared,
};
use lobster_store::{
    Tiers,
    conformance::Harness,
    contract::{Boot, Clock, Incarnation, Wall},
    postgres::{Options, Postgres},
};
use std::{sync::Arc, thread, time::Duration};
use tempfile::TempDir;

/// The clock of this host. The server has its own.
#[derive(Debug)]
struct HostClock;

impl Clock for HostClock {
    fn boot(&self) -> Boot {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).expect("no boot is in the future");
        Boot(Duration::new(seconds, u32::try_from(now.tv_nsec).expect("under a second")))
    }
    fn wall(&self) -> Wall {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Wall(now.tv_sec * 1000 + now.tv_nsec / 1_000_000)
    }
}

struct OnServer {
    url: String,
    local: TempDir,
    /// A server that may crash, with the cases that want it to.
    own: Option<server::Postgres>,
}

impl OnServer {
    fn fresh() -> Self {
        // A test's thread has its name: these cases crash the store, and other tests shall not notice.
        let crashes = thread::current().name().is_some_and(|name| name.starts_with("crash_store::"));
        let own = crashes.then(|| server::Postgres::start(Durability::Full).expect("a private server can be started"));
        let url = own.as_ref().map_or_else(shared::postgres, server::Postgres::fresh_database);
        Self { url, own, local: tempfile::tempdir().expect("a directory can be made") }
    }
}

#[async_trait]
impl Harness for OnServer {
    async fn open(&self) -> Tiers {
        let options =
            Options::from_url(&self.url).expect("the URL of a test's server").local_path(self.local.path()).connections(4);
        let store = Postgres::open(options, Arc::new(HostClock)).await;
        Tiers::of(store.expect("a fresh database can be opened"), "postgres")
    }
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(HostClock)
    }
    async fn advance(&self, _by: Duration) -> bool {
        false
    }
    async fn crash_store(&self) -> bool {
        let Some(own) = &self.own else { return false };
        own.kill();
        own.start_again();
        true
    }
    async fn kill(&self, process: Tiers, _incarnation: Incarnation) -> bool {
        // What a SIGKILL does to the locks, closing the files does too.
        drop(process);
        true
    }
}

lobster_store::conformance!(OnServer::fresh(); without advance);

//! The PostgreSQL tier keeps the contract: the whole suite, each case in a database of its own, or on a server of its own where the
//! store has to crash. As a role that may do no more than a worker, once at the server, once behind PgBouncer.
#![cfg(feature = "postgres")]

use async_trait::async_trait;
use lobster_servers::{
    pgbouncer::PgBouncer,
    postgres::{self as server, Durability},
    shared,
};
use lobster_store::{
    Tiers,
    conformance::Harness,
    contract::{Boot, Clock, Incarnation, Wall},
    postgres::{self, Options, Postgres},
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
    options: Options,
    _local: TempDir,
    /// A server that may crash, with the cases that want it to.
    own: Option<server::Postgres>,
    _pooler: Option<PgBouncer>,
}

impl OnServer {
    /// A test's thread has its name.
    fn is(word: &str) -> bool {
        thread::current().name().is_some_and(|name| name.contains(word))
    }

    /// For a role with the rights of a worker, which somebody else gave it. Cases that crash the store have a server of their own, so that
    /// other tests do not notice.
    fn database() -> (Option<server::Postgres>, String) {
        let crashes = Self::is("crash_store::");
        let own = crashes.then(|| server::Postgres::start(Durability::Full).expect("a private server can be started"));
        let url = own.as_ref().map_or_else(shared::postgres, server::Postgres::fresh_database);
        let schema = [postgres::sql(postgres::SCHEMA, 0), postgres::roles(postgres::SCHEMA)].concat();
        let worker = shared::as_member(&url, "lobster_worker", &schema);
        (own, worker)
    }

    fn new(own: Option<server::Postgres>, url: &str, pooler: Option<PgBouncer>) -> Self {
        let local = tempfile::tempdir().expect("a directory can be made");
        let options = Options::from_url(url).expect("the URL of a test's server");
        let options = options.local_path(local.path()).connections(4);
        Self { options, _local: local, own, _pooler: pooler }
    }

    fn direct() -> Self {
        let (own, url) = Self::database();
        Self::new(own, &url, None)
    }

    /// Behind a pooler in transaction mode. Hints of others, and the lease, take another way only in the cases about them: everything else
    /// does without.
    fn pooled() -> Self {
        let (own, url) = Self::database();
        let (host, _) = url.rsplit_once('/').expect("it has a database");
        let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("it has a port");
        let pooler = PgBouncer::before(port).expect("PgBouncer can be started");
        let mut pooled = Self::new(own, &shared::behind(&pooler.url(""), &url), Some(pooler));
        // When its server is there again, a pooler says for another second that it is not.
        pooled.options = pooled.options.wait(Duration::from_secs(20));
        if Self::is("hint") || Self::is("renew") {
            pooled.options = pooled.options.direct(&url).expect("the URL of a test's server");
        }
        pooled
    }
}

#[async_trait]
impl Harness for OnServer {
    async fn open(&self) -> Tiers {
        let store = Postgres::open(self.options.clone(), Arc::new(HostClock)).await;
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

mod direct {
    use super::*;

    lobster_store::conformance!(OnServer::direct(); without advance);
}

mod pooled {
    use super::*;

    lobster_store::conformance!(OnServer::pooled(); without advance);
}

//! The PostgreSQL tier: one schema, any number of processes on any number of hosts.
//!
//! Invariant: every change of a run is one statement that is decided on the run's locked row, or a transaction that locks it first.
//!
//! Statements that commit by themselves say how they commit (`set_config('synchronous_commit', .., true)` within the statement), so that
//! one connection serves relaxed and synced calls, behind a pooler too. Tables are named with their schema, never by a search path.

mod append;
mod business;
mod catalog;
mod claim;
mod failure;
mod fold;
mod journal;
mod members;
mod newest;
mod one;
mod options;
mod planted;
mod pool;
mod promoted;
mod recording;
mod revoke;
mod roles;
mod schema;
mod sql;
mod submit;
mod sweep;
mod times;
mod wake;

pub use business::PgTx;
pub use options::{Options, SCHEMA};
pub use roles::{Role, roles};
pub use schema::sql;

use crate::{
    contract::{Clock, Failed, Incarnation, Result, Wake, Wall, limits},
    local,
};
use failure::Stage;
use sqlx::postgres::{PgArguments, PgRow};
use std::{
    collections::HashMap,
    fmt,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, RwLock, atomic::AtomicBool},
    time::Duration,
};
use times::SERVER_MS;

/// A store in one schema of a PostgreSQL database, shared by processes of any number of hosts.
///
/// Relaxed writes survive the death of the process, synced ones that of the server, and of its host if it is set up so. Leases are rows,
/// judged by the server's clock and by the watcher's own; on one host a lock in a file tells a dead process from a slow one.
///
/// ```no_run
/// use lobster_store::{Tiers, contract::{Clock, Result}, postgres::{Options, Postgres}};
/// # async fn tiers(clock: std::sync::Arc<dyn Clock>) -> Result<Tiers> {
/// let options = Options::from_url("postgres://worker@localhost/shop")?;
/// let label = options.to_string();
/// let store = Postgres::open(options, clock).await?;
/// Ok(Tiers::of(store, label))
/// # }
/// ```
pub struct Postgres {
    options: Options,
    /// Id of the schema.
    installation: String,
    clock: Arc<dyn Clock>,
    pool: Arc<pool::Pool>,
    /// For batches alone: their statements stay prepared, and no read keeps one from leaving.
    batches: Arc<pool::Pool>,
    /// For business transactions alone: what their code leaves set in a session stays there, and they never keep a batch from leaving.
    business: pool::Pool,
    /// `synchronous_commit` of synced statements.
    synced: &'static str,
    /// `application_name` of this store's connections.
    connections: String,
    local: Option<local::Nodes>,
    members: RwLock<HashMap<Incarnation, members::Mine>>,
    lease: members::Line,
    newest: Arc<newest::Newest>,
    promoted: promoted::Promoted,
    unsure: submit::Unsure,
    hints: Arc<wake::Hints>,
    times: times::Times,
    /// Statements of batches, as they are sent.
    appends: Arc<append::Texts>,
    /// Were they planned once?
    prepared: AtomicBool,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Time between two tries to reach a server that is waited for.
const TRY: Duration = Duration::from_millis(200);

impl Postgres {
    /// Opens the store; creates or migrates its schema if needed and allowed. Safe from many processes at once.
    ///
    /// # Errors
    /// [`Failed::Unavailable`] if the server does not answer within [`Options::wait`], or is a standby; [`Failed::Refused`] if it does
    /// not let this role in, is too old, or is set up so that the fence would not hold, if a privilege is missing, or the schema is older
    /// and may not be migrated; [`Failed::NewerVersion`] if a newer binary migrated it. What was stored is left as it was.
    pub async fn open(options: Options, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        let schema::Installation { id: installation, synced, connections } = prepare(&options, &*clock).await?;
        let local = match local_dir(&options, &installation) {
            Ok(dir) => Some(local::Nodes::apart(dir)),
            Err(error) => {
                tracing::warn!(%error, "no directory for proofs of death: a restarted process will wait for the lease of its predecessor");
                None
            }
        };
        let newest = Arc::<newest::Newest>::default();
        let of_most = |most| pool::Pool::new(most, &options, &connections, newest.clone(), clock.clone());
        let pool = Arc::new(of_most(options.connections as usize).of_tier(&options));
        let batches = Arc::new(of_most(limits::BATCHES_ABREAST).of_tier(&options));
        let business = of_most(options.connections as usize);
        let hints = wake::Hints::new(&options, &connections, &newest, &pool).await;
        let lease = members::Line::new(&options, &connections, newest.clone(), clock.clone());
        let members = RwLock::default();
        let appends = Arc::new(append::Texts::new(&options.schema));
        let store = Arc::new(Self {
            options,
            installation,
            clock,
            pool,
            batches,
            business,
            synced,
            connections,
            local,
            members,
            lease,
            newest,
            promoted: promoted::Promoted::default(),
            unsure: submit::Unsure::default(),
            hints,
            times: times::Times::default(),
            appends,
            prepared: AtomicBool::new(false),
        });
        let before = store.clock.wall();
        let rows = store.read(&format!("SELECT {SERVER_MS}"), || sql::Args::default().done()).await?;
        store.told(before, rows.first(), 0)?;
        Ok(store)
    }

    /// Brings the schema to the version of this code, or creates it, whatever [`Options::migrate`] says, and opens nothing. Safe from many
    /// processes at once, and under those that use it; one that is up to date is left as it is.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn migrate(options: Options, clock: Arc<dyn Clock>) -> Result<()> {
        prepare(&options.migrate(true), &*clock).await.map(drop)
    }

    /// What the server's clock said, in this column of an answer to what was asked at `before`.
    fn told(&self, before: Wall, row: Option<&PgRow>, column: usize) -> Result<()> {
        if let Some(row) = row {
            self.times.told(before, sql::get(row, column)?, self.clock.wall());
        }
        Ok(())
    }

    /// Can a process of this role work with the store as it is? Looks at server, schema and rights, and writes nothing.
    ///
    /// # Errors
    /// As [`open`](Self::open) without waiting; [`Failed::Refused`] names every right that is missing.
    pub async fn verify(options: &Options, role: Role) -> Result<()> {
        schema::verify(options, role).await
    }

    /// Hints at a change that was committed.
    fn stir(&self) {
        Wake::hint(self);
    }

    /// A statement of this installation: `@` stands for its schema.
    fn text(&self, text: &str) -> String {
        schema::qualified(&planted::spoilt(text), &self.options.schema)
    }

    async fn read(&self, text: &str, args: impl Fn() -> PgArguments) -> Result<Vec<PgRow>> {
        self.pool.query(Stage::Read, &self.text(text), args).await
    }

    /// After reading what will be handed out as done: waits until it is as durable as a synced statement, if that is `unsure`. What a synced
    /// statement has committed the server shows once it is synced there; but a commit that waits for a standby ([`STANDBY`], read in the
    /// same statement) is shown without it when its session is ended.
    async fn barrier(&self, unsure: bool) -> Result<()> {
        if !unsure {
            return Ok(());
        }
        // A commit with a record of its own waits for everything before it. Nothing is lost without an answer.
        let read = |failed| match failed {
            Failed::Unknown(why) => Failed::Unavailable(why),
            failed => failed,
        };
        self.write(BARRIER, || sql::Args::default().with(self.synced).done()).await.map(drop).map_err(read)
    }

    async fn write(&self, text: &str, args: impl Fn() -> PgArguments) -> Result<Vec<PgRow>> {
        self.pool.query(Stage::Write, &self.text(text), args).await
    }
}

/// Looks at the server, and at the schema on it; waits for them as long as the options say.
async fn prepare(options: &Options, clock: &dyn Clock) -> Result<schema::Installation> {
    let began = clock.boot();
    loop {
        match schema::prepare(options).await {
            Err(Failed::Unavailable(why)) if clock.boot().since(began) < options.wait => {
                tracing::warn!(%why, place = %options, "the server is waited for");
                pause(TRY).await;
            }
            found => return found,
        }
    }
}

/// Do commits wait for a standby?
const STANDBY: &str = "current_setting('synchronous_standby_names') <> ''";

const BARRIER: &str = "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', $1, true))
SELECT pg_logical_emit_message(true, 'lobster', '')::text FROM how";

#[allow(clippy::disallowed_methods, reason = "a server is waited for on the real clock")]
async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The directory of this installation on this host, usable by nobody else.
fn local_dir(options: &Options, installation: &str) -> Result<PathBuf> {
    let dir = match &options.local_path {
        Some(dir) => dir.clone(),
        None => {
            let me = rustix::process::geteuid().as_raw();
            let dir = std::env::temp_dir().join(format!("lobster-{me}"));
            local::create_dir(&dir)?;
            own(&dir, me)?;
            dir
        }
    };
    let dir = dir.join(installation);
    local::create_dir(&dir)?;
    Ok(dir)
}

/// In a directory that everybody may write to, somebody else may have been faster.
fn own(dir: &Path, me: u32) -> Result<()> {
    let data = std::fs::symlink_metadata(dir).map_err(|error| local::of_io(dir, &error))?;
    match data.is_dir() && data.uid() == me && data.mode() & 0o077 == 0 {
        true => Ok(()),
        false => {
            Err(Failed::Refused(format!("{}: others may write to it; name a directory by `lobster_local_path`", dir.display())))
        }
    }
}

//! Connections, lent for one call each.
//!
//! Invariant: a connection comes back only after a whole answer; one whose call was dropped, failed or took too long is closed, and so
//! is one that leads to a server whose standby was promoted meanwhile.
//!
//! sqlx has a pool of its own. It sends a message and waits for the answer whenever a connection comes back, which is most of what
//! a small statement costs; this one asks only a connection that was idle for a while.

use super::{
    failure::{self, Stage},
    newest::{Newest, Timeline},
    options::Options,
};
use crate::contract::{Boot, Clock, Failed, Result};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor,
    postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow},
};
use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::{Semaphore, SemaphorePermit};

/// A connection that was idle for so long may have lost its server without knowing: no server comes back sooner.
const STALE: Duration = Duration::from_millis(100);

/// An answer to a check of a stale connection.
const CHECK: Duration = Duration::from_secs(2);

/// Statements kept prepared per connection.
const PREPARED: usize = 64;

/// A statement has one plan, which goes through indexes: planning takes longer than executing, and what is planned while a table is small is
/// executed until somebody counts its rows. Rows of a table are named by an id or an array of ids: joined with what the statement has found
/// before, they could be looked for in all of the table.
const PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off";

/// A transaction is not idle for long: a process that freezes within it, or a line that is cut without a word, must not hold its locks.
macro_rules! idle {
    () => {
        "SET LOCAL idle_in_transaction_session_timeout = '5s'"
    };
}

/// The connections of one store.
pub(super) struct Pool {
    options: PgConnectOptions,
    /// Behind a pooler in transaction mode.
    pooled: bool,
    deadline: Duration,
    clock: Arc<dyn Clock>,
    places: Semaphore,
    newest: Arc<Newest>,
    idle: Mutex<Vec<(Open, Boot)>>,
    /// What is set in a session first.
    set: Option<&'static str>,
}

/// A connection, and what it leads to.
struct Open {
    connection: PgConnection,
    timeline: Option<Timeline>,
}

impl Pool {
    /// Of so many connections at most.
    pub(super) fn new(most: usize, options: &Options, name: &str, newest: Arc<Newest>, clock: Arc<dyn Clock>) -> Self {
        Self {
            options: named(&options.connect, options.pooled, name),
            pooled: options.pooled,
            deadline: options.deadline,
            clock,
            places: Semaphore::new(most),
            newest,
            idle: Mutex::default(),
            set: None,
        }
    }

    /// Of connections that execute statements of this tier alone.
    pub(super) fn of_tier(self, options: &Options) -> Self {
        Self { set: options.has_sessions().then_some(PLANS), ..self }
    }

    /// A call that has no answer within the deadline is given up.
    async fn within<T>(&self, stage: Stage, call: impl Future<Output = Result<T>>) -> Result<T> {
        let late = || {
            let text = format!("the server did not answer within {:?}", self.deadline);
            if stage == Stage::Read { Failed::Unavailable(text) } else { Failed::Unknown(text) }
        };
        timeout(self.deadline, call).await.unwrap_or_else(|| Err(late()))
    }

    /// One statement that commits by itself.
    pub(super) async fn query(&self, stage: Stage, text: &str, args: impl Fn() -> PgArguments) -> Result<Vec<PgRow>> {
        let mut lent = self.lend().await?;
        let rows = self.within(stage, lent.alone(stage, text, args)).await?;
        lent.give_back();
        Ok(rows)
    }

    /// A transaction that only reads, under one snapshot.
    pub(super) async fn snapshot(&self) -> Result<Lent<'_>> {
        self.begin(concat!("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;", idle!())).await
    }

    /// A transaction.
    pub(super) async fn transaction(&self) -> Result<Lent<'_>> {
        self.begin(concat!("BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE;", idle!(), ";SET LOCAL lock_timeout = '2s'")).await
    }

    async fn begin(&self, text: &'static str) -> Result<Lent<'_>> {
        let mut lent = self.lend().await?;
        self.within(Stage::Read, lent.simple(Stage::Read, text)).await?;
        lent.within = Within::Begun(text);
        Ok(lent)
    }

    async fn lend(&self) -> Result<Lent<'_>> {
        let place = timeout(self.deadline, self.places.acquire()).await;
        let place = place.ok_or_else(|| Failed::Unavailable("all connections of this process are busy".to_owned()))?;
        let place = place.expect("the pool of a store is never closed");
        let open = self.within(Stage::Read, self.connected()).await?;
        Ok(Lent {
            pool: self,
            connection: Some(open.connection),
            timeline: open.timeline,
            within: Within::Nothing,
            _place: place,
        })
    }

    /// One that was in use a moment ago, one that still answers, or a new one.
    async fn connected(&self) -> Result<Open> {
        while let Some((mut open, since)) = self.take_idle() {
            let fresh = self.clock.boot().since(since) < STALE;
            if self.newest.is(open.timeline) && (fresh || matches!(timeout(CHECK, open.connection.ping()).await, Some(Ok(())))) {
                return Ok(open);
            }
            // The others have been idle for longer still: what took this one took them.
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        let mut connection = connect(&self.options).await?;
        let timeline = self.newest.admit(&mut connection).await?;
        if let Some(set) = self.set {
            connection.execute(set).await.map_err(|error| failure::of(Stage::Read, &error))?;
        }
        Ok(Open { connection, timeline })
    }

    fn take_idle(&self) -> Option<(Open, Boot)> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// What would be lost if a statement failed.
#[derive(Clone, Copy)]
enum Within {
    /// Nothing: it commits by itself.
    Nothing,
    /// Nothing yet, in a transaction that was begun so.
    Begun(&'static str),
    /// A transaction.
    Transaction,
}

/// A connection for one call, or for one transaction.
pub(super) struct Lent<'p> {
    pool: &'p Pool,
    /// `None` once it was given back, or is not worth it.
    connection: Option<PgConnection>,
    timeline: Option<Timeline>,
    within: Within,
    _place: SemaphorePermit<'p>,
}

impl Lent<'_> {
    /// One statement that commits by itself.
    async fn alone(&mut self, stage: Stage, text: &str, args: impl Fn() -> PgArguments) -> Result<Vec<PgRow>> {
        if !self.pool.pooled {
            return self.run(stage, text, &args).await;
        }
        // Behind a pooler only a transaction stays on one connection, and a statement is prepared before it is run.
        self.simple(Stage::Read, concat!("BEGIN;", idle!())).await?;
        let rows = self.run(Stage::Read, text, &args).await?;
        self.simple(stage, "COMMIT").await?;
        Ok(rows)
    }

    async fn run(&mut self, stage: Stage, text: &str, args: &impl Fn() -> PgArguments) -> Result<Vec<PgRow>> {
        let mut rows = self.ask(text, args).await?;
        if rows.as_ref().is_err_and(failure::is_stale_plan) && self.begins_anew().await? {
            rows = self.ask(text, args).await?;
        }
        if matches!(self.within, Within::Begun(_)) {
            self.within = Within::Transaction;
        }
        rows.map_err(|error| self.failed(stage, &error))
    }

    async fn ask(&mut self, text: &str, args: &impl Fn() -> PgArguments) -> Result<sqlx::Result<Vec<PgRow>>> {
        let persistent = !self.pool.pooled;
        let connection = self.connection()?;
        Ok(connection.fetch_all(sqlx::query_with(AssertSqlSafe(text), args()).persistent(persistent)).await)
    }

    /// Forgets plans that do not fit any more; `false`: there are none, or a transaction would be lost with them.
    async fn begins_anew(&mut self) -> Result<bool> {
        let within = self.within;
        if self.pool.pooled || matches!(within, Within::Transaction) {
            return Ok(false);
        }
        if let Within::Begun(_) = within {
            self.simple(Stage::Read, "ROLLBACK").await?;
        }
        let forgotten = self.connection()?.clear_cached_statements().await;
        forgotten.map_err(|error| failure::of(Stage::Read, &error))?;
        if let Within::Begun(text) = within {
            self.simple(Stage::Read, text).await?;
        }
        Ok(true)
    }

    /// What an error means, and whether the connection can be used again: not within a transaction that it has spoilt.
    fn failed(&mut self, stage: Stage, error: &sqlx::Error) -> Failed {
        let connection = self.connection.take();
        if failure::leaves_connection(error) && !self.pool.pooled && stage == Stage::Write {
            self.connection = connection;
            self.give_back_now();
        }
        failure::of(stage, error)
    }

    fn connection(&mut self) -> Result<&mut PgConnection> {
        self.connection.as_mut().ok_or_else(|| Failed::Internal("a connection was used after it failed".to_owned()))
    }

    /// Statements without arguments or answers.
    async fn simple(&mut self, stage: Stage, text: &'static str) -> Result<()> {
        let connection = self.connection()?;
        let done = connection.execute(text).await;
        done.map(drop).map_err(|error| {
            self.connection = None;
            failure::of(stage, &error)
        })
    }

    /// Hands the connection of a transaction out; without [`put`](Self::put) it is closed.
    pub(super) fn take(&mut self) -> Result<PgConnection> {
        self.connection.take().ok_or_else(|| Failed::Internal("a connection was used after it failed".to_owned()))
    }

    pub(super) fn put(&mut self, connection: PgConnection) {
        self.connection = Some(connection);
    }

    /// Is a transaction still what somebody left in it who was lent its connection? Where he cannot have left one session for another
    /// without its statements telling, nothing is asked.
    pub(super) async fn is_whole(&mut self) -> Result<bool> {
        let pool = self.pool;
        if !pool.pooled {
            return Ok(true);
        }
        let whole = pool.within(Stage::Read, is_in_transaction(self.connection()?)).await;
        if !matches!(whole, Ok(true)) {
            self.connection = None;
        }
        whole
    }

    /// One statement of a transaction.
    pub(super) async fn query(&mut self, text: &str, args: impl Fn() -> PgArguments) -> Result<Vec<PgRow>> {
        let pool = self.pool;
        pool.within(Stage::Read, self.run(Stage::Read, text, &args)).await
    }

    /// Ends a transaction that has changed something.
    pub(super) async fn commit(mut self) -> Result<()> {
        let pool = self.pool;
        if !pool.newest.is(self.timeline) {
            return Err(Failed::Unavailable("another server was promoted meanwhile".to_owned()));
        }
        pool.within(Stage::Write, self.simple(Stage::Write, "COMMIT")).await?;
        self.give_back();
        Ok(())
    }

    /// Ends a transaction that has changed nothing, or shall not.
    pub(super) async fn rollback(mut self) -> Result<()> {
        let pool = self.pool;
        pool.within(Stage::Read, self.simple(Stage::Read, "ROLLBACK")).await?;
        self.give_back();
        Ok(())
    }

    fn give_back(mut self) {
        self.give_back_now();
    }

    fn give_back_now(&mut self) {
        if let Some(connection) = self.connection.take() {
            let now = self.pool.clock.boot();
            let open = Open { connection, timeline: self.timeline };
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push((open, now));
        }
    }
}

/// Asked without preparing anything: behind a pooler, outside of a transaction, each message may go to another session, and what was
/// prepared in one is unknown in the next, or somebody else's statement.
pub(super) async fn is_in_transaction(connection: &mut PgConnection) -> Result<bool> {
    match connection.execute("SAVEPOINT lobster; RELEASE SAVEPOINT lobster").await {
        Ok(_) => Ok(true),
        Err(error) if failure::told(&error).is_some_and(|told| told.code() == "25P01") => Ok(false),
        Err(error) => Err(failure::of(Stage::Read, &error)),
    }
}

/// Options of a connection that says whose it is.
pub(super) fn named(options: &PgConnectOptions, pooled: bool, name: &str) -> PgConnectOptions {
    options.clone().application_name(name).statement_cache_capacity(if pooled { 0 } else { PREPARED })
}

pub(super) async fn connect(options: &PgConnectOptions) -> Result<PgConnection> {
    // What goes wrong on the way in has changed nothing.
    let connection = options.clone().disable_statement_logging().connect().await;
    connection.map_err(|error| match (failure::of(Stage::Read, &error), &error) {
        // What is wrong with a certificate comes as data that cannot be read.
        (Failed::Unavailable(why), sqlx::Error::Io(io)) if io.kind() == std::io::ErrorKind::InvalidData => Failed::Refused(why),
        (Failed::Internal(why), _) => Failed::Unavailable(why),
        (failed, _) => failed,
    })
}

/// `None`: it took longer.
#[allow(clippy::disallowed_methods, reason = "a server that does not answer is waited for on the real clock")]
pub(super) async fn timeout<T>(most: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(most, future).await.ok()
}

//! The one connection that writes, and its transactions.
//!
//! Invariant: a connection goes back to its place only if it is known to be outside a transaction.

use super::{
    business::SqliteTx,
    failure::{self, Stage},
    gate::Gate,
    keeper::{Keeper, LOOK_PAGES},
    reader,
    sql::{self, Args},
    whole,
};
use crate::{
    contract::{Failed, Result},
    local,
};
use sqlx::{Connection, sqlite::SqliteConnection, sqlite::SqliteRow};
use std::{fs, os::unix::fs::MetadataExt, path::Path, path::PathBuf, pin::Pin, sync::Arc};
use tokio::sync::Mutex;

/// What a transaction does: its work on a task of its own.
pub(super) type Work<'t, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 't>>;

/// The file that a path names: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(path: &Path) -> Result<Self> {
        let data = fs::metadata(path).map_err(|error| local::of_io(path, &error))?;
        Ok(Self { device: data.dev(), inode: data.ino() })
    }

    /// Is it still the file that was opened? One that was replaced underneath would take writes that nobody ever finds.
    pub(super) fn check(self, path: &Path) -> Result<()> {
        match Self::of(path) {
            Ok(now) if now == self => Ok(()),
            Ok(_) => Err(Failed::Refused(format!("{}: the database file was replaced underneath; restart", path.display()))),
            Err(failed) => Err(Failed::Refused(format!("the database file is gone; restart ({failed})"))),
        }
    }
}

/// The writer of one open store.
pub(super) struct Writer {
    path: PathBuf,
    identity: Identity,
    desk: Mutex<Desk>,
    keeper: Arc<Keeper>,
}

struct Desk {
    gate: Gate,
    connection: Option<Pen>,
    /// A sync failed. The kernel reports that once, so the next one proves nothing about what was written before: all of it has
    /// to be written into the database file anew.
    unsynced: bool,
    /// About how many pages were written since the keeper was asked to look.
    pages: usize,
}

/// An open connection and how it syncs.
struct Pen {
    connection: SqliteTx,
    /// Does a commit sync? `None`: not set yet.
    full: Option<bool>,
}

impl Writer {
    pub(super) fn new(path: PathBuf, gate: Gate, connection: SqliteConnection) -> Result<Self> {
        let identity = Identity::of(&path)?;
        let keeper = Keeper::new(path.clone());
        let connection = Some(Pen { connection: SqliteTx::new(connection, identity), full: None });
        Ok(Self { path, identity, desk: Mutex::new(Desk { gate, connection, unsynced: false, pages: 0 }), keeper })
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// Runs `work` in one writing transaction. It goes on if the caller's future is dropped.
    pub(super) async fn write<T, W>(self: &Arc<Self>, synced: bool, work: W) -> Result<T>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&'t mut Txn) -> Work<'t, T> + Send + 'static,
    {
        let writer = self.clone();
        let write = async move { writer.write_here(synced, work).await };
        #[allow(clippy::disallowed_methods, reason = "a transaction outlives the future that asked for it")]
        let task = tokio::spawn(write);
        task.await.unwrap_or_else(|error| Err(Failed::Unknown(format!("the task of a transaction ended: {error}"))))
    }

    async fn write_here<T, W>(&self, synced: bool, work: W) -> Result<T>
    where
        W: for<'t> FnOnce(&'t mut Txn) -> Work<'t, T>,
    {
        let mut desk = self.desk.lock().await;
        self.identity.check(&self.path)?;
        let _turn = desk.gate.enter().await?;
        let mut pen = match desk.connection.take() {
            Some(pen) => pen,
            None => self.reopen(&mut desk.unsynced).await?,
        };
        if self.keeper.take_rest() && !pen.move_rest().await {
            pen.connection.connection.close().await.ok();
            desk.unsynced = true;
            pen = self.reopen(&mut desk.unsynced).await?;
        }
        let mut txn = Txn { pen, synced, at: At::Outside, broken: false, unsynced: false, pages: 0 };
        let done = work(&mut txn).await;
        txn.close().await;
        desk.unsynced |= txn.unsynced;
        desk.pages += txn.pages;
        if desk.pages >= LOOK_PAGES {
            desk.pages = 0;
            self.keeper.look();
        }
        if txn.broken {
            // Waited for, so that its locks are gone before the next one opens.
            txn.pen.connection.connection.close().await.ok();
        } else {
            desk.connection = Some(txn.pen);
        }
        done
    }

    async fn reopen(&self, unsynced: &mut bool) -> Result<Pen> {
        let mut connection = reader::connect(&self.path, reader::Use::Write).await?;
        if *unsynced {
            let text = "PRAGMA synchronous=FULL; PRAGMA wal_checkpoint(TRUNCATE);".to_owned();
            let ran = sql::run(&mut connection, text, Args::default()).await;
            if let Some(error) = &ran.error {
                return Err(failure::of_sqlite(Stage::Read, error));
            }
            let row = ran.rows.iter().flatten().last();
            let whole = row.map(|row| Ok((sql::get::<i64>(row, 1)?, sql::get::<i64>(row, 2)?))).transpose()?;
            if !matches!(whole, Some((written, moved)) if written == moved) {
                return Err(Failed::Unavailable("a sync failed, and readers keep the log from being written anew".to_owned()));
            }
            *unsynced = false;
        }
        sql::all(&mut connection, &whole::prepare()).await?;
        Ok(Pen { connection: SqliteTx::new(connection, self.identity), full: None })
    }
}

impl Pen {
    /// Moves the rest of the log, so that it begins anew. `false`: the disk fails.
    async fn move_rest(&mut self) -> bool {
        let ran = sql::run(&mut self.connection, "PRAGMA wal_checkpoint(PASSIVE);".to_owned(), Args::default()).await;
        ran.error.is_none_or(|error| !failure::is_io(&error))
    }
}

/// Where a transaction is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Outside,
    Inside,
    Over,
}

/// One writing transaction: begun by its first call, ended by [`commit`](Txn::commit), rolled back otherwise.
pub(super) struct Txn {
    pen: Pen,
    synced: bool,
    at: At,
    broken: bool,
    unsynced: bool,
    pages: usize,
}

impl Txn {
    /// Runs the statements of `text` within the transaction. Rows per statement.
    pub(super) async fn run(&mut self, text: &str, args: Args) -> Result<Vec<Vec<SqliteRow>>> {
        self.call(text, args, "").await
    }

    /// Runs the statements of `text` and commits, in one call.
    pub(super) async fn commit(&mut self, text: &str, args: Args) -> Result<Vec<Vec<SqliteRow>>> {
        self.call(text, args, "COMMIT").await
    }

    /// Runs one statement that is a transaction by itself, in place of all that could be run here.
    pub(super) async fn alone(&mut self, text: &str, args: Args) -> Result<Vec<Vec<SqliteRow>>> {
        let pragma = self.set_synchronous();
        self.at = At::Over;
        self.pages += args.pages();
        let mut ran = sql::run(&mut self.pen.connection, [pragma, text].concat(), args).await;
        if let Some(error) = ran.error {
            self.pen.full = None;
            return Err(self.failed(Stage::Write, &error));
        }
        if !pragma.is_empty() {
            ran.rows.remove(0);
        }
        Ok(ran.rows)
    }

    /// The connection, for business code.
    pub(super) fn connection(&mut self) -> &mut SqliteTx {
        &mut self.pen.connection
    }

    async fn call(&mut self, text: &str, args: Args, end: &str) -> Result<Vec<Vec<SqliteRow>>> {
        let (mut start, mut before) = (String::new(), 0);
        if self.at == At::Outside {
            start = self.set_synchronous().to_owned() + "BEGIN IMMEDIATE;";
            before = count_statements(&start);
            self.at = At::Inside;
        }
        self.pages += args.pages();
        let mut ran = sql::run(&mut self.pen.connection, [&start, text, end].concat(), args).await;
        let own = ran.rows.len().saturating_sub(before);
        if let Some(error) = ran.error {
            let statements = count_statements(text);
            let stage = if !end.is_empty() && own >= statements { Stage::Commit } else { Stage::Write };
            return Err(self.failed(stage, &error));
        }
        if !end.is_empty() {
            self.at = At::Over;
            ran.rows.pop();
        }
        ran.rows.drain(..before.min(ran.rows.len()));
        Ok(ran.rows)
    }

    /// What must be said before this transaction, if anything: SQLite changes it only outside of one.
    fn set_synchronous(&mut self) -> &'static str {
        match (self.pen.full.replace(self.synced) == Some(self.synced), self.synced) {
            (true, _) => "",
            (false, true) => "PRAGMA synchronous=FULL;",
            (false, false) => "PRAGMA synchronous=NORMAL;",
        }
    }

    fn failed(&mut self, stage: Stage, error: &sqlx::Error) -> Failed {
        self.unsynced |= failure::is_io(error);
        let failed = failure::of_sqlite(stage, error);
        self.broken |= matches!(failed, Failed::Unknown(_)) || failure::is_io(error);
        failed
    }

    /// Leaves the connection outside a transaction, or marks it as broken.
    async fn close(&mut self) {
        if self.at != At::Inside || self.broken {
            return;
        }
        let ran = sql::run(&mut self.pen.connection, "ROLLBACK".to_owned(), Args::default()).await;
        // Without a transaction there is nothing to undo: it was not begun, or SQLite has rolled it back itself.
        self.broken = ran.error.is_some_and(|error| !failure::is_no_transaction(&error));
        // The pragma may be what failed.
        self.pen.full = None;
    }
}

/// Statements in a text of this tier, which ends each with a semicolon and has none within.
fn count_statements(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b';').count()
}

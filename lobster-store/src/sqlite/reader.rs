//! Connections: how they are opened, and the small pool that reads.
//!
//! Invariant: a connection whose call was dropped midway or failed is closed, never reused.

use super::{
    failure::{self, Stage},
    sql::{self, Args},
    writer::Identity,
};
use crate::contract::{Failed, Result};
use sqlx::{
    ConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow},
};
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Semaphore;

/// Reads at the same time. Each costs a thread and a page cache; more would only wait for the same disk.
const READERS: usize = 4;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Looks at a file that may be anything, or keeps its log.
    Look,
    Read,
    Write,
}

/// Opens a connection.
pub(super) async fn connect(path: &Path, for_what: Use) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        // For writers that know no gate: a person's shell, a backup.
        .busy_timeout(Duration::from_secs(5))
        .statement_cache_capacity(256)
        .row_buffer_size(4096)
        .thread_name(|number| format!("lobster-sqlite-{number}"))
        .pragma("cache_size", "-16384")
        .pragma("temp_store", "MEMORY")
        // macOS: its fsync ends in the disk's cache. Elsewhere these two change nothing.
        .pragma("fullfsync", "ON")
        .pragma("checkpoint_fullfsync", "ON")
        // Statements are the tier's own and say nothing; the observing layer is above.
        .disable_statement_logging();
    let options = match for_what {
        Use::Look => options,
        Use::Read => options.pragma("query_only", "ON"),
        // The keeper moves the log long before; a log that once grew is cut back when it begins anew.
        Use::Write => options.pragma("wal_autocheckpoint", "16000").pragma("journal_size_limit", "33554432"),
    };
    options.connect().await.map_err(|error| failure::of_sqlite(Stage::Read, &error))
}

/// The pool of reading connections.
pub(super) struct Readers {
    path: PathBuf,
    identity: Identity,
    turns: Semaphore,
    idle: Mutex<Vec<SqliteConnection>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, identity: Identity) -> Self {
        Self { path, identity, turns: Semaphore::new(READERS), idle: Mutex::default() }
    }

    /// Runs the statements of `text` under one snapshot. Rows per statement.
    pub(super) async fn read(&self, text: &str, args: Args) -> Result<Vec<Vec<SqliteRow>>> {
        let _turn = self.turns.acquire().await.map_err(|_| Failed::Unavailable("the store is closed".to_owned()))?;
        self.identity.check(&self.path)?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => connect(&self.path, Use::Read).await?,
        };
        let mut ran = sql::run(&mut connection, ["BEGIN;", text, "COMMIT"].concat(), args).await;
        if let Some(error) = &ran.error {
            return Err(failure::of_sqlite(Stage::Read, error));
        }
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        ran.rows.pop();
        ran.rows.remove(0);
        Ok(ran.rows)
    }
}

#[cfg(test)]
mod tests {
    //! Whoever writes or moves the log means the disk, on every system.

    use super::*;

    #[tokio::test]
    async fn a_sync_reaches_the_disk_and_not_only_its_cache() {
        let path = std::env::temp_dir().join(format!("lobster-fullfsync-{}", std::process::id()));
        std::fs::write(&path, "").expect("a file can be made");
        for for_what in [Use::Look, Use::Write] {
            let mut connection = connect(&path, for_what).await.expect("an empty file is a database");
            for pragma in ["PRAGMA fullfsync;", "PRAGMA checkpoint_fullfsync;"] {
                let rows = sql::all(&mut connection, pragma).await.expect("SQLite knows it");
                assert_eq!(sql::get::<i64>(&rows[0], 0).expect("a number"), 1, "{pragma}");
            }
        }
        std::fs::remove_file(&path).ok();
    }
}

//! Keeps the log short: moves what it holds into the database file, beside the writer and not in its way.
//!
//! Invariant: this decides nothing but when SQLite does what it would do anyway; left out, the log is only longer.
//!
//! SQLite itself checkpoints within the commit that made the log too long, and that commit waits for thousands of pages. Here
//! another connection moves the bulk while the writer goes on; what was added meanwhile is moved at the start of a later
//! transaction, when nobody adds anything. Only then the log begins anew.

use super::{
    reader::{self, Use},
    sql,
};
use crate::contract::Result;
use sqlx::sqlite::SqliteConnection;
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::Mutex;

/// Pages written, as far as the writer can tell, until somebody looks at the log.
pub(super) const LOOK_PAGES: usize = 500;

/// Pages in the log that are worth moving: 8 MB.
const MOVE_PAGES: i64 = 2000;

/// One store's keeper.
pub(super) struct Keeper {
    path: PathBuf,
    /// Somebody looks or moves.
    busy: AtomicBool,
    /// The bulk was moved.
    rest: AtomicBool,
    connection: Mutex<Option<SqliteConnection>>,
}

impl Keeper {
    pub(super) fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path, busy: AtomicBool::new(false), rest: AtomicBool::new(false), connection: Mutex::default() })
    }

    /// Looks at the log in a while, and moves it if it has become long.
    pub(super) fn look(self: &Arc<Self>) {
        if self.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let keeper = self.clone();
        let look = async move {
            // What fails here is met again by whoever writes.
            if let Ok(true) = keeper.move_bulk().await {
                keeper.rest.store(true, Ordering::Release);
            }
            keeper.busy.store(false, Ordering::Release);
        };
        #[allow(clippy::disallowed_methods, reason = "nobody waits for it, and it changes nothing that anybody sees")]
        tokio::spawn(look);
    }

    /// Is there a rest to be moved by the writer, before its transaction?
    pub(super) fn take_rest(&self) -> bool {
        self.rest.swap(false, Ordering::AcqRel)
    }

    async fn move_bulk(&self) -> Result<bool> {
        let mut place = self.connection.lock().await;
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => reader::connect(&self.path, Use::Look).await?,
        };
        let (log, moved) = checkpoint(&mut connection, "NOOP").await?;
        let long = log - moved >= MOVE_PAGES;
        if long {
            checkpoint(&mut connection, "PASSIVE").await?;
        }
        *place = Some(connection);
        Ok(long)
    }
}

/// Pages in the log, and how many of them are in the database file.
async fn checkpoint(connection: &mut SqliteConnection, mode: &str) -> Result<(i64, i64)> {
    let rows = sql::all(connection, &format!("PRAGMA wal_checkpoint({mode});")).await?;
    rows.first().map_or(Ok((0, 0)), |row| Ok((sql::get(row, 1)?, sql::get(row, 2)?)))
}

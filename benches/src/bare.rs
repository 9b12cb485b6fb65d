//! The bare store: the same SQLite through the same driver, one row of 100 bytes per synced commit, one client.
//!
//! Invariant: it is measured next to each round of a figure, so that both saw the same disk.

use crate::Result;
use sqlx::{
    ConnectOptions, Connection, Executor,
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous},
};
use std::{path::Path, time::Instant};

/// What synced commits cost.
#[derive(Clone, Copy, Debug)]
pub struct Commits {
    /// Commits per second.
    pub rate: f64,
    /// Seconds of the median one: a few slow ones must not be taken off a window in which there was none.
    pub median: f64,
}

/// An open bare store.
pub struct Bare {
    connection: SqliteConnection,
}

impl Bare {
    /// Opens it, with the log and the checkpoints of the tier.
    pub async fn open(path: &Path) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("wal_autocheckpoint", "2000")
            .disable_statement_logging();
        let mut connection = options.connect().await?;
        connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT").await?;
        Ok(Self { connection })
    }

    /// Measures so many synced commits.
    pub async fn measure(&mut self, commits: u32) -> Result<Commits> {
        let body = [b'x'; 100];
        let mut took = Vec::new();
        let began = Instant::now();
        for _ in 0..commits {
            let sent = Instant::now();
            sqlx::query("INSERT INTO bare (body) VALUES (?)").bind(&body[..]).execute(&mut self.connection).await?;
            took.push(sent.elapsed().as_secs_f64());
        }
        let rate = f64::from(commits) / began.elapsed().as_secs_f64();
        took.sort_unstable_by(f64::total_cmp);
        Ok(Commits { rate, median: took.get(took.len() / 2).copied().unwrap_or(0.0) })
    }

    /// Closes it.
    pub async fn close(self) -> Result<()> {
        Ok(self.connection.close().await?)
    }
}

//! What a database server counts by itself.
//!
//! Invariant: a reading counts itself once, as a statement; differences of two leave that out.

use crate::{Result, site::Place};
use sqlx::{Connection, Executor, PgConnection, Row};

/// A connection that reads the counters of one database.
pub struct Counters(PgConnection);

/// What was counted so far, or between two readings.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Statements of all clients.
    pub statements: i64,
    /// Transactions that wrote.
    pub commits: i64,
    /// Bytes of the write-ahead log.
    pub wal: i64,
}

const READ: &str = "
SELECT (SELECT sum(calls)::int8 FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())),
    pg_snapshot_xmax(pg_current_snapshot())::text::int8, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8";

impl Counters {
    /// `None`: the server does not count statements, for want of `pg_stat_statements` or of the right to read it.
    pub async fn open(place: &Place) -> Result<Option<Self>> {
        let mut connection = place.connect().await?;
        let extended = connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await;
        let counts = extended.is_ok() && connection.execute("SELECT 1 FROM pg_stat_statements LIMIT 1").await.is_ok();
        Ok(counts.then_some(Self(connection)))
    }

    /// What was counted so far.
    pub async fn read(&mut self) -> Result<Count> {
        let row = sqlx::query(READ).fetch_one(&mut self.0).await?;
        Ok(Count { statements: row.try_get(0)?, commits: row.try_get(1)?, wal: row.try_get(2)? })
    }

    /// What was counted since another reading of this connection.
    pub async fn since(&mut self, before: Count) -> Result<Count> {
        let now = self.read().await?;
        Ok(Count {
            statements: now.statements - before.statements - 1,
            commits: now.commits - before.commits,
            wal: now.wal - before.wal,
        })
    }

    /// Closes the connection.
    pub async fn close(self) -> Result<()> {
        Ok(self.0.close().await?)
    }
}

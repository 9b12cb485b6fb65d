//! What a database server counts by itself.
//!
//! Invariant: a reading counts itself once, as a statement; differences of two leave that out.

use crate::{Result, site::Place};
use sqlx::{Connection, Executor, PgConnection, Row};
use std::time::Duration;

/// A connection that reads the counters of one database.
pub struct Counters(PgConnection);

/// What was counted so far, or between two readings.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Statements of all clients.
    pub statements: i64,
    /// Bytes of the write-ahead log.
    pub wal: i64,
}

const READ: &str = "
SELECT (SELECT sum(calls)::int8 FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())),
    pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8";

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
        Ok(Count { statements: row.try_get(0)?, wal: row.try_get(1)? })
    }

    /// What was counted since another reading of this connection.
    pub async fn since(&mut self, before: Count) -> Result<Count> {
        let now = self.read().await?;
        Ok(Count { statements: now.statements - before.statements - 1, wal: now.wal - before.wal })
    }

    /// Closes the connection.
    pub async fn close(self) -> Result<()> {
        Ok(self.0.close().await?)
    }
}

/// Transactions of a database so far, those that only read among them, once no store is open on it any more. Read from another database,
/// so that this counts nothing itself.
pub async fn commits(place: &Place) -> Result<i64> {
    let (mut beside, name) = place.beside().await?;
    loop {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name LIKE 'lobster %'";
        if sqlx::query_scalar::<_, i64>(open).bind(&name).fetch_one(&mut beside).await? == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let read = "SELECT xact_commit FROM pg_stat_database WHERE datname = $1";
    let commits = sqlx::query_scalar(read).bind(&name).fetch_one(&mut beside).await?;
    beside.close().await?;
    Ok(commits)
}

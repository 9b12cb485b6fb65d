//! Business transactions: what business code writes, and the record of its step, in one transaction.
//!
//! Invariant: nothing is recorded unless the transaction that locked the run is still the one that commits.

use super::{
    Postgres,
    sql::{Args, fence, get},
};
use crate::contract::{Business, Failed, Hold, Result, Transacted, Tx, Work, decide_hold};
use sqlx::postgres::PgConnection;
use std::{
    fmt,
    ops::{Deref, DerefMut},
    time::Duration,
};

/// How long a transaction may take, unless its author says otherwise.
pub(super) const MOST: Duration = Duration::from_secs(10);

/// The transaction of a `transactional` step on PostgreSQL: a connection inside of a transaction. Queries of sqlx take `&mut **tx`. It
/// ends when the step does: nothing in it begins, commits or rolls back.
///
/// ```no_run
/// use lobster_store::postgres::PgTx;
/// # async fn f(tx: &mut PgTx) -> Result<(), sqlx::Error> {
/// sqlx::query("UPDATE accounts SET cents = cents - 5 WHERE id = 1").execute(&mut **tx).await?;
/// # Ok(())
/// # }
/// ```
pub struct PgTx {
    connection: PgConnection,
    /// Were runs submitted in it?
    submitted: bool,
}

impl Tx for PgTx {
    fn business(&mut self) -> &mut Business {
        self
    }
}

impl Tx for PgConnection {
    fn business(&mut self) -> &mut Business {
        self
    }
}

impl Tx for sqlx::Transaction<'_, sqlx::Postgres> {
    fn business(&mut self) -> &mut Business {
        &mut **self
    }
}

/// The connection of a transaction of this tier's, or of the application's.
pub(super) fn connection(transaction: &mut Business) -> Option<&mut PgConnection> {
    if transaction.is::<PgTx>() {
        let tx = transaction.downcast_mut::<PgTx>()?;
        tx.submitted = true;
        return Some(&mut tx.connection);
    }
    transaction.downcast_mut()
}

impl Deref for PgTx {
    type Target = PgConnection;
    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for PgTx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

impl fmt::Debug for PgTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgTx").finish_non_exhaustive()
    }
}

/// Locks the run, bounds what the server waits for on behalf of this transaction, and leaves a word that is gone as soon as somebody ends it.
const LOCK: &str = "
SELECT owner, epoch, state, tail, mark, cancel, wake, set_config('synchronous_commit', $2, true),
    set_config('idle_in_transaction_session_timeout', $3, true), set_config('lock_timeout', $3, true),
    set_config('lobster.business', $4, true)
FROM @runs WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED";

const EXISTS: &str = "SELECT EXISTS (SELECT 1 FROM @runs WHERE id = $1)";

const RECORD: &str = "
WITH same AS MATERIALIZED (SELECT 1 WHERE current_setting('lobster.business', true) = $8),
deltas AS (INSERT INTO @deltas (run, seq_from, seq_to, epoch, crc, body)
    SELECT $1::uuid, $2::int8, $3::int8, $4::int8, $5::int8, $6::bytea FROM same)
UPDATE @runs r SET tail = $3, mark = $7, attempts = 0, deaths = 0 FROM same WHERE r.id = $1 RETURNING 1";

impl Postgres {
    pub(super) async fn transact_run(&self, hold: Hold, work: Work) -> Result<Transacted> {
        let mut transaction = self.business.transaction().await?;
        let (most, word) = (format!("{}ms", hold.most.as_millis().max(1)), format!("{}:{}:{}", hold.run, hold.epoch, hold.head));
        let lock = || Args::default().with(hold.run.0).with(self.synced).with(most.as_str()).with(word.as_str()).done();
        let locked = transaction.query(&self.text(LOCK), lock).await?;
        if locked.is_empty() {
            let exists = transaction.query(&self.text(EXISTS), || Args::default().with(hold.run.0).done()).await?;
            if exists.first().map_or(Ok(false), |row| get::<bool>(row, 0))? {
                transaction.rollback().await?;
                return Ok(Transacted::Busy);
            }
        }
        let row = locked.first().map(fence).transpose()?;
        if let Err(seen) = decide_hold(row.as_ref(), &hold) {
            transaction.rollback().await?;
            return Ok(Transacted::Seen(seen));
        }
        let mut tx = PgTx { connection: transaction.take()?, submitted: false };
        // Dropped in here, or with this future: the connection is closed, and the server rolls back.
        let new = work(&mut tx).await;
        transaction.put(tx.connection);
        // Not given back: its connection is closed, and the server rolls back.
        let Some(new) = new else { return Ok(Transacted::Undone) };
        let deltas = new.deltas.as_ref().ok_or_else(|| Failed::Internal("a business transaction without a record".to_owned()))?;
        let record = || {
            let args = Args::default().with(hold.run.0).with(new.from.cast_signed()).with(new.to.cast_signed());
            let args = args.with(hold.epoch.cast_signed()).with(i64::from(deltas.crc)).with(deltas.body.as_ref());
            args.with(i64::from(new.mark)).with(word.as_str()).done()
        };
        let recorded = match transaction.is_whole().await {
            Ok(true) => transaction.query(&self.text(RECORD), record).await.map(|rows| !rows.is_empty()),
            other => other,
        };
        let recorded = match recorded {
            Err(Failed::Internal(why)) if why.contains("(25P02)") => {
                return Ok(Transacted::Failed("a statement of the step had failed, and its transaction with it".to_owned()));
            }
            recorded => recorded?,
        };
        if !recorded {
            return Err(Failed::Refused(
                "the step ended its transaction by itself, so nothing can be recorded with it".to_owned(),
            ));
        }
        match transaction.commit().await {
            Ok(()) => {
                if tx.submitted {
                    self.stir();
                }
                Ok(Transacted::Done)
            }
            // Deferred constraints, and conflicts that are found at the end.
            Err(Failed::Internal(why)) => Ok(Transacted::Failed(why)),
            Err(failed) => Err(failed),
        }
    }
}

//! Business transactions: what business code writes, and the record of its step, in one transaction.
//!
//! Invariant: nothing is recorded unless the transaction that locked the run is still the one that commits.

use super::{
    Sqlite,
    append::{fence, fences},
    failure::{self, Stage},
    sql::{self, Args, rows_of},
    write::Writes,
    writer::{Identity, Txn},
};
use crate::contract::{Business, Failed, Hold, Offer, Result, Transacted, Tx, Work, decide, decide_hold};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use std::{
    fmt,
    ops::{Deref, DerefMut},
    time::Duration,
};

/// How long a transaction may take, unless its author says otherwise: it holds the one writer of the file.
pub(super) const MOST: Duration = Duration::from_millis(500);

/// The transaction of a `transactional` step on SQLite: the connection that writes, inside of a transaction. Queries of sqlx take
/// `&mut **tx`. It ends when the step does: nothing in it begins, commits or rolls back.
///
/// ```no_run
/// use lobster_store::sqlite::SqliteTx;
/// # async fn f(tx: &mut SqliteTx) -> Result<(), sqlx::Error> {
/// sqlx::query("UPDATE accounts SET cents = cents - 5 WHERE id = 1").execute(&mut **tx).await?;
/// # Ok(())
/// # }
/// ```
pub struct SqliteTx {
    pub(super) connection: SqliteConnection,
    /// Of the database.
    pub(super) file: Identity,
    /// Were runs submitted in the transaction of the moment?
    pub(super) submitted: bool,
}

impl SqliteTx {
    pub(super) fn new(connection: SqliteConnection, file: Identity) -> Self {
        Self { connection, file, submitted: false }
    }

    /// Runs statements of the tier's inside of the transaction, which goes on.
    pub(super) async fn run(&mut self, text: String, args: Args) -> Result<Vec<Vec<SqliteRow>>> {
        let ran = sql::run(&mut self.connection, text, args).await;
        match &ran.error {
            None => Ok(ran.rows),
            Some(error) => Err(failure::of_sqlite(Stage::Read, error)),
        }
    }
}

impl Tx for SqliteTx {
    fn business(&mut self) -> &mut Business {
        self
    }
}

impl Deref for SqliteTx {
    type Target = SqliteConnection;
    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for SqliteTx {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

impl fmt::Debug for SqliteTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTx").finish_non_exhaustive()
    }
}

impl Sqlite {
    pub(super) async fn transact_run(&self, hold: Hold, work: Work) -> Result<Transacted> {
        let (transacted, submitted) = self.writer.write(true, move |txn| Box::pin(transact_and_tell(txn, hold, work))).await?;
        if submitted && transacted == Transacted::Done {
            self.stir();
        }
        Ok(transacted)
    }
}

/// What became of the transaction, and whether runs were submitted in it.
async fn transact_and_tell(txn: &mut Txn, hold: Hold, work: Work) -> Result<(Transacted, bool)> {
    txn.connection().submitted = false;
    let transacted = transact(txn, hold, work).await?;
    Ok((transacted, txn.connection().submitted))
}

async fn transact(txn: &mut Txn, hold: Hold, work: Work) -> Result<Transacted> {
    let mut args = Args::default();
    args.push(hold.run.0.as_bytes().as_slice());
    // Gone as soon as somebody ends the transaction: that is how it is known to be the same.
    let rows = txn.run(&(fences(1) + "SAVEPOINT lobster_business;"), args).await?;
    let row = rows_of(&rows, 0).first().map(fence).transpose()?.map(|(_, row)| row);
    if let Err(seen) = decide_hold(row.as_ref(), &hold) {
        return Ok(Transacted::Seen(seen));
    }
    let Some(new) = work(txn.connection()).await else { return Ok(Transacted::Undone) };
    match txn.run("RELEASE lobster_business;", Args::default()).await {
        Err(Failed::Internal(why)) if why.contains("no such savepoint") => {
            return Err(Failed::Refused(
                "the step ended its transaction by itself, so nothing can be recorded with it".to_owned(),
            ));
        }
        released => _ = released?,
    }
    let (run, epoch, head) = (hold.run, hold.epoch, hold.head);
    let offer = Offer { run, epoch, head, rows: vec![new], progress: true, then: None };
    let seen = decide(row.as_ref(), &offer, hold.incarnation);
    let mut writes = Writes::new(true);
    writes.add(offer, &seen);
    match writes.commit(txn).await {
        Ok(()) => Ok(Transacted::Done),
        // A deferred constraint.
        Err(Failed::Internal(why)) => Ok(Transacted::Failed(why)),
        Err(failed) => Err(failed),
    }
}

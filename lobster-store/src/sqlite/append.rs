//! The committer's statement: two calls of the driver per batch, whatever its size, and one for a batch of one offer.
//!
//! Invariant: SQL changes only what [`decide`] says about the row as it was read inside the same transaction.

use super::{
    Sqlite,
    changes::Changes,
    sql::{self, Args, ROWS_MAX, bucket, get, get_id, get_state, get_u32, get_u64, marks, rows_of},
    whole,
    writer::Txn,
};
use crate::contract::{Answer, Batch, Incarnation, Offer, Result, RunId, RunRow, Sealed, Seen, Then, decide};
use sqlx::sqlite::SqliteRow;
use std::collections::HashMap;

/// Columns of the fence, in the order [`fence`] reads them.
pub(super) const FENCE: &str = "id, owner, epoch, state, tail, mark, cancel, wake";

/// Reads [`FENCE`].
pub(super) fn fence(row: &SqliteRow) -> Result<(RunId, RunRow)> {
    let owner = get::<Option<&[u8]>>(row, 1)?.and_then(Incarnation::from_slice);
    let fence = RunRow {
        owner,
        epoch: get_u64(row, 2)?,
        state: get_state(row, 3)?,
        tail: get_u64(row, 4)?,
        mark: get_u32(row, 5)?,
        cancel: get::<i64>(row, 6)? != 0,
        wake: get_u64(row, 7)?,
    };
    Ok((get_id(row, 0, RunId::from_slice)?, fence))
}

impl Sqlite {
    pub(super) async fn append_batch(&self, batch: Batch) -> Result<Vec<Answer>> {
        if batch.offers.is_empty() {
            return Ok(Vec::new());
        }
        // An outcome may be read as soon as it is visible, and is handed out only when it is synced.
        let finishes = |offer: &Offer| matches!(offer.then, Some(Then::Finish { .. }));
        let synced = batch.synced || batch.offers.iter().any(finishes);
        let seen = match self.append_one(&batch, synced).await? {
            Some(seen) => vec![seen],
            None => self.writer.write(synced, move |txn| Box::pin(append(txn, batch))).await?,
        };
        if seen.iter().any(|seen| seen.then) {
            self.stir();
        }
        Ok(seen.into_iter().map(Answer::Seen).collect())
    }

    /// Offers a single run as a whole or not at all. `None`: there are several, or not all of it applied and yet something has to
    /// be written.
    async fn append_one(&self, batch: &Batch, synced: bool) -> Result<Option<Seen>> {
        let [offer] = batch.offers.as_slice() else { return Ok(None) };
        let (me, offer) = (batch.incarnation, offer.clone());
        let (text, args) = whole::text(me, &offer);
        let rows = self.writer.write(synced, move |txn| Box::pin(async move { txn.commit(&text, args).await })).await?;
        let fence = rows_of(&rows, 0).first().map(fence).transpose()?.map(|(_, fence)| fence);
        let seen = decide(fence.as_ref(), &offer, me);
        let Some(row) = &fence else { return Ok(Some(seen)) };
        let done = whole::fits(me, &offer, row) || (seen.rows == 0 && !seen.then && !batch.synced);
        Ok(done.then_some(seen))
    }
}

async fn append(txn: &mut Txn, batch: Batch) -> Result<Vec<Seen>> {
    let fences = lock(txn, &batch.offers).await?;
    let mut write = Changes::new(batch.synced);
    let mut answers = Vec::with_capacity(batch.offers.len());
    for offer in batch.offers {
        let row = fences.get(&offer.run);
        let seen = decide(row, &offer, batch.incarnation);
        if row.is_some() {
            write.add(offer, &seen);
        }
        answers.push(seen);
    }
    write.commit(txn).await?;
    Ok(answers)
}

/// Reads the rows that the batch is about. The transaction that this begins is what locks them.
async fn lock(txn: &mut Txn, offers: &[Offer]) -> Result<HashMap<RunId, RunRow>> {
    let mut text = String::new();
    let mut args = Args::default();
    for offers in offers.chunks(ROWS_MAX) {
        let size = bucket(offers.len());
        text += &fences(size);
        for offer in offers {
            args.push(offer.run.0.as_bytes().as_slice());
        }
        args.nulls(size - offers.len());
    }
    let rows = txn.run(&text, args).await?;
    rows.iter().flatten().map(fence).collect()
}

pub(super) fn fences(size: usize) -> String {
    format!("SELECT {FENCE} FROM lobster_runs WHERE id IN ({});", marks(size))
}

/// A sealed record from two columns, the checksum first.
pub(super) fn sealed(row: &SqliteRow, at: usize) -> Result<Sealed> {
    Ok(Sealed { crc: get_u32(row, at)?, body: sql::get_bytes(row, at + 1)? })
}

/// Pushes a sealed record as two arguments, the checksum first.
pub(super) fn sealed_args(args: &mut Args, sealed: &Sealed) {
    args.push(i64::from(sealed.crc));
    args.body(&sealed.body);
}

//! The committer's statement: one call of the driver per batch, and two more for offers that do not apply whole.
//!
//! Invariant: SQL changes only what [`decide`] says about the row as it is inside the same transaction.

use super::{
    Sqlite,
    sql::{self, Args, ROWS_MAX, bucket, get, get_id, get_state, get_u32, get_u64, marks},
    whole,
    write::Writes,
    writer::Txn,
};
use crate::contract::{Answer, Batch, Failed, Incarnation, Offer, Result, RunId, RunRow, Sealed, Seen, Then, decide};
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
        let (mut applied, batch) = self.writer.write(synced, move |txn| Box::pin(whole::append(txn, batch))).await?;
        let runs: Vec<RunId> = batch.offers.iter().map(|offer| offer.run).collect();
        let rest: Vec<Offer> = batch.offers.into_iter().filter(|offer| !applied.contains_key(&offer.run)).collect();
        if !rest.is_empty() {
            let asked: Vec<RunId> = rest.iter().map(|offer| offer.run).collect();
            let rest = Batch { offers: rest, ..batch };
            let seen = self.writer.write(synced, move |txn| Box::pin(append(txn, rest))).await;
            let seen = seen.map_err(|failed| match failed {
                // The others were applied: nobody may take this for a batch that was not.
                Failed::Unavailable(why) if !applied.is_empty() => Failed::Unknown(why),
                failed => failed,
            })?;
            applied.extend(asked.into_iter().zip(seen));
        }
        if applied.values().any(|seen| seen.then) {
            self.stir();
        }
        let answer =
            |run| applied.remove(&run).map(Answer::Seen).ok_or_else(|| Failed::Internal("an offer without an answer".into()));
        runs.into_iter().map(answer).collect()
    }
}

async fn append(txn: &mut Txn, batch: Batch) -> Result<Vec<Seen>> {
    let fences = lock(txn, &batch.offers).await?;
    let mut write = Writes::new(batch.synced);
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

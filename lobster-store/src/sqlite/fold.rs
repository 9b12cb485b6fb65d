//! Folds, and reading parts of what they made.
//!
//! Invariant: SQL changes only what [`decide_fold`] says about the row as it is inside the same transaction.

use super::{
    Sqlite,
    append::{FENCE, fence, sealed_args},
    recording::part,
    sql::{Args, ROWS_MAX, bucket, get, get_u32, marks, replace, rows_of},
    writer::Txn,
};
use crate::contract::{Fold, Folded, Result, RunId, Seq, StoredPart, decide_fold};
use sqlx::sqlite::SqliteRow;
use std::collections::HashMap;

const PARTS: &str = "lobster_parts (run, id, crc, body)";
const MANIFESTS: &str = "lobster_manifests (run, seq, crc, body)";

impl Sqlite {
    pub(super) async fn fold_run(&self, new: Fold) -> Result<Folded> {
        self.writer.write(false, move |txn| Box::pin(fold(txn, new))).await
    }

    pub(super) async fn read_parts(&self, run: RunId, ids: &[u64]) -> Result<Vec<StoredPart>> {
        let mut parts = Vec::with_capacity(ids.len());
        for ids in ids.chunks(ROWS_MAX) {
            let mut args = Args::default();
            let size = bucket(ids.len());
            push_ids(&mut args, run, ids, size);
            let rows = self.readers.read(&read_text(size), args).await?;
            let found = rows.iter().flatten().map(|row| part(row, 0).map(|part| (part.id, part)));
            let found = found.collect::<Result<HashMap<_, _>>>()?;
            parts.extend(ids.iter().filter_map(|id| found.get(id).cloned()));
        }
        Ok(parts)
    }
}

async fn fold(txn: &mut Txn, fold: Fold) -> Result<Folded> {
    let mut args = Args::default();
    args.push(fold.run.0.as_bytes().as_slice());
    let rows = txn.run(&look_text(), args).await?;
    let row = rows_of(&rows, 0).first();
    let fenced = row.map(|row| Ok(fence(row)?.1)).transpose()?;
    let answer = decide_fold(fenced.as_ref(), row.map(snapshot).transpose()?.flatten(), &fold);
    if answer == Folded::Done {
        drop_parts(txn, &fold).await?;
        write(txn, &fold).await?;
    }
    Ok(answer)
}

/// Seq and manifest checksum of the snapshot, if there is one.
fn snapshot(row: &SqliteRow) -> Result<Option<(Seq, u32)>> {
    match get::<Option<i64>>(row, SNAPSHOT)? {
        None => Ok(None),
        Some(seq) => Ok(Some((seq.cast_unsigned(), get_u32(row, SNAPSHOT + 1)?))),
    }
}

/// A call of its own: in one with the new parts, each pair of their sizes would be a text of its own.
async fn drop_parts(txn: &mut Txn, fold: &Fold) -> Result<()> {
    if fold.dropped.is_empty() {
        return Ok(());
    }
    let (mut text, mut args) = (String::new(), Args::default());
    for ids in fold.dropped.chunks(ROWS_MAX) {
        let size = bucket(ids.len());
        text += &drop_text(size);
        push_ids(&mut args, fold.run, ids, size);
    }
    txn.run(&text, args).await?;
    Ok(())
}

async fn write(txn: &mut Txn, fold: &Fold) -> Result<()> {
    let run = fold.run.0.as_bytes().as_slice();
    let mut args = Args::default();
    let mut text = covered_text();
    args.push(run);
    args.push(fold.seq.cast_signed());
    args.push(fold.seq.cast_signed());
    for parts in fold.parts.chunks(ROWS_MAX) {
        let size = bucket(parts.len());
        text += &replace(PARTS, size, 4);
        for part in parts {
            args.push(run);
            args.push(part.id.cast_signed());
            sealed_args(&mut args, &part.sealed);
        }
        args.nulls((size - parts.len()) * 4);
    }
    text += &replace(MANIFESTS, 1, 4);
    args.push(run);
    args.push(fold.seq.cast_signed());
    sealed_args(&mut args, &fold.manifest);
    txn.commit(&text, args).await?;
    Ok(())
}

/// Column of the snapshot's seq, behind the [`FENCE`]; that of its checksum follows.
const SNAPSHOT: usize = 8;

pub(super) fn look_text() -> String {
    format!(
        "SELECT {FENCE}, lobster_manifests.seq, lobster_manifests.crc \
         FROM lobster_runs LEFT JOIN lobster_manifests ON lobster_manifests.run = lobster_runs.id WHERE lobster_runs.id = ?;"
    )
}

/// Removes changes that are covered. Bounded by the first seq too, which is what the index knows.
pub(super) fn covered_text() -> String {
    "DELETE FROM lobster_changes WHERE run = ? AND seq_from <= ? AND seq_to <= ?;".to_owned()
}

pub(super) fn drop_text(size: usize) -> String {
    format!("DELETE FROM lobster_parts WHERE run = ? AND id IN ({});", marks(size))
}

pub(super) fn read_text(size: usize) -> String {
    format!("SELECT id, crc, body FROM lobster_parts WHERE run = ? AND id IN ({});", marks(size))
}

fn push_ids(args: &mut Args, run: RunId, ids: &[u64], size: usize) {
    args.push(run.0.as_bytes().as_slice());
    ids.iter().for_each(|id| args.push(id.cast_signed()));
    args.nulls(size - ids.len());
}

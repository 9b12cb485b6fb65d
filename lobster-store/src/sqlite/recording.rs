//! Reading recordings, for restores and for people.
//!
//! Invariant: a run's row and what it has are read under one snapshot; bytes are returned as they are.

use super::{
    Sqlite,
    append::{FENCE, fence, sealed},
    sql::{Args, bucket, get_id, get_u64, numbered, rows_of},
};
use crate::contract::{
    Failed, Grant, Incarnation, Mark, Recording, Restored, Result, RunId, RunState, Sealed, Seq, Snapshot, StoredPart, StoredRow,
    StoredVerdict,
};
use sqlx::sqlite::SqliteRow;
use std::collections::HashMap;

/// Recordings read in one call. Bounds the memory between the driver and us.
const RUNS: usize = 64;

impl Sqlite {
    pub(super) async fn restore_runs(&self, incarnation: Incarnation, grants: &[Grant]) -> Result<Vec<Restored>> {
        let mut answers = Vec::with_capacity(grants.len());
        for grants in grants.chunks(RUNS) {
            let ids: Vec<_> = grants.iter().map(|grant| grant.run).collect();
            let list = ids_list(&ids);
            let text = restore_text(&list.text);
            let rows = self.readers.read(&text, list.args).await?;
            let fences = rows_of(&rows, 0).iter().map(fence).collect::<Result<HashMap<_, _>>>()?;
            let details = Details::read(rows.get(1..).unwrap_or_default())?;
            for grant in grants {
                let fence = fences
                    .get(&grant.run)
                    .filter(|row| row.state == RunState::Running && row.owner == Some(incarnation) && row.epoch == grant.epoch);
                answers.push(match fence {
                    None => Restored::Fenced,
                    Some(row) => Restored::Recording(details.of(grant.run, row.tail, row.mark)?),
                });
            }
        }
        Ok(answers)
    }
}

/// A list of ids as numbered arguments, padded to its bucket.
pub(super) struct IdsList {
    pub(super) text: String,
    pub(super) args: Args,
}

pub(super) fn ids_list(ids: &[RunId]) -> IdsList {
    let mut args = Args::default();
    let size = bucket(ids.len());
    for id in ids {
        args.push(id.0.as_bytes().as_slice());
    }
    args.nulls(size - ids.len());
    IdsList { text: numbered(1, size), args }
}

pub(super) fn restore_text(ids: &str) -> String {
    format!("SELECT {FENCE} FROM lobster_runs WHERE id IN ({ids});{}", details_text(ids))
}

/// The statements whose rows [`Details`] reads.
pub(super) fn details_text(ids: &str) -> String {
    let rows = |table| {
        format!("SELECT run, epoch, seq_from, seq_to, crc, body FROM {table} WHERE run IN ({ids}) ORDER BY run, seq_from;")
    };
    format!(
        "SELECT run, crc, body FROM lobster_inputs WHERE run IN ({ids});\
         SELECT run, seq, crc, body FROM lobster_manifests WHERE run IN ({ids});\
         SELECT run, id, crc, body FROM lobster_parts WHERE run IN ({ids}) ORDER BY run, id;{}{}\
         SELECT run, intent, crc, body FROM lobster_verdicts_in WHERE run IN ({ids}) ORDER BY run, intent;",
        rows("lobster_deltas"),
        rows("lobster_changes")
    )
}

/// What several runs have.
#[derive(Default)]
pub(super) struct Details {
    inputs: HashMap<RunId, Sealed>,
    manifests: HashMap<RunId, (Seq, Sealed)>,
    parts: HashMap<RunId, Vec<StoredPart>>,
    deltas: HashMap<RunId, Vec<StoredRow>>,
    changes: HashMap<RunId, Vec<StoredRow>>,
    verdicts: HashMap<RunId, Vec<StoredVerdict>>,
}

impl Details {
    pub(super) fn read(rows: &[Vec<SqliteRow>]) -> Result<Self> {
        Ok(Self {
            inputs: one_each(rows_of(rows, 0), |row| sealed(row, 1))?,
            manifests: one_each(rows_of(rows, 1), |row| Ok((get_u64(row, 1)?, sealed(row, 2)?)))?,
            parts: some_each(rows_of(rows, 2), |row| part(row, 1))?,
            deltas: some_each(rows_of(rows, 3), stored_row)?,
            changes: some_each(rows_of(rows, 4), stored_row)?,
            verdicts: some_each(rows_of(rows, 5), |row| Ok(StoredVerdict { intent: get_u64(row, 1)?, fate: sealed(row, 2)? }))?,
        })
    }

    /// The recording of a run, as often as it is asked for.
    pub(super) fn of(&self, run: RunId, tail: Seq, mark: Mark) -> Result<Recording> {
        let lost = || Failed::Corrupt { run, seq: 0, record: "input", why: "it is missing".to_owned() };
        let snapshot = self.manifests.get(&run).cloned();
        Ok(Recording {
            input: self.inputs.get(&run).cloned().ok_or_else(lost)?,
            snapshot: snapshot.map(|(seq, manifest)| Snapshot { seq, manifest, parts: all_of(&self.parts, run) }),
            deltas: all_of(&self.deltas, run),
            changes: all_of(&self.changes, run),
            verdicts: all_of(&self.verdicts, run),
            tail,
            mark,
        })
    }
}

/// A part from three columns, its id first.
pub(super) fn part(row: &SqliteRow, at: usize) -> Result<StoredPart> {
    Ok(StoredPart { id: get_u64(row, at)?, sealed: sealed(row, at + 1)? })
}

fn stored_row(row: &SqliteRow) -> Result<StoredRow> {
    Ok(StoredRow { epoch: get_u64(row, 1)?, from: get_u64(row, 2)?, to: get_u64(row, 3)?, sealed: sealed(row, 4)? })
}

/// What the rows say of their runs, each of another; the run is the first column.
fn one_each<T>(rows: &[SqliteRow], of: impl Fn(&SqliteRow) -> Result<T>) -> Result<HashMap<RunId, T>> {
    rows.iter().map(|row| Ok((get_id(row, 0, RunId::from_slice)?, of(row)?))).collect()
}

/// The same where a run may have several.
fn some_each<T>(rows: &[SqliteRow], of: impl Fn(&SqliteRow) -> Result<T>) -> Result<HashMap<RunId, Vec<T>>> {
    let mut found: HashMap<RunId, Vec<T>> = HashMap::new();
    for row in rows {
        found.entry(get_id(row, 0, RunId::from_slice)?).or_default().push(of(row)?);
    }
    Ok(found)
}

fn all_of<T: Clone>(found: &HashMap<RunId, Vec<T>>, run: RunId) -> Vec<T> {
    found.get(&run).cloned().unwrap_or_default()
}

//! Reading recordings, for restores and for people.
//!
//! Invariant: a run's row and what it has are read under one snapshot; bytes are returned as they are.

use super::{
    Sqlite,
    append::{FENCE, fence, sealed},
    sql::{self, Args, bucket, get_id, get_u32, get_u64, numbered, rows_of},
};
use crate::contract::{
    Failed, Grant, Incarnation, Recording, Restored, Result, RunId, RunState, Sealed, StoredRow, StoredVerdict,
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
            let parts = Parts::read(rows.get(1..).unwrap_or_default())?;
            for grant in grants {
                let fence = fences
                    .get(&grant.run)
                    .filter(|row| row.state == RunState::Running && row.owner == Some(incarnation) && row.epoch == grant.epoch);
                answers.push(match fence {
                    None => Restored::Fenced,
                    Some(row) => Restored::Recording(parts.of(grant.run, row.tail, row.mark)?),
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
    format!("SELECT {FENCE} FROM lobster_runs WHERE id IN ({ids});{}", parts_text(ids))
}

/// The statements whose rows [`Parts`] reads.
pub(super) fn parts_text(ids: &str) -> String {
    format!(
        "SELECT run, crc, body FROM lobster_inputs WHERE run IN ({ids});\
         SELECT run, epoch, seq_from, seq_to, crc, body FROM lobster_deltas WHERE run IN ({ids}) ORDER BY run, seq_from;\
         SELECT run, intent, crc, body FROM lobster_verdicts_in WHERE run IN ({ids}) ORDER BY run, intent;"
    )
}

/// What several runs have.
#[derive(Default)]
pub(super) struct Parts {
    inputs: HashMap<RunId, Sealed>,
    rows: HashMap<RunId, Vec<StoredRow>>,
    verdicts: HashMap<RunId, Vec<StoredVerdict>>,
}

impl Parts {
    pub(super) fn read(rows: &[Vec<SqliteRow>]) -> Result<Self> {
        let mut parts = Self::default();
        for row in rows_of(rows, 0) {
            parts.inputs.insert(get_id(row, 0, RunId::from_slice)?, sealed(row, 1)?);
        }
        for row in rows_of(rows, 1) {
            let stored = StoredRow {
                epoch: get_u64(row, 1)?,
                from: get_u64(row, 2)?,
                to: get_u64(row, 3)?,
                crc: get_u32(row, 4)?,
                body: sql::get_bytes(row, 5)?,
            };
            parts.rows.entry(get_id(row, 0, RunId::from_slice)?).or_default().push(stored);
        }
        for row in rows_of(rows, 2) {
            let verdict = StoredVerdict { intent: get_u64(row, 1)?, fate: sealed(row, 2)? };
            parts.verdicts.entry(get_id(row, 0, RunId::from_slice)?).or_default().push(verdict);
        }
        Ok(parts)
    }

    /// The recording of a run, as often as it is asked for.
    pub(super) fn of(&self, run: RunId, tail: u64, mark: u32) -> Result<Recording> {
        let lost = || Failed::Corrupt { run, seq: 0, record: "input", why: "it is missing".to_owned() };
        Ok(Recording {
            input: self.inputs.get(&run).cloned().ok_or_else(lost)?,
            rows: self.rows.get(&run).cloned().unwrap_or_default(),
            verdicts: self.verdicts.get(&run).cloned().unwrap_or_default(),
            tail,
            mark,
        })
    }
}

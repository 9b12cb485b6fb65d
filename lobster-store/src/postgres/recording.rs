//! Reading recordings, for restores and for people.
//!
//! Invariant: a run's row and what it has are read by one statement, and so under one snapshot; bytes are returned as they are.

use super::{
    Postgres,
    sql::{Args, get, get_owner, get_run, get_sealed, get_u32, get_u64},
};
use crate::contract::{
    Failed, Grant, Incarnation, Mark, Recording, Restored, Result, RunId, RunState, Sealed, Seq, Snapshot, StoredPart, StoredRow,
    StoredVerdict,
};
use sqlx::postgres::{PgArguments, PgRow};
use std::collections::HashMap;
use uuid::Uuid;

/// Recordings read in one call. Bounds the memory between the driver and us.
const RUNS: usize = 64;

/// Everything that runs have. The first column says what a row is.
const READ: &str = "
SELECT 0::int2, id, tail, mark, epoch, state::int8, NULL::bytea, owner FROM @runs WHERE id = ANY($1::uuid[])
UNION ALL SELECT 1::int2, run, 0, 0, 0, crc, body, NULL FROM @inputs WHERE run = ANY($1::uuid[])
UNION ALL SELECT 2::int2, run, seq, 0, 0, crc, body, NULL FROM @manifests WHERE run = ANY($1::uuid[])
UNION ALL SELECT 3::int2, run, id, 0, 0, crc, body, NULL FROM @parts WHERE run = ANY($1::uuid[])
UNION ALL SELECT 4::int2, run, seq_from, seq_to, epoch, crc, body, NULL FROM @deltas WHERE run = ANY($1::uuid[])
UNION ALL SELECT 5::int2, run, seq_from, seq_to, epoch, crc, body, NULL FROM @changes WHERE run = ANY($1::uuid[])
UNION ALL SELECT 6::int2, run, intent, 0, 0, crc, body, NULL FROM @verdicts_in WHERE run = ANY($1::uuid[])";

impl Postgres {
    pub(super) async fn restore_runs(&self, incarnation: Incarnation, grants: &[Grant]) -> Result<Vec<Restored>> {
        let mut answers = Vec::with_capacity(grants.len());
        for grants in grants.chunks(RUNS) {
            let ids: Vec<Uuid> = grants.iter().map(|grant| grant.run.0).collect();
            let mut found = Recordings::read(&self.read(READ, || of_runs(&ids)).await?)?;
            for grant in grants {
                let holds = found.fences.get(&grant.run).is_some_and(|fence| fence.names(incarnation, grant.epoch));
                answers.push(if holds { Restored::Recording(found.of(grant.run)?) } else { Restored::Fenced });
            }
        }
        Ok(answers)
    }

    /// The recording of one run, by a call of `read`.
    pub(super) fn recording(run: RunId, rows: &[PgRow]) -> Result<Recording> {
        Recordings::read(rows)?.of(run)
    }

    pub(super) fn recording_text(&self) -> String {
        self.text(READ)
    }
}

pub(super) fn of_runs(ids: &[Uuid]) -> PgArguments {
    Args::default().with(ids).done()
}

struct Fence {
    tail: Seq,
    mark: Mark,
    epoch: u64,
    running: bool,
    owner: Option<Incarnation>,
}

impl Fence {
    fn names(&self, owner: Incarnation, epoch: u64) -> bool {
        self.running && self.owner == Some(owner) && self.epoch == epoch
    }
}

/// What several runs have.
#[derive(Default)]
struct Recordings {
    fences: HashMap<RunId, Fence>,
    inputs: HashMap<RunId, Sealed>,
    manifests: HashMap<RunId, (Seq, Sealed)>,
    parts: HashMap<RunId, Vec<StoredPart>>,
    deltas: HashMap<RunId, Vec<StoredRow>>,
    changes: HashMap<RunId, Vec<StoredRow>>,
    verdicts: HashMap<RunId, Vec<StoredVerdict>>,
}

impl Recordings {
    fn read(rows: &[PgRow]) -> Result<Self> {
        let mut all = Self::default();
        for row in rows {
            let run = get_run(row, 1)?;
            match get::<i16>(row, 0)? {
                0 => _ = all.fences.insert(run, fence(row)?),
                1 => _ = all.inputs.insert(run, get_sealed(row, 5)?),
                2 => _ = all.manifests.insert(run, (get_u64(row, 2)?, get_sealed(row, 5)?)),
                3 => all.parts.entry(run).or_default().push(StoredPart { id: get_u64(row, 2)?, sealed: get_sealed(row, 5)? }),
                4 => all.deltas.entry(run).or_default().push(stored_row(row)?),
                5 => all.changes.entry(run).or_default().push(stored_row(row)?),
                _ => all
                    .verdicts
                    .entry(run)
                    .or_default()
                    .push(StoredVerdict { intent: get_u64(row, 2)?, fate: get_sealed(row, 5)? }),
            }
        }
        // The statement promises no order.
        all.parts.values_mut().for_each(|parts| parts.sort_unstable_by_key(|part| part.id));
        all.deltas.values_mut().for_each(|rows| rows.sort_unstable_by_key(|row| row.from));
        all.changes.values_mut().for_each(|rows| rows.sort_unstable_by_key(|row| row.from));
        all.verdicts.values_mut().for_each(|verdicts| verdicts.sort_unstable_by_key(|verdict| verdict.intent));
        Ok(all)
    }

    /// The recording of a run, as often as it is asked for.
    fn of(&mut self, run: RunId) -> Result<Recording> {
        let lost = |record| Failed::Corrupt { run, seq: 0, record, why: "it is missing".to_owned() };
        let (tail, mark) = self.fences.get(&run).map(|fence| (fence.tail, fence.mark)).ok_or_else(|| lost("run"))?;
        let manifest = self.manifests.get(&run).cloned();
        Ok(Recording {
            input: self.inputs.get(&run).cloned().ok_or_else(|| lost("input"))?,
            snapshot: manifest.map(|(seq, manifest)| Snapshot { seq, manifest, parts: all_of(&self.parts, run) }),
            deltas: all_of(&self.deltas, run),
            changes: all_of(&self.changes, run),
            verdicts: all_of(&self.verdicts, run),
            tail,
            mark,
        })
    }
}

fn fence(row: &PgRow) -> Result<Fence> {
    let state = get::<i64>(row, 5)?;
    Ok(Fence {
        tail: get_u64(row, 2)?,
        mark: get_u32(row, 3)?,
        epoch: get_u64(row, 4)?,
        running: state == i64::from(RunState::Running.number()),
        owner: get_owner(row, 7)?,
    })
}

fn stored_row(row: &PgRow) -> Result<StoredRow> {
    Ok(StoredRow { from: get_u64(row, 2)?, to: get_u64(row, 3)?, epoch: get_u64(row, 4)?, sealed: get_sealed(row, 5)? })
}

fn all_of<T: Clone>(found: &HashMap<RunId, Vec<T>>, run: RunId) -> Vec<T> {
    found.get(&run).cloned().unwrap_or_default()
}

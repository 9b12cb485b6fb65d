//! What a batch writes, as statements of a few sizes.
//!
//! Invariant: a run is in one list only, and each list is written by one kind of statement.

use super::{
    append::sealed_args,
    sql::{Args, ROWS_MAX, bucket, insert, values},
    writer::Txn,
};
use crate::contract::{Offer, Result, Row, RunId, RunState, Sealed, Seen, Then};

/// What a batch writes.
pub(super) struct Writes {
    synced: bool,
    deltas: Vec<NewRow>,
    changes: Vec<NewRow>,
    tails: Vec<NewTail>,
    ends: Vec<(NewTail, Then)>,
    outcomes: Vec<(RunId, Sealed)>,
}

/// A half of an offered row.
struct NewRow {
    run: RunId,
    epoch: u64,
    from: u64,
    to: u64,
    sealed: Sealed,
}

struct NewTail {
    run: RunId,
    tail: u64,
    mark: u32,
    progress: bool,
}

/// What `then` changes.
pub(super) struct End<'o> {
    state: RunState,
    due: Option<i64>,
    reason: &'o str,
    ended: Option<i64>,
    attempt_back: bool,
}

impl<'o> End<'o> {
    pub(super) fn of(then: &'o Then) -> Self {
        let plain = Self { state: Self::state(then), due: None, reason: "", ended: None, attempt_back: false };
        match then {
            Then::Evict { due, reason, wake: _ } => Self { due: Some(due.0), reason, attempt_back: true, ..plain },
            Then::Release => Self { attempt_back: true, ..plain },
            Then::Hold { reason, wake: _ } => Self { reason, ..plain },
            Then::Finish { state: _, outcome: _, at } => Self { ended: Some(at.0), ..plain },
        }
    }

    /// The state that it ends in.
    pub(super) fn state(then: &Then) -> RunState {
        match then {
            Then::Evict { .. } | Then::Release => RunState::Ready,
            Then::Hold { .. } => RunState::Held,
            Then::Finish { state, .. } => *state,
        }
    }

    /// Five arguments.
    pub(super) fn push(&self, args: &mut Args) {
        args.push(i64::from(self.state.number()));
        args.push(self.due);
        args.push(self.reason);
        args.push(self.ended);
        args.push(i64::from(self.attempt_back));
    }
}

const DELTAS: &str = "lobster_deltas (run, seq_from, seq_to, epoch, crc, body)";
const CHANGES: &str = "lobster_changes (run, seq_from, seq_to, epoch, crc, body)";
const OUTCOMES: &str = "lobster_outcomes (run, crc, body)";

impl Writes {
    pub(super) fn new(synced: bool) -> Self {
        Self { synced, deltas: Vec::new(), changes: Vec::new(), tails: Vec::new(), ends: Vec::new(), outcomes: Vec::new() }
    }

    pub(super) fn add(&mut self, offer: Offer, seen: &Seen) {
        let Offer { run, epoch, rows, progress, then, head: _ } = offer;
        // A synced batch writes each row it locked: what was appended to it before is synced with it.
        if seen.rows == 0 && !seen.then && !self.synced {
            return;
        }
        for Row { from, to, deltas, changes, .. } in rows.into_iter().take(seen.rows) {
            let half = |sealed| NewRow { run, epoch, from, to, sealed };
            self.deltas.extend(deltas.map(half));
            self.changes.extend(changes.map(half));
        }
        let tail = NewTail { run, tail: seen.tail, mark: seen.mark, progress: progress && seen.rows > 0 };
        match then.filter(|_| seen.then) {
            None => self.tails.push(tail),
            Some(then) => {
                if let Then::Finish { outcome, .. } = &then {
                    self.outcomes.push((run, outcome.clone()));
                }
                self.ends.push((tail, then));
            }
        }
    }

    pub(super) async fn commit(self, txn: &mut Txn) -> Result<()> {
        if self.tails.is_empty() && self.ends.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        let mut args = Args::default();
        for (table, rows) in [(DELTAS, &self.deltas), (CHANGES, &self.changes)] {
            for chunk in rows.chunks(ROWS_MAX) {
                let size = bucket(chunk.len());
                text += &insert(table, size, 6);
                chunk.iter().for_each(|row| row.push(&mut args));
                args.nulls((size - chunk.len()) * 6);
            }
        }
        for chunk in self.tails.chunks(ROWS_MAX) {
            let size = bucket(chunk.len());
            text += &move_tails(size);
            for tail in chunk {
                tail.push(&mut args);
            }
            args.nulls((size - chunk.len()) * 4);
        }
        for chunk in self.ends.chunks(ROWS_MAX) {
            let size = bucket(chunk.len());
            text += &end_runs(size);
            for (tail, then) in chunk {
                tail.push(&mut args);
                End::of(then).push(&mut args);
            }
            args.nulls((size - chunk.len()) * 9);
        }
        for chunk in self.outcomes.chunks(ROWS_MAX) {
            let size = bucket(chunk.len());
            text += &insert(OUTCOMES, size, 3);
            for (run, outcome) in chunk {
                args.push(run.0.as_bytes().as_slice());
                args.push(i64::from(outcome.crc));
                args.body(&outcome.body);
            }
            args.nulls((size - chunk.len()) * 3);
        }
        txn.commit(&text, args).await?;
        Ok(())
    }
}

impl NewRow {
    fn push(&self, args: &mut Args) {
        args.push(self.run.0.as_bytes().as_slice());
        args.push(self.from.cast_signed());
        args.push(self.to.cast_signed());
        args.push(self.epoch.cast_signed());
        sealed_args(args, &self.sealed);
    }
}

impl NewTail {
    fn push(&self, args: &mut Args) {
        args.push(self.run.0.as_bytes().as_slice());
        args.push(self.tail.cast_signed());
        args.push(i64::from(self.mark));
        args.push(i64::from(self.progress));
    }
}

/// `syncs` grows, so that a synced batch always has something to write.
pub(super) fn move_tails(size: usize) -> String {
    format!(
        "UPDATE lobster_runs SET tail = v.column2, mark = v.column3, syncs = syncs + 1, \
         attempts = CASE v.column4 WHEN 1 THEN 0 ELSE attempts END, deaths = CASE v.column4 WHEN 1 THEN 0 ELSE deaths END \
         FROM (VALUES {}) AS v WHERE lobster_runs.id = v.column1;",
        values(size, 4)
    )
}

pub(super) fn end_runs(size: usize) -> String {
    format!(
        "UPDATE lobster_runs SET tail = v.column2, mark = v.column3, syncs = syncs + 1, \
         attempts = max(0, CASE v.column4 WHEN 1 THEN 0 ELSE attempts END - v.column9), \
         deaths = CASE v.column4 WHEN 1 THEN 0 ELSE deaths END, \
         state = v.column5, owner = NULL, due = coalesce(v.column6, due), reason = v.column7, ended = v.column8 \
         FROM (VALUES {}) AS v WHERE lobster_runs.id = v.column1;",
        values(size, 9)
    )
}

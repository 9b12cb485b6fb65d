//! Arguments and columns.
//!
//! Invariant: numbers that are unsigned here are stored as the signed numbers of the same bits.

use crate::contract::{Failed, Incarnation, NodeState, Result, RunId, RunRow, RunState, Sealed, Wall};
use bytes::Bytes;
use sqlx::{
    Arguments, Decode, Encode, Row, Type,
    postgres::{PgArguments, PgRow, Postgres},
};
use uuid::Uuid;

/// Arguments of one statement, in order.
#[derive(Default)]
pub(super) struct Args(PgArguments);

impl Args {
    pub(super) fn with<'q, T: Encode<'q, Postgres> + Type<Postgres>>(mut self, value: T) -> Self {
        self.0.add(value).expect("numbers, texts, ids, bytes and arrays of them are always encoded for PostgreSQL");
        self
    }

    pub(super) fn done(self) -> PgArguments {
        self.0
    }
}

/// A due time is written by the clock of a process and looked at by that of the server. What they differ by, in milliseconds: a statement
/// that writes one adds it, so that a wait is as long as it was meant to be. `now` is the process's. A difference below five seconds is what
/// a statement may take on its way, and none.
pub(super) fn skew(now: &str) -> String {
    format!(
        "(SELECT CASE WHEN abs(c.ms) > 5000 THEN c.ms ELSE 0 END FROM
        (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::int8 - {now}::int8 AS ms) c)"
    )
}

/// A due time to which any difference of clocks can be added.
pub(super) fn due(at: Wall) -> i64 {
    at.0.clamp(i64::MIN / 2, i64::MAX / 2)
}

/// A column.
pub(super) fn get<'r, T: Decode<'r, Postgres> + Type<Postgres>>(row: &'r PgRow, at: usize) -> Result<T> {
    row.try_get(at).map_err(|error| Failed::Internal(format!("column {at}: {error}")))
}

pub(super) fn get_run(row: &PgRow, at: usize) -> Result<RunId> {
    get::<Uuid>(row, at).map(RunId)
}

pub(super) fn get_owner(row: &PgRow, at: usize) -> Result<Option<Incarnation>> {
    Ok(get::<Option<Uuid>>(row, at)?.map(Incarnation))
}

pub(super) fn get_u64(row: &PgRow, at: usize) -> Result<u64> {
    get::<i64>(row, at).map(i64::cast_unsigned)
}

pub(super) fn get_u32(row: &PgRow, at: usize) -> Result<u32> {
    let number = get::<i64>(row, at)?;
    u32::try_from(number).map_err(|_| Failed::Internal(format!("column {at}: {number} is out of range")))
}

pub(super) fn get_state(row: &PgRow, at: usize) -> Result<RunState> {
    let number = get::<i16>(row, at)?;
    let state = u8::try_from(number).ok().and_then(RunState::from_number);
    state.ok_or_else(|| Failed::Internal(format!("there is no state {number} of a run")))
}

pub(super) fn get_node_state(row: &PgRow, at: usize) -> Result<NodeState> {
    match get::<i16>(row, at)? {
        0 => Ok(NodeState::Active),
        1 => Ok(NodeState::Left),
        2 => Ok(NodeState::Failed),
        number => Err(Failed::Internal(format!("there is no state {number} of a node"))),
    }
}

/// A sealed record from two columns, the checksum first.
pub(super) fn get_sealed(row: &PgRow, at: usize) -> Result<Sealed> {
    Ok(Sealed { crc: get_u32(row, at)?, body: Bytes::copy_from_slice(get::<&[u8]>(row, at + 1)?) })
}

/// The fence, from the columns `owner, epoch, state, tail, mark, cancel, wake`, which come first.
pub(super) fn fence(row: &PgRow) -> Result<RunRow> {
    Ok(RunRow {
        owner: get_owner(row, 0)?,
        epoch: get_u64(row, 1)?,
        state: get_state(row, 2)?,
        tail: get_u64(row, 3)?,
        mark: get_u32(row, 4)?,
        cancel: get(row, 5)?,
        wake: get_u64(row, 6)?,
    })
}

/// PostgreSQL has no NUL in a text. Texts for people lose it; others never have one.
pub(super) fn for_people(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

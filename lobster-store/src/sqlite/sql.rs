//! Statements and rows: how the tier talks to SQLite in as few calls of the driver as possible.
//!
//! Invariant: the text of a statement depends only on bucket sizes, never on values, so that it is prepared once.
//!
//! The driver hands each call to a thread of its connection and waits for it. One call may hold several statements: they
//! take the arguments in order (`?`), or by number (`$1`), and numbers count over the whole call.

use super::failure::{self, Stage};
use crate::contract::{Failed, Result, RunState};
use bytes::Bytes;
use futures_core::Stream as _;
use sqlx::{
    Arguments, AssertSqlSafe, Decode, Either, Encode, Executor, Row, Type,
    sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqliteRow},
};
use std::{fmt::Write, future::poll_fn, pin::Pin};

/// Rows of one statement in a multi-row statement. More are spread over several.
pub(super) const ROWS_MAX: usize = 1024;

/// Arguments of one call, in order.
#[derive(Default)]
pub(super) struct Args {
    args: SqliteArguments,
    body_bytes: usize,
}

impl Args {
    pub(super) fn push<'q, T: Encode<'q, Sqlite> + Type<Sqlite>>(&mut self, value: T) {
        self.args.add(value).expect("an integer, a text or a blob is always encoded for SQLite");
    }

    /// Pushes a payload, which may be large.
    pub(super) fn body(&mut self, body: &Bytes) {
        self.body_bytes += body.len();
        self.push(body.as_ref());
    }

    /// About how many pages statements with these arguments write.
    pub(super) fn pages(&self) -> usize {
        2 + self.args.len() / 64 + self.body_bytes / 4096
    }

    pub(super) fn nulls(&mut self, count: usize) {
        for _ in 0..count {
            self.push(None::<i64>);
        }
    }

    /// Number of the argument that was pushed last, as `$n` names it.
    pub(super) fn last(&self) -> usize {
        self.args.len()
    }

    /// Pushes `value` and returns the number that names it.
    pub(super) fn number<'q, T: Encode<'q, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> usize {
        self.push(value);
        self.last()
    }
}

/// How far a call came.
pub(super) struct Ran {
    /// Rows of each statement that was completed.
    pub(super) rows: Vec<Vec<SqliteRow>>,
    /// Why the next one was not.
    pub(super) error: Option<sqlx::Error>,
}

/// Runs all statements of `sql` as one call.
pub(super) async fn run(connection: &mut SqliteConnection, sql: String, args: Args) -> Ran {
    // No fewer than there are: where a semicolon ends no statement, the end of the stream is waited for.
    let statements = sql.split_terminator(';').count();
    let mut stream = connection.fetch_many(sqlx::query_with(AssertSqlSafe(sql), args.args));
    let mut ran = Ran { rows: Vec::new(), error: None };
    let mut rows = Vec::new();
    // Nothing comes after the last statement: waiting to be told so would only be one more time to be woken.
    while ran.rows.len() < statements
        && let Some(next) = poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await
    {
        match next {
            Ok(Either::Right(row)) => rows.push(row),
            Ok(Either::Left(_)) => ran.rows.push(std::mem::take(&mut rows)),
            Err(error) => {
                ran.error = Some(error);
                break;
            }
        }
    }
    ran
}

/// Runs statements outside any transaction of the tier's. Their rows, one after the other.
pub(super) async fn all(connection: &mut SqliteConnection, text: &str) -> Result<Vec<SqliteRow>> {
    let ran = run(connection, text.to_owned(), Args::default()).await;
    match &ran.error {
        None => Ok(ran.rows.into_iter().flatten().collect()),
        Some(error) => Err(failure::of_sqlite(Stage::Read, error)),
    }
}

/// Value of column `at`.
pub(super) fn get<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(row: &'r SqliteRow, at: usize) -> Result<T> {
    row.try_get(at).map_err(|error| Failed::Internal(format!("a column has not the type it was written with: {error}")))
}

/// An unsigned number, which SQLite keeps as a signed one of the same bits.
pub(super) fn get_u64(row: &SqliteRow, at: usize) -> Result<u64> {
    get::<i64>(row, at).map(i64::cast_unsigned)
}

/// A number of 32 bits.
pub(super) fn get_u32(row: &SqliteRow, at: usize) -> Result<u32> {
    u32::try_from(get::<i64>(row, at)?).map_err(|_| Failed::Internal("a number is over its range".to_owned()))
}

/// A state of a run.
pub(super) fn get_state(row: &SqliteRow, at: usize) -> Result<RunState> {
    let number = get::<i64>(row, at)?;
    u8::try_from(number)
        .ok()
        .and_then(RunState::from_number)
        .ok_or_else(|| Failed::Internal(format!("there is no state {number}")))
}

/// Something with an id of sixteen bytes.
pub(super) fn get_id<T>(row: &SqliteRow, at: usize, of: impl Fn(&[u8]) -> Option<T>) -> Result<T> {
    of(get::<&[u8]>(row, at)?).ok_or_else(|| Failed::Internal("an id has not sixteen bytes".to_owned()))
}

/// Rows of the statement `at` of a call.
pub(super) fn rows_of(rows: &[Vec<SqliteRow>], at: usize) -> &[SqliteRow] {
    rows.get(at).map_or(&[], Vec::as_slice)
}

/// The size a statement of `count` rows is written for.
pub(super) fn bucket(count: usize) -> usize {
    count.next_power_of_two()
}

/// `(?, ?), (?, ?), ..`: `rows` rows of `columns` values.
pub(super) fn values(rows: usize, columns: usize) -> String {
    let mut text = String::with_capacity(rows * (columns * 2 + 4));
    for row in 0..rows {
        text.push_str(if row == 0 { "(?" } else { ", (?" });
        for _ in 1..columns {
            text.push_str(",?");
        }
        text.push(')');
    }
    text
}

/// `?, ?, ..` for an IN list.
pub(super) fn marks(count: usize) -> String {
    let mut text = "?,".repeat(count);
    text.pop();
    text
}

/// `$from, $from+1, ..`: `count` numbered arguments.
pub(super) fn numbered(from: usize, count: usize) -> String {
    let mut text = String::with_capacity(count * 5);
    for number in from..from + count {
        let comma = if number == from { "" } else { "," };
        write!(text, "{comma}${number}").expect("writing to a string never fails");
    }
    text
}

/// `INSERT INTO <head>` of up to [`ROWS_MAX`] rows. Rows whose first value is null are padding.
pub(super) fn insert(head: &str, rows: usize, columns: usize) -> String {
    format!("INSERT INTO {head} {};", source(rows, columns))
}

/// The same, in place of rows with the same keys.
pub(super) fn replace(head: &str, rows: usize, columns: usize) -> String {
    format!("REPLACE INTO {head} {};", source(rows, columns))
}

fn source(rows: usize, columns: usize) -> String {
    match rows {
        1 => format!("VALUES {}", values(1, columns)),
        _ => format!("SELECT * FROM (VALUES {}) WHERE column1 IS NOT NULL", values(rows, columns)),
    }
}

/// Bytes of a blob.
pub(super) fn get_bytes(row: &SqliteRow, at: usize) -> Result<Bytes> {
    get::<&[u8]>(row, at).map(Bytes::copy_from_slice)
}

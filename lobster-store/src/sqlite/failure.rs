//! What an error of SQLite or of a file means to a caller.
//!
//! Invariant: an error that leaves open whether a commit applied is [`Failed::Unknown`], never [`Failed::Unavailable`].

use crate::contract::Failed;
use sqlx::Error;

/// Where in a call the error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A reading statement, or opening.
    Read,
    /// In a writing transaction, before its COMMIT was reached.
    Write,
    /// The COMMIT itself.
    Commit,
}

/// Primary result codes of SQLite, <https://www.sqlite.org/rescode.html>.
mod code {
    pub(super) const PERM: u32 = 3;
    pub(super) const BUSY: u32 = 5;
    pub(super) const LOCKED: u32 = 6;
    pub(super) const NOMEM: u32 = 7;
    pub(super) const READONLY: u32 = 8;
    pub(super) const INTERRUPT: u32 = 9;
    pub(super) const IOERR: u32 = 10;
    pub(super) const CORRUPT: u32 = 11;
    pub(super) const FULL: u32 = 13;
    pub(super) const CANTOPEN: u32 = 14;
    pub(super) const PROTOCOL: u32 = 15;
    pub(super) const CONSTRAINT: u32 = 19;
    pub(super) const NOLFS: u32 = 22;
    pub(super) const AUTH: u32 = 23;
    pub(super) const NOTADB: u32 = 26;
}

fn primary(error: &Error) -> Option<u32> {
    let extended: u32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(extended & 0xff)
}

/// Did the disk fail? Then what the connection believes to be synced may not be.
pub(super) fn is_io(error: &Error) -> bool {
    primary(error) == Some(code::IOERR)
}

/// Is this what a ROLLBACK says when there is nothing to roll back? SQLite has no code of its own for it.
pub(super) fn is_no_transaction(error: &Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().contains("no transaction is active"))
}

pub(super) fn of_sqlite(stage: Stage, error: &Error) -> Failed {
    let text = error.to_string();
    match primary(error) {
        Some(code::CORRUPT) => Failed::Refused(format!("the database file is damaged ({text}); restore it from a backup")),
        Some(code::NOTADB) => Failed::Refused(format!("the file is not a SQLite database ({text})")),
        Some(code::READONLY | code::PERM | code::AUTH | code::NOLFS) => Failed::Refused(text),
        // A full disk fails the write of a frame, before the commit's own frame is whole: the transaction is rolled back.
        Some(code::FULL) => Failed::Unavailable(format!("the disk is full ({text})")),
        Some(code::IOERR) if stage != Stage::Read => Failed::Unknown(text),
        // A deferred one: the transaction is still open, and will be rolled back.
        Some(code::CONSTRAINT) => Failed::Internal(text),
        _ if stage == Stage::Commit => Failed::Unknown(text),
        Some(code::BUSY | code::LOCKED | code::CANTOPEN | code::NOMEM | code::INTERRUPT | code::PROTOCOL | code::IOERR) => {
            Failed::Unavailable(text)
        }
        Some(_) => Failed::Internal(text),
        None => match error {
            Error::WorkerCrashed | Error::Io(_) if stage == Stage::Read => Failed::Unavailable(text),
            Error::WorkerCrashed | Error::Io(_) => Failed::Unknown(text),
            _ => Failed::Internal(text),
        },
    }
}

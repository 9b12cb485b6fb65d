//! What an error of PostgreSQL or of a connection means to a caller.
//!
//! Invariant: an error that leaves open whether a statement applied is [`Failed::Unknown`], never [`Failed::Unavailable`].

use crate::contract::Failed;
use sqlx::{
    Error,
    postgres::{PgDatabaseError, PgSeverity},
};

/// What was under way when the error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing that changes anything: connecting, reading, or a transaction before its COMMIT.
    Read,
    /// A statement that commits by itself, or a COMMIT.
    Write,
}

/// The error as the server told it, if it did.
pub(super) fn told(error: &Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// A statement whose prepared plan does not fit the tables any more, or that this connection does not know: prepared anew, it works.
pub(super) fn is_stale_plan(error: &Error) -> bool {
    told(error).is_some_and(|told| told.code() == "26000" || changed_tables(told))
}

/// "Cached plan must not change result type": it has no code of its own, and its text is in the server's language.
fn changed_tables(told: &PgDatabaseError) -> bool {
    told.code() == "0A000" && told.routine() == Some("RevalidateCachedQuery")
}

/// The server answers that it will not or can not do this, rather than that it is about to end.
pub(super) fn is_refusal(error: &Error) -> bool {
    told(error).is_some_and(|told| told.severity() == PgSeverity::Error && !told.code().starts_with("57"))
}

/// After such an error a connection is as good as before.
pub(super) fn leaves_connection(error: &Error) -> bool {
    told(error).is_some_and(|told| told.severity() == PgSeverity::Error)
}

pub(super) fn of(stage: Stage, error: &Error) -> Failed {
    match told(error) {
        Some(told) => of_server(stage, told),
        None => of_driver(stage, error),
    }
}

/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn of_server(stage: Stage, told: &PgDatabaseError) -> Failed {
    let code = told.code();
    let text = format!("{} ({code})", told.message());
    // An ERROR rolls its statement back. Whatever ends the session may come after a commit whose answer it replaces.
    let ended = matches!(told.severity(), PgSeverity::Fatal | PgSeverity::Panic);
    if (ended && stage == Stage::Write) || code == "40003" {
        return Failed::Unknown(text);
    }
    match code {
        _ if changed_tables(told) => Failed::Unavailable(format!("the tables were changed meanwhile: {text}")),
        "25P03" => Failed::Unavailable(format!("this process was away for too long within a transaction: {text}")),
        "26000" | "42P05" => {
            Failed::Refused(format!("{text}: is this a pooler in transaction mode? Say so by `lobster_pooled=true` in the URL"))
        }
        "55P03" => Failed::Unavailable(format!("somebody's open transaction is in the way: {text}")),
        "25006" => Failed::Unavailable(format!("the server is read-only: {text}; is it a standby?")),
        "53100" => Failed::Unavailable(format!("the server's disk is full: {text}")),
        "53300" => Failed::Unavailable(format!("the server takes no more connections: {text}")),
        "42501" => Failed::Refused(format!("a privilege is missing: {text}; see the guide \"From one file to a fleet\"")),
        "42P01" | "3F000" | "42703" => {
            Failed::Refused(format!("the schema is not what this code expects: {text}; was it dropped, or changed by hand?"))
        }
        "3D000" => Failed::Refused(text),
        "XX001" | "XX002" => Failed::Refused(format!("the database is damaged: {text}; restore it from a backup")),
        _ => match &code[..code.len().min(2)] {
            // Connection; rollback by a conflict; resources; not in that state (locks); operator; system.
            "08" | "40" | "53" | "55" | "57" | "58" => Failed::Unavailable(text),
            "28" => Failed::Refused(format!("the server does not let this role in: {text}")),
            _ => Failed::Internal(text),
        },
    }
}

fn of_driver(stage: Stage, error: &Error) -> Failed {
    let text = error.to_string();
    match (error, stage) {
        (Error::Configuration(_) | Error::Tls(_), _) => Failed::Refused(text),
        (Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed, Stage::Read) => Failed::Unavailable(text),
        (Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed, Stage::Write) => Failed::Unknown(text),
        _ => Failed::Internal(text),
    }
}

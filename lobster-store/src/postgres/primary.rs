//! Which of the servers that a URL has led to is the primary.
//!
//! Invariant: a process that has once spoken to a promoted server speaks no more to the one that it was promoted from.
//!
//! A standby that is promoted begins a new timeline, with a higher number ("Timelines" in PostgreSQL's chapter on continuous archiving);
//! the server that it followed, should it come back or live on, stays on its own. What has no such numbers is taken as it is.

use super::{failure, sql::get};
use crate::contract::{Failed, Result};
use sqlx::{
    Executor,
    postgres::{PgConnection, PgRow},
};
use std::sync::{Mutex, PoisonError};

/// No row: a standby.
const ASK: &str = "
SELECT system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int8
FROM pg_control_system() WHERE NOT pg_is_in_recovery()";

/// A server, and which part of its history it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeline {
    system: i64,
    number: i64,
}

impl Timeline {
    /// Of the server behind a connection. `None`: it does not say.
    ///
    /// # Errors
    /// [`Failed::Unavailable`] if it is a standby, or does not answer.
    pub(super) async fn of(connection: &mut PgConnection) -> Result<Option<Self>> {
        let rows: Vec<PgRow> = match connection.fetch_all(ASK).await.map_err(|error| failure::of(failure::Stage::Read, &error)) {
            // It answers, and will not or cannot tell.
            Err(Failed::Refused(_) | Failed::Internal(_)) => return Ok(None),
            rows => rows?,
        };
        let row = rows.first().ok_or_else(standby)?;
        Ok(Some(Self { system: get(row, 0)?, number: get(row, 1)? }))
    }
}

pub(super) fn standby() -> Failed {
    Failed::Unavailable("the server is a standby: it takes no writes until it is promoted".to_owned())
}

/// The newest that one process has spoken to.
#[derive(Debug, Default)]
pub(super) struct Primary(Mutex<Option<Timeline>>);

impl Primary {
    /// May what was found at the end of a new connection be spoken to? If so, it is what every other is measured by from now on.
    ///
    /// # Errors
    /// [`Failed::Unavailable`] if it is a predecessor of what this process has spoken to, or of another cluster.
    pub(super) fn admit(&self, found: Option<Timeline>) -> Result<()> {
        let Some(found) = found else { return Ok(()) };
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *newest {
            Some(known) if known.system != found.system => Err(Failed::Unavailable(format!(
                "the server is another one, with system identifier {} instead of {}: if it shall be used, start this process anew",
                found.system, known.system
            ))),
            Some(known) if known.number > found.number => Err(Failed::Unavailable(format!(
                "the server is on timeline {}, and one that was promoted is on {}: is it the old primary?",
                found.number, known.number
            ))),
            _ => {
                *newest = Some(found);
                Ok(())
            }
        }
    }

    /// Is this still the newest?
    pub(super) fn is_newest(&self, timeline: Option<Timeline>) -> bool {
        timeline.is_none() || *self.0.lock().unwrap_or_else(PoisonError::into_inner) == timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_leads_only_forward() {
        let primary = Primary::default();
        let on = |system, number| Some(Timeline { system, number });
        assert!(primary.admit(None).is_ok() && primary.admit(on(7, 1)).is_ok() && primary.is_newest(on(7, 1)));
        assert!(primary.admit(on(7, 3)).is_ok() && !primary.is_newest(on(7, 1)) && primary.is_newest(None));
        assert!(matches!(primary.admit(on(7, 2)), Err(Failed::Unavailable(why)) if why.contains("old primary")));
        assert!(matches!(primary.admit(on(8, 4)), Err(Failed::Unavailable(why)) if why.contains("another one")));
        assert!(primary.admit(None).is_ok() && primary.is_newest(on(7, 3)), "what was refused has changed nothing");
    }
}

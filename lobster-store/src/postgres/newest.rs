//! Which of the servers that a URL has led to is the newest primary.
//!
//! Invariant: a process that has once spoken to a promoted server asks no more of the one that it was promoted from.
//!
//! A standby that is promoted begins a new timeline, with a higher number ("Timelines" in PostgreSQL's chapter on continuous archiving);
//! the server that it followed, should it come back or live on, stays on its own. Two that were promoted from the same one have the same
//! number, and cannot be told apart. A process forgets what it has seen only when it ends.

use super::{
    failure::{self, Stage},
    sql::get,
};
use crate::{
    contract::{Failed, Result},
    planted,
};
use sqlx::{
    Executor,
    postgres::{PgConnection, PgRow},
};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// The timeline that a primary writes: a constant.
macro_rules! timeline {
    () => {
        "('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int8"
    };
}
pub(super) use timeline;

/// No row: a standby.
const ASK: &str = concat!("SELECT system_identifier, ", timeline!(), " FROM pg_control_system() WHERE NOT pg_is_in_recovery()");

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
    async fn of(connection: &mut PgConnection) -> Result<Option<Self>> {
        let rows: Vec<PgRow> = match connection.fetch_all(ASK).await {
            // It answers, and may or can not tell.
            Err(error) if failure::is_refusal(&error) => return Ok(None),
            rows => rows.map_err(|error| failure::of(Stage::Read, &error))?,
        };
        let row = rows.first().ok_or_else(is_standby)?;
        Ok(Some(Self { system: get(row, 0)?, number: get(row, 1)? }))
    }
}

/// Why a standby is not used.
pub(super) fn is_standby() -> Failed {
    Failed::Unavailable("the server is a standby: it takes no writes until it is promoted".to_owned())
}

/// The newest timeline that one process has seen.
#[derive(Debug, Default)]
pub(super) struct Newest {
    seen: Mutex<Option<Timeline>>,
    /// It was said that servers do not say.
    warned: AtomicBool,
}

impl Newest {
    /// May this new connection be used? If so, what it leads to is what every other is measured by from now on.
    ///
    /// # Errors
    /// [`Failed::Unavailable`] if it leads to a standby, to a predecessor of what this process has seen, to another cluster, or to a server
    /// that does not say what it is while another one did.
    pub(super) async fn admit(&self, connection: &mut PgConnection) -> Result<Option<Timeline>> {
        let found = Timeline::of(connection).await?;
        self.measure(found)?;
        Ok(found)
    }

    fn measure(&self, found: Option<Timeline>) -> Result<()> {
        let mut newest = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = match (*newest, found) {
            (None, None) => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "the server does not say which timeline it is on: after a failover its predecessor could not be told from it"
                    );
                }
                return Ok(());
            }
            (Some(_), None) => "the server does not say which timeline it is on, and another one did.".to_owned(),
            (Some(known), Some(found)) if known.system != found.system => {
                format!("the server is another one, with system identifier {} instead of {}.", found.system, known.system)
            }
            (Some(known), Some(found)) if known.number > found.number && !planted!("old_primary_is_used") => format!(
                "the server is on timeline {}, and this process has seen one on {}: is it the old primary?",
                found.number, known.number
            ),
            _ => {
                *newest = found;
                return Ok(());
            }
        };
        Err(Failed::Unavailable(format!("{refused} If it shall be used, start this process anew")))
    }

    /// The cluster, and the number of its newest timeline; `None`: servers do not say.
    pub(super) fn told(&self) -> Option<(i64, i64)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).map(|timeline| (timeline.system, timeline.number))
    }

    /// Is this what the newest connection led to?
    pub(super) fn is(&self, timeline: Option<Timeline>) -> bool {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) == timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_leads_only_forward() {
        let newest = Newest::default();
        let on = |system, number| Some(Timeline { system, number });
        assert!(newest.measure(None).is_ok() && newest.is(None));
        assert!(newest.measure(on(7, 1)).is_ok() && newest.is(on(7, 1)) && !newest.is(None));
        assert!(newest.measure(on(7, 3)).is_ok() && !newest.is(on(7, 1)));
        let refused = |found| match newest.measure(found) {
            Err(Failed::Unavailable(why)) if why.ends_with("start this process anew") => why,
            other => panic!("{other:?}"),
        };
        assert!(refused(on(7, 2)).contains("old primary"));
        assert!(refused(on(8, 4)).contains("another one"));
        assert!(refused(None).contains("does not say"));
        assert!(newest.is(on(7, 3)), "what was refused has changed nothing");
    }
}

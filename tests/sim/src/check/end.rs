//! The end: every run comes to one, and nothing happens that has no name in the rules.
//!
//! Invariant: with faults healed, waiting is never for ever.

use super::{Events, Verdict};
use crate::history::{End, Event};

/// I22: after the heal phase every run has ended; nothing panicked, was refused or set aside without a reason.
pub(super) fn ends(events: Events<'_>) -> Verdict {
    for (at, event) in events {
        match event {
            Event::Stuck { run, state, reason } => {
                return Err(format!("run {run} has not ended: {state:?}, {reason}"));
            }
            Event::Panicked { node, message } => return Err(format!("{at:?}: a task of node {node} panicked: {message}")),
            Event::Refused { run, message } => return Err(format!("{at:?}: a call of run {run} was refused: {message}")),
            Event::Held { run, reason } if !reason.contains("is in doubt") || reason.contains("not the code") => {
                return Err(format!("{at:?}: run {run} was held: {reason}"));
            }
            Event::Final { run, end: Some(End::Quarantined(why)), .. } => {
                return Err(format!("run {run} was quarantined: {why}"));
            }
            Event::Final { run, end: Some(End::Failure { message, refused: true }), .. } => {
                return Err(format!("run {run} failed as refused: {message}"));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::bad::*, *};
    use lobster_core::RunState;

    #[test]
    fn what_has_no_name_in_the_rules_is_seen() {
        let held = |reason: &str| at(vec![Event::Held { run: run(), reason: reason.into() }]);
        assert!(ends(&held("wire#0 is in doubt: the call failed; resolve it")).is_ok());
        assert!(ends(&held("forked recording: ..")).is_err());
        assert!(ends(&at(vec![Event::Stuck { run: run(), state: RunState::Running, reason: String::new() }])).is_err());
        assert!(ends(&at(vec![Event::Panicked { node: 1, message: String::new() }])).is_err());
        assert!(ends(&at(vec![Event::Refused { run: run(), message: String::new() }])).is_err());
        let ended =
            |end| at(vec![Event::Final { run: run(), key: None, state: RunState::Failed, results: vec![], end: Some(end) }]);
        assert!(ends(&ended(End::Failure { message: "its own".into(), refused: false })).is_ok());
        assert!(ends(&ended(End::Failure { message: "AmbiguousStep".into(), refused: true })).is_err());
        assert!(ends(&ended(End::Quarantined(String::new()))).is_err());
    }
}

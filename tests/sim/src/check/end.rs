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

//! The front door: submits.
//!
//! Invariant: judged by what clients were told.

use super::{Events, Verdict};
use crate::history::Event;
use std::collections::BTreeMap;

/// I6: a submit that was acknowledged is never lost, and a key names one run.
pub(super) fn submits(events: Events<'_>) -> Verdict {
    let mut runs = BTreeMap::new();
    for (at, event) in events {
        match event {
            Event::Submitted { key, run } => match runs.insert(key, *run) {
                Some(before) if before != *run => {
                    return Err(format!("{at:?}: key {key} was acknowledged as run {run}, and before as {before}"));
                }
                _ => {}
            },
            Event::Final { run, key: Some(key), .. } => match runs.remove(key) {
                Some(said) if said != *run => return Err(format!("key {key} names run {run}, and was acknowledged as {said}")),
                _ => {}
            },
            _ => {}
        }
    }
    match runs.first_key_value() {
        Some((key, run)) => Err(format!("run {run} of key {key} was acknowledged, and is gone")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::bad::*, *};
    use lobster_core::RunId;
    use uuid::Uuid;

    #[test]
    fn a_lost_or_doubled_submit_is_seen() {
        let submitted = |run| Event::Submitted { key: "run-0".into(), run };
        let other = RunId(Uuid::from_u128(8));
        assert!(submits(&at(vec![submitted(run()), submitted(run()), succeeded(&[], &[])])).is_ok());
        assert!(submits(&at(vec![submitted(run()), submitted(other), succeeded(&[], &[])])).is_err(), "two runs of one key");
        assert!(submits(&at(vec![submitted(other), succeeded(&[], &[])])).is_err(), "another one at the end");
        assert!(submits(&at(vec![submitted(run())])).is_err(), "it is gone");
    }
}

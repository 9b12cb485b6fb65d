//! Fencing: epochs, cancels and ends of runs.
//!
//! Invariant: judged on what applied in the store.

use super::{Events, Verdict};
use crate::history::{Event, Noted};
use std::collections::{BTreeMap, BTreeSet};

/// I3, I4: each claim raises the epoch by one, and nothing of an older epoch applies after it; rows are gapless.
pub(super) fn epochs(events: Events<'_>) -> Verdict {
    let mut epochs: BTreeMap<_, u64> = BTreeMap::new();
    let mut tails: BTreeMap<_, u64> = BTreeMap::new();
    for (at, event) in events {
        match event {
            Event::Claimed { run, epoch, node, .. } => {
                let before = epochs.insert(*run, *epoch).unwrap_or(0);
                if *epoch != before + 1 {
                    return Err(format!("{at:?}: node {node} claimed run {run} with epoch {epoch} after {before}"));
                }
            }
            Event::Appended { run, epoch, from, to, facts } => {
                let owner = epochs.get(run).copied().unwrap_or(0);
                if *epoch != owner {
                    return Err(format!("{at:?}: rows of epoch {epoch} applied to run {run}, which is in epoch {owner}"));
                }
                if facts.len() as u64 != to + 1 - from {
                    return Err(format!("{at:?}: rows {from}..={to} of run {run} hold {} facts", facts.len()));
                }
                match tails.insert(*run, *to) {
                    Some(tail) if tail + 1 != *from => {
                        return Err(format!("{at:?}: rows from {from} of run {run} applied behind {tail}"));
                    }
                    _ => {}
                }
            }
            // Tails go back to what was synced, which is not known here.
            Event::Crashed => tails.clear(),
            _ => {}
        }
    }
    Ok(())
}

/// I16: after a cancel no intent applies, no claim makes a call, and the run ends.
pub(super) fn cancelled(events: Events<'_>) -> Verdict {
    let mut asked = BTreeSet::new();
    for (at, event) in events {
        match event {
            Event::CancelAsked { run } => _ = asked.insert(*run),
            Event::Appended { run, facts, .. }
                if asked.contains(run) && facts.iter().any(|fact| matches!(fact, Noted::Intent { .. })) =>
            {
                return Err(format!("{at:?}: an intent of run {run} applied after its cancel"));
            }
            Event::Held { run, reason } if asked.contains(run) => {
                return Err(format!("{at:?}: run {run} was held after its cancel: {reason}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// I17: a run ends once, and nothing applies to it afterwards; what callers are told is that end.
pub(super) fn one_end(events: Events<'_>) -> Verdict {
    let mut ended = BTreeMap::new();
    let mut told = BTreeMap::new();
    for (at, event) in events {
        match event {
            Event::Ended { run, state } => {
                if let Some(before) = ended.insert(*run, *state) {
                    return Err(format!("{at:?}: run {run} ended as {state:?} after it had ended as {before:?}"));
                }
            }
            Event::Claimed { run, .. } | Event::Held { run, .. } if ended.contains_key(run) => {
                return Err(format!("{at:?}: {event:?} after the end of the run"));
            }
            Event::Told { run, end } => {
                if let Some(before) = told.insert(*run, end)
                    && before != end
                {
                    return Err(format!("{at:?}: run {run} was told as {end:?} after {before:?}"));
                }
            }
            Event::Final { run, state, end, .. } => {
                if ended.get(run).is_some_and(|before| before != state) {
                    return Err(format!("run {run} is {state:?} at the end, and was {:?}", ended.get(run)));
                }
                if let Some(said) = told.get(run)
                    && end.as_ref() != Some(*said)
                {
                    return Err(format!("run {run} was told as {said:?} and is {end:?} at the end"));
                }
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
    fn epochs_that_do_not_grow_by_one_are_seen() {
        assert!(epochs(&at(vec![claimed(1, &[]), claimed(2, &[])])).is_ok());
        assert!(epochs(&at(vec![claimed(1, &[]), claimed(1, &[])])).is_err());
        assert!(epochs(&at(vec![claimed(2, &[])])).is_err());
    }

    #[test]
    fn rows_of_an_old_epoch_and_gaps_are_seen() {
        let rows = |epoch, from| appended(epoch, from, vec![result(1)]);
        assert!(epochs(&at(vec![claimed(1, &[]), rows(1, 1), rows(1, 2)])).is_ok());
        assert!(epochs(&at(vec![claimed(1, &[]), claimed(2, &[]), rows(1, 1)])).is_err());
        assert!(epochs(&at(vec![claimed(1, &[]), rows(1, 1), rows(1, 3)])).is_err(), "a gap");
        assert!(epochs(&at(vec![claimed(1, &[]), rows(1, 1), rows(1, 1)])).is_err(), "twice");
        assert!(epochs(&at(vec![claimed(1, &[]), rows(1, 1), Event::Crashed, rows(1, 1)])).is_ok(), "lost with the store");
    }

    #[test]
    fn an_intent_after_a_cancel_is_seen() {
        let asked = Event::CancelAsked { run: run() };
        assert!(cancelled(&at(vec![appended(1, 1, vec![intent()]), asked.clone(), appended(1, 2, vec![result(1)])])).is_ok());
        assert!(cancelled(&at(vec![asked.clone(), appended(1, 1, vec![intent()])])).is_err());
        assert!(cancelled(&at(vec![asked, Event::Held { run: run(), reason: String::new() }])).is_err());
    }

    #[test]
    fn a_second_end_is_seen() {
        let ended = |state| Event::Ended { run: run(), state };
        assert!(one_end(&at(vec![ended(RunState::Succeeded), told(1, 5), succeeded(&[(1, 1, 5)], &[(1, 5)])])).is_ok());
        assert!(one_end(&at(vec![ended(RunState::Succeeded), ended(RunState::Cancelled)])).is_err());
        assert!(one_end(&at(vec![ended(RunState::Succeeded), claimed(2, &[])])).is_err());
        assert!(one_end(&at(vec![ended(RunState::Cancelled), succeeded(&[], &[])])).is_err(), "another than before");
        assert!(one_end(&at(vec![told(1, 5), told(1, 6)])).is_err());
        assert!(one_end(&at(vec![told(1, 5), succeeded(&[(1, 1, 6)], &[(1, 6)])])).is_err(), "another than was told");
    }
}

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

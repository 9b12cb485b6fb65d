//! Irreversible calls: how often, under which key, after which intent, within which lease.
//!
//! Invariant: what is judged is what the outside world saw, not what the engine says.

use super::{Events, Verdict};
use crate::{history::Event, plan::Kind};
use std::collections::{BTreeMap, BTreeSet};

/// I1: every call of a step carries the same key until that key is closed; with `hold` a key is called a second time only if every
/// earlier call under it said that nothing happened.
pub(super) fn at_most_once(events: Events<'_>) -> Verdict {
    let mut keys = BTreeMap::new();
    let mut open: BTreeMap<&str, u32> = BTreeMap::new();
    let mut free = BTreeSet::new();
    for (at, event) in events {
        match event {
            // Somebody said that the key is out of use: the next call has another.
            Event::Closed { step, .. } | Event::Resolved { step, happened: false, .. } => _ = free.insert(*step),
            Event::Called { step, kind, key, run, .. } => {
                match keys.insert(*step, key) {
                    Some(before) if before != key && !free.contains(step) => {
                        return Err(format!("{at:?}: step {step} of run {run} was called as {key} after {before}"));
                    }
                    _ => {}
                }
                let calls = open.entry(key).or_default();
                if *kind == Kind::Hold && *calls > 0 {
                    return Err(format!("{at:?}: a second call {key} of step {step} of run {run}, which is to be held"));
                }
                *calls += 1;
            }
            Event::Undone { key, .. } => {
                let calls = open.entry(key).or_default();
                *calls = calls.saturating_sub(1);
            }
            _ => {}
        }
    }
    Ok(())
}

/// I1: whatever the policy, the outside world did what a step asks for at most once.
pub(super) fn one_effect(events: Events<'_>) -> Verdict {
    let mut done = BTreeMap::new();
    for (at, event) in events {
        if let Event::Executed { step, key, run, .. } = event
            && let Some(before) = done.insert(*step, (*at, key))
        {
            return Err(format!("{at:?}: step {step} of run {run} was executed as {key}, after {before:?}"));
        }
    }
    Ok(())
}

/// I2: a call began only after an intent of its key and epoch, which was synced, fresh, and not used by another call.
pub(super) fn intent_first(events: Events<'_>) -> Verdict {
    let mut used = BTreeSet::new();
    for (at, event) in events {
        let Event::Called { run, epoch, step, key, arm, .. } = event else { continue };
        let call = format!("{at:?}: call {key} of step {step} of run {run} in epoch {epoch}");
        match arm {
            None => return Err(format!("{call} without a synced intent")),
            Some(arm) if arm.key != *key || arm.epoch != *epoch => return Err(format!("{call} under another intent: {arm:?}")),
            Some(arm) if arm.stale => return Err(format!("{call} under an intent older than W")),
            Some(arm) if !used.insert((*run, arm.seq)) => return Err(format!("{call}: a second one under one intent")),
            Some(_) => {}
        }
    }
    Ok(())
}

/// I18 and I1: no call and no claim begins after the self-fence, and no call in a run that somebody else has by now.
pub(super) fn within_the_lease(events: Events<'_>) -> Verdict {
    for (at, event) in events {
        match event {
            Event::Called { node, run, step, leased: false, .. } => {
                return Err(format!("{at:?}: node {node} called step {step} of run {run} after its self-fence"));
            }
            Event::Called { node, run, step, epoch, owner, .. } if epoch != owner => {
                return Err(format!("{at:?}: node {node} called step {step} of run {run} in epoch {epoch}, which is in {owner}"));
            }
            Event::Claimed { run, node, leased: false, .. } => {
                return Err(format!("{at:?}: node {node} claimed run {run} after its self-fence"));
            }
            _ => {}
        }
    }
    Ok(())
}

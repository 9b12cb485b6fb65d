//! Recordings: results that stay, steps that do not run again, outcomes that follow from results.
//!
//! Invariant: what a body saw behind a synced record is in the last recording.

use super::{Events, Plans, Verdict};
use crate::{
    history::{End, Event, Noted, Step},
    plan::{Kind, Sight},
};
use lobster_core::{RunId, RunState};
use std::collections::{BTreeMap, BTreeSet};

type Finals = BTreeMap<RunId, BTreeMap<u64, (Step, bool)>>;

fn finals(events: Events<'_>) -> Finals {
    let mut finals = Finals::new();
    for (_, event) in events {
        if let Event::Final { run, results, .. } = event {
            let by_token = results.iter().map(|(_, step, token, ok)| (*token, (*step, *ok)));
            finals.insert(*run, by_token.collect());
        }
    }
    finals
}

/// I5: a durable result that a body saw, and every result that was in the store when a claim committed, is there at the end; so is
/// every effect whose call returned to a run that succeeded.
pub(super) fn stay(events: Events<'_>) -> Verdict {
    let finals = finals(events);
    let mut steps: BTreeMap<Step, (RunId, u64)> = BTreeMap::new();
    for (run, results) in &finals {
        for (token, (step, _)) in results {
            if let Some(before) = steps.insert(*step, (*run, *token)) {
                return Err(format!("step {step} of run {run} has two results: {before:?} and {token}"));
            }
        }
    }
    for (at, event) in events {
        match event {
            Event::Delivered { run, kind: Kind::Durable, token, label, .. }
                if !finals.get(run).is_some_and(|results| results.contains_key(token)) =>
            {
                return Err(format!("{at:?}: run {run} saw durable result {token} of {label}, which is not there at the end"));
            }
            Event::Claimed { run, done, epoch, .. } => {
                let gone = done.iter().find(|step| !steps.contains_key(step));
                if let Some(step) = gone {
                    return Err(format!(
                        "{at:?}: step {step} had a result at claim {epoch} of run {run}, and has none at the end"
                    ));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// I7: a step with a result in the store at a claim does not begin under that claim; nor does one begin after its result was
/// appended in the same epoch.
pub(super) fn not_again(events: Events<'_>) -> Verdict {
    let mut done: BTreeMap<(RunId, u64), BTreeSet<Step>> = BTreeMap::new();
    for (at, event) in events {
        match event {
            Event::Claimed { run, epoch, done: steps, .. } => _ = done.insert((*run, *epoch), steps.iter().copied().collect()),
            Event::Appended { run, epoch, facts, .. } => {
                let results = facts.iter().filter_map(|fact| match fact {
                    Noted::Result { step, .. } => Some(*step),
                    _ => None,
                });
                done.entry((*run, *epoch)).or_default().extend(results);
            }
            Event::Began { run, epoch, step, node, .. } | Event::Called { run, epoch, step, node, .. }
                if done.get(&(*run, *epoch)).is_some_and(|done| done.contains(step)) =>
            {
                return Err(format!("{at:?}: node {node} began step {step} of run {run} in epoch {epoch}, which has a result"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A value is made of the recorded results, each of the call that asked for it, and of nothing else; what an irreversible step
/// returned is what the outside world did.
pub(super) fn outcome(events: Events<'_>, plans: &Plans) -> Verdict {
    let mut executed = BTreeMap::new();
    let mut irreversible = BTreeSet::new();
    for (at, event) in events {
        match event {
            Event::Mixed { run, asked, got } => {
                return Err(format!("{at:?}: a body of run {run} asked for {asked} and was given the result of {got}"));
            }
            Event::Executed { step, token, .. } => _ = executed.insert(*step, *token),
            Event::Called { step, .. } => _ = irreversible.insert(*step),
            Event::Final { run, state, results, end, key, .. } => {
                for (_, step, token, ok) in results.iter().filter(|(_, step, ..)| irreversible.contains(step)) {
                    match executed.get(step) {
                        Some(done) if *ok && done == token => {}
                        None if !ok => {}
                        done => {
                            return Err(format!("step {step} of run {run}: recorded {token} (ok: {ok}), the world did {done:?}"));
                        }
                    }
                }
                if let (RunState::Succeeded, Some(End::Value(sights))) = (state, end) {
                    let labels = key.as_ref().and_then(|key| plans.get(key)).map(|plan| plan.labels());
                    value(sights, results, labels).map_err(|why| format!("run {run}: {why}"))?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn value(sights: &[Sight], results: &[(u64, Step, u64, bool)], labels: Option<Vec<u32>>) -> Verdict {
    let seen: Vec<u32> = sights.iter().map(|sight| sight.label).collect();
    if labels.as_ref() != Some(&seen) {
        return Err(format!("its value speaks of {seen:?}, its plan of {labels:?}"));
    }
    // A token of 0 is a call that was dropped, or an error that was nobody's execution.
    for sight in sights.iter().filter(|sight| sight.token > 0) {
        if !results.iter().any(|(_, _, token, ok)| (*token, *ok) == (sight.token, sight.ok)) {
            return Err(format!("its value holds {sight:?}, which is not recorded"));
        }
    }
    Ok(())
}

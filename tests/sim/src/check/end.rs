//! The end: every run comes to one, and nothing happens that has no name in the rules.
//!
//! Invariant: with faults healed, waiting is never for ever.

use super::{Events, Verdict};
use crate::history::{End, Event, Noted};
use lobster_core::{
    RunId,
    store::contract::limits::{DEATHS_ALONE, DEATHS_QUARANTINE},
};
use std::collections::{BTreeMap, BTreeSet};

/// I22: after the heal phase every run has ended; nothing panicked, was refused or set aside without a reason.
pub(super) fn ends(events: Events<'_>) -> Verdict {
    let mut poisoned: BTreeMap<RunId, u32> = BTreeMap::new();
    for (at, event) in events {
        match event {
            Event::Poisoned { run, .. } => *poisoned.entry(*run).or_default() += 1,
            Event::Final { run, end: Some(End::Quarantined(why)), .. }
                if poisoned.get(run).is_some_and(|deaths| *deaths >= DEATHS_QUARANTINE) && why.contains("its process died") => {}
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

/// I15: poison is bounded, and a run that killed its process three times is executed with nothing beside it until it has a new result.
pub(super) fn poison(events: Events<'_>) -> Verdict {
    let mut deaths: BTreeMap<RunId, u32> = BTreeMap::new();
    // Runs with a new result since their claim: such a death counts against nobody.
    let mut fresh = BTreeSet::new();
    // Node and epoch; a run of a node that was revoked has none.
    let mut owner: BTreeMap<RunId, Option<(u32, u64)>> = BTreeMap::new();
    let mut alone: BTreeMap<(u32, RunId), bool> = BTreeMap::new();
    // Per process: the body polled last, and its run.
    let mut last: BTreeMap<u32, (u32, RunId)> = BTreeMap::new();
    // Bodies that may not be polled any more: one that is to be alone came before or after them.
    let mut over = BTreeSet::new();
    for (at, event) in events {
        match event {
            // Whoever lost the run before it died is nobody's death.
            Event::Poisoned { run, epoch }
                if !fresh.contains(run) && owner.get(run).is_none_or(|owner| owner.is_some_and(|(_, of)| of == *epoch)) =>
            {
                let count = deaths.entry(*run).or_default();
                *count += 1;
                if *count > DEATHS_QUARANTINE {
                    return Err(format!("{at:?}: run {run} killed its process for the {count}th time without a new result"));
                }
            }
            Event::Appended { run, facts, .. }
                if facts.iter().any(|fact| matches!(fact, Noted::Result { .. } | Noted::Round { failed: false, .. })) =>
            {
                deaths.remove(run);
                fresh.insert(*run);
                alone.retain(|(_, single), _| single != run);
            }
            Event::Claimed { run, node, epoch, deaths, .. } => {
                owner.insert(*run, Some((*node, *epoch)));
                fresh.remove(run);
                alone.insert((*node, *run), *deaths >= DEATHS_ALONE);
            }
            Event::Revoked { node } => {
                owner.values_mut().filter(|owner| owner.is_some_and(|(of, _)| of == *node)).for_each(|owner| *owner = None);
            }
            Event::Polled { body, node, run, .. } => {
                let single = |run: RunId| alone.get(&(*node, run)).copied().unwrap_or(false);
                if over.contains(body) {
                    return Err(format!("{at:?}: body {body} of run {run} was polled beside one that is to be alone"));
                }
                if let Some((before, its)) = last.insert(*node, (*body, *run))
                    && before != *body
                    && (single(*run) || single(its))
                {
                    over.insert(before);
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

    #[test]
    fn poison_without_bound_and_company_of_the_lonely_are_seen() {
        let poisoned = |epoch| Event::Poisoned { run: run(), epoch };
        let times = |n: usize| std::iter::repeat_with(|| poisoned(2)).take(n).collect::<Vec<_>>();
        assert!(poison(&at(times(5))).is_ok());
        assert!(poison(&at(times(6))).is_err());
        assert!(
            poison(&at([times(5), vec![appended(1, 1, vec![result(5)])], times(1), vec![claimed(2, &[])], times(5)].concat()))
                .is_ok(),
            "a new result between"
        );
        assert!(poison(&at([times(5), vec![claimed(3, &[]), poisoned(2)]].concat())).is_ok(), "it had lost the run");
        let revoked = |node| vec![claimed(2, &[]), Event::Revoked { node }, poisoned(2)];
        assert!(poison(&at([times(5), revoked(1)].concat())).is_ok(), "it had lost all");
        assert!(poison(&at([times(5), revoked(3)].concat())).is_err(), "another had");
        let lonely = || Event::Claimed { run: run(), epoch: 2, node: 1, leased: true, deaths: 3, done: vec![] };
        let other = |body| Event::Polled { body, node: 1, run: RunId(step(8)), epoch: 1, poll: 1 };
        assert!(poison(&at(vec![other(1), lonely(), polled(2, 2, 1), other(3)])).is_ok());
        assert!(poison(&at(vec![other(1), lonely(), polled(2, 2, 1), other(1)])).is_err());
        assert!(poison(&at(vec![lonely(), polled(2, 2, 1), other(3), polled(2, 2, 2)])).is_err());
        let cleared = vec![lonely(), polled(2, 2, 1), appended(1, 1, vec![result(5)]), other(3), polled(2, 2, 2), other(3)];
        assert!(poison(&at(cleared)).is_ok(), "a result clears it");
    }
}

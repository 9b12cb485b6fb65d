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

#[cfg(test)]
mod tests {
    use super::{super::bad::*, *};
    use crate::plan::{Act, Op, Plan};

    fn plans() -> Plans {
        let act = Act {
            label: 1,
            kind: Kind::Ordinary,
            keyed: false,
            fails: 0,
            fatal: false,
            panics: false,
            ms: 0,
            poison: 0,
            books: String::new(),
            rounds: 0,
            stalls: false,
            hangs: false,
        };
        Plans::from([("run-0".into(), Plan { number: 0, ops: vec![Op::Step { act, strict: false }] })])
    }

    #[test]
    fn results_that_vanish_or_change_are_seen() {
        let durable = delivered(1, 1, Kind::Durable, 5);
        assert!(stay(&at(vec![durable.clone(), succeeded(&[(1, 1, 5)], &[])])).is_ok());
        assert!(stay(&at(vec![durable, succeeded(&[(1, 1, 6)], &[])])).is_err());
        assert!(stay(&at(vec![delivered(1, 1, Kind::Ordinary, 5), succeeded(&[(1, 1, 6)], &[])])).is_ok(), "it was relaxed");
        assert!(stay(&at(vec![claimed(1, &[step(1)]), succeeded(&[], &[])])).is_err(), "the claim had it");
        assert!(stay(&at(vec![succeeded(&[(1, 1, 5), (2, 1, 6)], &[])])).is_err(), "two of one step");
    }

    #[test]
    fn a_step_that_begins_again_behind_its_result_is_seen() {
        assert!(not_again(&at(vec![claimed(1, &[]), began(1), claimed(2, &[]), began(2)])).is_ok());
        assert!(not_again(&at(vec![claimed(2, &[step(1)]), began(2)])).is_err());
        assert!(not_again(&at(vec![claimed(1, &[]), claimed(2, &[step(1)]), began(1)])).is_ok(), "a holder that was left behind");
        assert!(not_again(&at(vec![claimed(1, &[]), began(1), appended(1, 1, vec![result(5)]), began(1)])).is_err());
        assert!(not_again(&at(vec![claimed(2, &[step(1)]), called(Kind::Retry, 2, "a", 2)])).is_err());
    }

    #[test]
    fn an_outcome_that_does_not_follow_from_its_results_is_seen() {
        let judge = |events| outcome(&at(events), &plans());
        assert!(judge(vec![succeeded(&[(1, 1, 5)], &[(1, 5)])]).is_ok());
        assert!(judge(vec![succeeded(&[(1, 1, 5)], &[(1, 6)])]).is_err(), "not recorded");
        assert!(judge(vec![succeeded(&[(1, 1, 5)], &[(2, 5)])]).is_err(), "not of the plan");
        assert!(judge(vec![Event::Mixed { run: run(), asked: 1, got: 2 }]).is_err());
    }

    #[test]
    fn a_receipt_that_the_world_did_not_give_is_seen() {
        let judge = |event, end| outcome(&at([vec![called(Kind::Probe, 1, "a", 1)], event, vec![end]].concat()), &plans());
        let end = || succeeded(&[(2, 1, 5)], &[(1, 5)]);
        assert!(judge(vec![executed("a", 5)], end()).is_ok());
        assert!(judge(vec![executed("a", 6)], end()).is_err(), "another one");
        assert!(judge(vec![], end()).is_err(), "nothing happened");
    }
}

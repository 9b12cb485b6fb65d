//! Irreversible calls: how often, under which key, after which intent, within which lease.
//!
//! Invariant: what is judged is what the outside world saw, not what the engine says.

use super::{Events, Verdict};
use crate::{
    history::{Event, Noted},
    plan::Kind,
};
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

/// A call that the store may have lost is in doubt before it is made: under its key, and under the next one if that was closed. Whoever
/// held the run before knows what he did.
pub(super) fn word_first(events: Events<'_>) -> Verdict {
    let mut doubts = BTreeMap::new();
    let (mut asked, mut armed) = (BTreeSet::new(), BTreeMap::new());
    for (at, event) in events {
        match event {
            Event::Doubted { run, epoch } => _ = doubts.insert(*run, *epoch),
            Event::Appended { run, epoch, facts, .. } if doubts.get(run).is_some_and(|doubt| epoch > doubt) => {
                for fact in facts {
                    let (step, key, lost) = match fact {
                        Noted::Intent { step, key, lost } => (step, key, lost),
                        // Taken back as if nothing had been in doubt: nobody had a word.
                        Noted::Attempt { step, in_doubt: false } => {
                            if let Some(key) = armed.remove(step) {
                                asked.remove(&(*step, key));
                            }
                            continue;
                        }
                        _ => continue,
                    };
                    armed.remove(step);
                    // Once a policy has let a call go, or two keys were asked about, they go on as ever.
                    if *lost == 2 || asked.contains(&(*step, key.as_str())) {
                        asked.insert((*step, ""));
                    }
                    if *lost > 0 {
                        asked.insert((*step, key.as_str()));
                        armed.insert(*step, key.as_str());
                    }
                }
            }
            Event::Called { run, epoch, step, key, .. }
                if doubts.get(run).is_some_and(|doubt| epoch > doubt)
                    && !asked.contains(&(*step, key.as_str()))
                    && !asked.contains(&(*step, "")) =>
            {
                return Err(format!("{at:?}: {key} of step {step} of run {run} was called, and may have been before"));
            }
            _ => {}
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

#[cfg(test)]
mod tests {
    use super::{super::bad::*, *};
    use crate::history::Arm;

    #[test]
    fn a_call_that_may_be_lost_and_is_in_no_doubt_is_seen() {
        let doubted = || vec![Event::Doubted { run: run(), epoch: 1 }];
        let call = |key: &str| vec![called(Kind::Hold, 2, key, 3)];
        let word = |key, lost| vec![appended(2, 2, vec![armed(key, lost)])];
        let late = at([doubted(), vec![called(Kind::Hold, 1, "a", 3)]].concat());
        assert!(word_first(&late).is_ok(), "of who held the run before");
        assert!(word_first(&at([doubted(), call("a")].concat())).is_err());
        assert!(word_first(&at([doubted(), word("a", 0), call("a")].concat())).is_err());
        assert!(word_first(&at([doubted(), word("a", 1), call("a")].concat())).is_ok());
        assert!(word_first(&at([doubted(), word("a", 1), call("b")].concat())).is_err());
        let back = |in_doubt| vec![appended(2, 2, vec![Noted::Attempt { step: step(1), in_doubt }])];
        assert!(word_first(&at([doubted(), word("a", 1), back(false), word("a", 0), call("a")].concat())).is_err());
        assert!(word_first(&at([doubted(), word("a", 1), back(true), word("a", 0), call("a")].concat())).is_ok());
        assert!(word_first(&at([doubted(), word("a", 1), word("a", 0), call("a"), call("b")].concat())).is_ok());
        assert!(word_first(&at([doubted(), word("a", 1), word("b", 2), call("c")].concat())).is_ok());
    }

    #[test]
    fn a_key_that_changes_without_a_reason_is_seen() {
        let closed = Event::Closed { step: step(1), key: "a".into() };
        let change = |reason| at([vec![called(Kind::Retry, 1, "a", 1)], reason, vec![called(Kind::Retry, 1, "b", 2)]].concat());
        assert!(at_most_once(&change(vec![closed])).is_ok());
        assert!(at_most_once(&change(vec![])).is_err());
        let happened = Event::Resolved { run: run(), step: step(1), happened: true };
        assert!(at_most_once(&change(vec![happened])).is_err());
    }

    #[test]
    fn a_second_call_of_a_step_to_be_held_is_seen() {
        let twice = |between| at([vec![called(Kind::Hold, 1, "a", 1)], between, vec![called(Kind::Hold, 2, "a", 3)]].concat());
        assert!(at_most_once(&twice(vec![Event::Undone { step: step(1), key: "a".into() }])).is_ok());
        assert!(at_most_once(&twice(vec![])).is_err());
    }

    #[test]
    fn two_effects_of_one_step_are_seen() {
        assert!(one_effect(&at(vec![executed("a", 1)])).is_ok());
        assert!(one_effect(&at(vec![executed("a", 1), executed("a", 2)])).is_err());
        assert!(one_effect(&at(vec![executed("a", 1), executed("b", 2)])).is_err(), "whatever its key");
    }

    #[test]
    fn a_call_without_its_own_fresh_synced_intent_is_seen() {
        let with = |arm| {
            let mut call = called(Kind::Probe, 2, "a", 1);
            if let Event::Called { arm: own, .. } = &mut call {
                *own = arm;
            }
            at(vec![call])
        };
        assert!(intent_first(&with(Some(arm(1, 2, "a")))).is_ok());
        assert!(intent_first(&with(None)).is_err());
        assert!(intent_first(&with(Some(arm(1, 1, "a")))).is_err(), "of another epoch");
        assert!(intent_first(&with(Some(arm(1, 2, "b")))).is_err(), "of another key");
        assert!(intent_first(&with(Some(Arm { stale: true, ..arm(1, 2, "a") }))).is_err(), "older than W");
        assert!(intent_first(&at(vec![called(Kind::Probe, 1, "a", 1), called(Kind::Probe, 1, "a", 1)])).is_err(), "used before");
    }

    #[test]
    fn a_call_or_a_claim_outside_of_the_lease_is_seen() {
        let with = |lease, epoch| {
            let mut call = called(Kind::Hold, 2, "a", 1);
            if let Event::Called { leased, owner, .. } = &mut call {
                (*leased, *owner) = (lease, epoch);
            }
            at(vec![call])
        };
        assert!(within_the_lease(&with(true, 2)).is_ok());
        assert!(within_the_lease(&with(false, 2)).is_err());
        assert!(within_the_lease(&with(true, 3)).is_err(), "somebody else has the run");
        let claim = Event::Claimed { run: run(), epoch: 1, node: 1, leased: false, deaths: 0, done: vec![] };
        assert!(within_the_lease(&at(vec![claim])).is_err());
    }
}

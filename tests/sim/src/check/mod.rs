//! The checkers: pure functions of a history, one file per family of rules. Each has bad histories that it must reject.
//!
//! Invariant: a checker reads events only; it never asks the engine.

use crate::{history::Event, plan::Plan};
use std::{collections::BTreeMap, time::Duration};

/// Plans by the key of their run.
pub(crate) type Plans = BTreeMap<String, Plan>;
/// A history.
pub(crate) type Events<'a> = &'a [(Duration, Event)];
/// What is wrong with it.
pub(crate) type Verdict = Result<(), String>;

#[cfg(test)]
mod bad;
mod bodies;
mod books;
mod calls;
mod end;
mod fence;
mod front;
mod records;
mod writes;

/// Everything that is wrong with a history.
pub(crate) fn all(events: Events<'_>, plans: &Plans) -> Vec<String> {
    let rules: [(&str, Verdict); 21] = [
        ("I1 at most once", calls::at_most_once(events)),
        ("I1 one effect", calls::one_effect(events)),
        ("I2 intent first", calls::intent_first(events)),
        ("a word first on what may be lost", calls::word_first(events)),
        ("I18 self-fence", calls::within_the_lease(events)),
        ("I3 I4 fencing", fence::epochs(events)),
        ("I16 cancel", fence::cancelled(events)),
        ("I17 one end", fence::one_end(events)),
        ("I5 results stay", records::stay(events)),
        ("I7 nothing synced runs again", records::not_again(events)),
        ("outcome of its results", records::outcome(events, plans)),
        ("I6 submits", front::submits(events)),
        ("bodies stop", bodies::stop(events)),
        ("one result per poll, in order", bodies::one_by_one(events)),
        ("I15 poison", end::poison(events)),
        ("states add up", books::add_up(events)),
        ("durable rounds stay", books::durable_rounds(events)),
        ("written as recorded", writes::as_recorded(events)),
        ("I18 work within the lease", writes::within_the_lease(events)),
        ("folds are fenced", books::folds(events)),
        ("I22 everything ends as it should", end::ends(events)),
    ];
    let broken = rules.into_iter().filter_map(|(rule, verdict)| Some(format!("{rule}: {}", verdict.err()?)));
    broken.collect()
}

//! What a simulated run is to do: a small program drawn from the seed, interpreted by the body of the one task there is.
//!
//! Invariant: a plan's body is a function of its steps' results, so that whoever resumes it comes to the same end.

use crate::rng::Rng;
use serde::{Deserialize, Serialize};

/// Kind of a step and policy of its doubts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Kind {
    Ordinary,
    Durable,
    Retry,
    Probe,
    Hold,
    Transact,
}

/// One step to be called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Act {
    /// Tells the calls of a plan apart: what comes back must carry it.
    pub label: u32,
    pub kind: Kind,
    /// Is the step keyed by its label, or known by its occurrence?
    pub keyed: bool,
    /// So many first attempts fail (steps that are not irreversible).
    pub fails: u32,
    /// The attempt after those fails for good.
    pub fatal: bool,
    /// Failed attempts panic instead of returning an error.
    pub panics: bool,
    /// Milliseconds that an attempt takes before anything happens.
    pub ms: u64,
    /// So many first executions take their process with them.
    pub poison: u32,
    /// Names of the states that the step changes, a letter each; none: it has no state.
    pub books: String,
    /// So many rounds of a repeated step; 0: it is called once.
    pub rounds: u32,
    /// Failed attempts take longer than they may (steps with states, and transactional ones).
    pub stalls: bool,
    /// Its attempts never end by themselves.
    pub hangs: bool,
}

impl Act {
    /// Name of a state that it changes.
    pub fn book(&self, index: usize) -> String {
        self.books.chars().nth(index).map(String::from).unwrap_or_default()
    }
}

/// One move of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    /// Calls a step and awaits it. On failure the body ends with that failure, if `strict`.
    Step { act: Act, strict: bool },
    /// Waits for a timer that the engine does not know, so many milliseconds.
    Pause(u64),
    /// Runs blocks side by side.
    Blocks(Vec<Vec<Op>>),
    /// Drops a call if it takes longer than so many milliseconds; may ask for it again afterwards, by its key.
    Race { act: Act, ms: u64, again: bool },
    /// Calls a step that never ends beside another, and drops it when that one has ended.
    Leave { act: Act, other: Act },
}

/// A run's program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub number: u32,
    pub ops: Vec<Op>,
}

/// What a step returns: whose call it was, and a number that no other execution returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub label: u32,
    pub token: u64,
}

/// What a body saw of one call, and its outcome's element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Sight {
    pub label: u32,
    /// Token of the execution whose result was seen; 0 for a call that was dropped.
    pub token: u64,
    pub ok: bool,
}

/// Draws a plan.
pub(crate) fn draw(rng: &mut Rng, number: u32) -> Plan {
    let mut label = 0;
    let length = rng.within(1, 7);
    // Half of the plans know states; most steps of those change some.
    let books = if rng.chance(500) { rng.pick(&[300, 700, 900]) } else { 0 };
    let ops = (0..length).map(|_| op(rng, &mut label, 0, false, books)).collect();
    Plan { number, ops }
}

fn op(rng: &mut Rng, label: &mut u32, depth: u32, keyed: bool, books: u32) -> Op {
    let short = rng.chance(400);
    let mostly_beside = depth == 0 && rng.chance(250);
    if !mostly_beside && rng.chance(books) {
        return book(rng, label, keyed);
    }
    match rng.below(if depth == 0 { 13 } else { 8 }) {
        8 | 9 => {
            // Foreign timers beside other calls: only keyed calls tell them apart on resume.
            let keyed = rng.chance(500);
            let blocks = (0..rng.within(2, 4)).map(|_| (0..rng.within(1, 3)).map(|_| op(rng, label, 1, keyed, books)).collect());
            Op::Blocks(blocks.collect())
        }
        10 | 12 => {
            Op::Race { act: act(rng, label, true, true), ms: rng.within(0, if short { 30 } else { 400 }), again: rng.chance(500) }
        }
        7 | 11 if depth == 0 || keyed => Op::Pause(rng.within(0, 150)),
        _ => {
            let keyed = keyed || rng.chance(200);
            Op::Step { act: act(rng, label, keyed, false), strict: rng.chance(300) }
        }
    }
}

/// A move that changes states.
fn book(rng: &mut Rng, label: &mut u32, keyed: bool) -> Op {
    let stateful = |rng: &mut Rng, label: &mut u32, keyed| {
        let mut act = act(rng, label, keyed, false);
        act.kind = rng.pick(&[Kind::Ordinary, Kind::Ordinary, Kind::Durable]);
        act.books = rng.pick(&["a", "a", "b", "ab", "ba"]).to_owned();
        act.stalls = rng.chance(200);
        act
    };
    match rng.below(10) {
        0..=2 => {
            let keyed = keyed || rng.chance(200);
            let mut act = stateful(rng, label, keyed);
            act.books.truncate(1);
            let (low, high) = rng.pick(&[(1, 4), (5, 15), (10, 40)]);
            act.rounds = u32::try_from(rng.within(low, high)).unwrap_or(1);
            act.ms = act.ms.min(10);
            Op::Step { act, strict: rng.chance(300) }
        }
        3 => {
            let mut left = stateful(rng, label, true);
            (left.hangs, left.poison) = (true, 0);
            let mut other = act(rng, label, true, false);
            other.kind = Kind::Ordinary;
            Op::Leave { act: left, other }
        }
        _ => {
            let keyed = keyed || rng.chance(200);
            Op::Step { act: stateful(rng, label, keyed), strict: rng.chance(300) }
        }
    }
}

fn act(rng: &mut Rng, label: &mut u32, keyed: bool, race: bool) -> Act {
    *label += 1;
    let kinds =
        [Kind::Ordinary, Kind::Ordinary, Kind::Durable, Kind::Retry, Kind::Probe, Kind::Hold, Kind::Transact, Kind::Transact];
    let kind = rng.pick(if race { &kinds[3..] } else { &kinds[..] });
    let fails = if rng.chance(250) { u32::try_from(rng.within(1, 3)).unwrap_or(1) } else { 0 };
    let ms = if rng.chance(400) { rng.within(1, 120) } else { 0 };
    let poisonous = matches!(kind, Kind::Ordinary | Kind::Durable | Kind::Transact) && rng.chance(15);
    let poison = if poisonous { u32::try_from(rng.within(1, 7)).unwrap_or(1) } else { 0 };
    let (fatal, panics) = (rng.chance(60), rng.chance(200));
    let stalls = kind == Kind::Transact && rng.chance(200);
    let (books, rounds, hangs) = (String::new(), 0, false);
    Act { label: *label, kind, keyed, fails, fatal, panics, ms, poison, books, rounds, stalls, hangs }
}

impl Plan {
    /// Every label, in the order of the plan: what an outcome speaks of. Dropped calls are asked for twice in it; those that never end are not spoken of.
    pub fn labels(&self) -> Vec<u32> {
        fn of(ops: &[Op], labels: &mut Vec<u32>) {
            for op in ops {
                match op {
                    Op::Step { act, .. } | Op::Race { act, .. } => labels.push(act.label),
                    Op::Leave { other, .. } => labels.push(other.label),
                    Op::Pause(_) => {}
                    Op::Blocks(blocks) => blocks.iter().for_each(|block| of(block, labels)),
                }
            }
        }
        let mut labels = Vec::new();
        of(&self.ops, &mut labels);
        labels
    }
}

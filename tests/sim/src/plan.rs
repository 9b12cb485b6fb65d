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
}

/// One step to be called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Act {
    /// Tells the calls of a plan apart: what comes back must carry it.
    pub label: u32,
    pub kind: Kind,
    /// Is the step keyed by its label, or known by its occurrence?
    pub keyed: bool,
    /// So many first attempts fail (ordinary and durable steps).
    pub fails: u32,
    /// The attempt after those fails for good.
    pub fatal: bool,
    /// Failed attempts panic instead of returning an error.
    pub panics: bool,
    /// Milliseconds that an attempt takes before anything happens.
    pub ms: u64,
    /// So many first executions take their process with them.
    pub poison: u32,
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
    let ops = (0..length).map(|_| op(rng, &mut label, 0, false)).collect();
    Plan { number, ops }
}

fn op(rng: &mut Rng, label: &mut u32, depth: u32, keyed: bool) -> Op {
    let short = rng.chance(400);
    match rng.below(if depth == 0 { 13 } else { 8 }) {
        8 | 9 => {
            // Foreign timers beside other calls: only keyed calls tell them apart on resume.
            let keyed = rng.chance(500);
            let blocks = (0..rng.within(2, 4)).map(|_| (0..rng.within(1, 3)).map(|_| op(rng, label, 1, keyed)).collect());
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

fn act(rng: &mut Rng, label: &mut u32, keyed: bool, race: bool) -> Act {
    *label += 1;
    let kinds = [Kind::Ordinary, Kind::Ordinary, Kind::Durable, Kind::Retry, Kind::Probe, Kind::Hold];
    let kind = rng.pick(if race { &kinds[3..] } else { &kinds[..] });
    let fails = if rng.chance(250) { u32::try_from(rng.within(1, 3)).unwrap_or(1) } else { 0 };
    let ms = if rng.chance(400) { rng.within(1, 120) } else { 0 };
    let poisonous = matches!(kind, Kind::Ordinary | Kind::Durable) && rng.chance(15);
    let poison = if poisonous { u32::try_from(rng.within(1, 7)).unwrap_or(1) } else { 0 };
    Act { label: *label, kind, keyed, fails, fatal: rng.chance(60), panics: rng.chance(200), ms, poison }
}

impl Plan {
    /// Every label, in the order of the plan: what an outcome speaks of. Dropped calls are asked for twice in it.
    pub fn labels(&self) -> Vec<u32> {
        fn of(ops: &[Op], labels: &mut Vec<u32>) {
            for op in ops {
                match op {
                    Op::Step { act, .. } | Op::Race { act, .. } => labels.push(act.label),
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

//! What recordings say, read by the simulation itself.
//!
//! Invariant: identities are derived here a second time, so that a change of the engine's derivation shows.

use crate::{
    book::entered,
    history::{Arm, End, Entry, Noted, Step},
    plan::{Receipt, Sight},
};
use lobster_core::{
    Flow, RunId, RunState,
    store::contract::{
        Ended, Epoch, Recording, Row, Seq, StoredRow,
        record::{
            Came, Changed, Ending, Fact, FailureKind, Intent, Kind, Outcome, StepName, StepResult, Which, open_changes,
            open_deltas,
        },
    },
};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The public id of a step: UUIDv5 in the namespace of its run, over its fields with their lengths in front.
fn step_id(run: RunId, step: &StepName) -> Step {
    let mut bytes = Vec::new();
    let mut field = |field: &[u8]| {
        bytes.extend_from_slice(&u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(field);
    };
    field(step.scope.as_bytes());
    field(step.name.as_bytes());
    match &step.which {
        Some(Which::Key(key)) => {
            field(b"key");
            field(key.as_bytes());
        }
        Some(Which::Occurrence(n)) => {
            field(b"occurrence");
            field(&n.to_be_bytes());
        }
        None => field(b"none"),
    }
    Uuid::new_v5(&run.0, &bytes)
}

pub(super) fn named(run: RunId, step: Option<&StepName>) -> Step {
    step.map_or(Uuid::nil(), |step| step_id(run, step))
}

/// Token at the end of an error's text.
pub(crate) fn token_of(message: &str) -> u64 {
    message.rsplit('/').next().and_then(|tail| tail.parse().ok()).unwrap_or(0)
}

/// The receipt of a step, or of the last round of a repeated one.
fn receipt(data: &[u8]) -> Option<Receipt> {
    let last = || match serde_json::from_slice(data) {
        Ok(Flow::Done(receipt)) => Some(receipt),
        _ => None,
    };
    serde_json::from_slice(data).ok().or_else(last)
}

/// Token of a result, and whether it is a value.
fn token(result: &StepResult) -> (u64, bool) {
    match &result.came {
        Some(Came::Value(payload)) => (receipt(&payload.data).map_or(0, |receipt| receipt.token), true),
        Some(Came::Failure(failure)) => (token_of(&failure.message), false),
        None => (0, false),
    }
}

fn noted(run: RunId, fact: &Fact) -> Noted {
    match fact {
        Fact::Result(result) => {
            let (token, ok) = token(result);
            Noted::Result { step: named(run, result.step.as_ref()), token, ok }
        }
        Fact::Intent(intent) => {
            Noted::Intent { step: named(run, intent.step.as_ref()), key: intent.key.clone(), lost: intent.lost }
        }
        Fact::Attempt(attempt) => Noted::Attempt { step: named(run, attempt.step.as_ref()), in_doubt: attempt.in_doubt },
        Fact::Window(_) | Fact::Detached(_) | Fact::Attached(_) => Noted::Other,
    }
}

/// Facts of offered rows, one of each seq: what has no fact is a round.
pub(super) fn offered(run: RunId, epoch: Epoch, rows: &[Row]) -> Vec<Noted> {
    let mut facts = BTreeMap::new();
    for row in rows {
        if let Some(half) = &row.changes {
            for (seq, changed) in open_changes(run, epoch, row.from, row.to, &half.body, half.crc).unwrap_or_default() {
                if let Changed::Round(round) = changed {
                    facts.insert(seq, Noted::Round { step: named(run, round.step.as_ref()), failed: round.attempt.is_some() });
                }
            }
        }
        if let Some(half) = &row.deltas {
            let found = open_deltas(run, epoch, row.from, row.to, &half.body, half.crc).unwrap_or_default();
            facts.extend(found.into_iter().map(|(seq, fact)| (seq, noted(run, &fact))));
        }
    }
    facts.into_values().collect()
}

/// What offered rows have to do with states.
pub(super) fn entries(run: RunId, epoch: Epoch, rows: &[Row]) -> Vec<(Seq, Entry)> {
    let mut entries = Vec::new();
    for row in rows {
        if let Some(half) = &row.changes {
            for (seq, changed) in open_changes(run, epoch, row.from, row.to, &half.body, half.crc).unwrap_or_default() {
                entries.push((
                    seq,
                    match changed {
                        Changed::State(change) => Entry::Change { token: entered(&change), book: change.state },
                        Changed::Round(round) => Entry::Round {
                            step: named(run, round.step.as_ref()),
                            done: round.done,
                            failed: round.attempt.map_or(0, |attempt| attempt.number),
                        },
                    },
                ));
            }
        }
        if let Some(half) = &row.deltas {
            for (seq, fact) in open_deltas(run, epoch, row.from, row.to, &half.body, half.crc).unwrap_or_default() {
                match noted(run, &fact) {
                    Noted::Result { step, token, ok } => entries.push((seq, Entry::Result { step, token, ok })),
                    Noted::Attempt { step, .. } => entries.push((seq, Entry::Attempt { step })),
                    _ => {}
                }
            }
        }
    }
    entries.sort_by_key(|(seq, _)| *seq);
    entries
}

fn stored(run: RunId, recording: &Recording) -> impl Iterator<Item = (Seq, Epoch, Fact)> + '_ {
    let of_row = move |row: &StoredRow| {
        let facts = open_deltas(run, row.epoch, row.from, row.to, &row.sealed.body, row.sealed.crc).unwrap_or_default();
        let epoch = row.epoch;
        facts.into_iter().map(move |(seq, fact)| (seq, epoch, fact))
    };
    recording.deltas.iter().flat_map(of_row)
}

/// Results in seq order: seq, step, token, whether it is a value. A result that was asked for again counts where it was shown.
pub(crate) fn results(run: RunId, recording: &Recording) -> Vec<(Seq, Step, u64, bool)> {
    let result = |(seq, _, fact)| match fact {
        Fact::Result(result) => {
            let (token, ok) = token(&result);
            Some((seq, named(run, result.step.as_ref()), token, ok))
        }
        _ => None,
    };
    stored(run, recording).filter_map(result).collect()
}

/// Steps with a result.
pub(crate) fn done(run: RunId, recording: &Recording) -> Vec<Step> {
    results(run, recording).into_iter().map(|(_, step, ..)| step).collect()
}

/// The intent of a step that a call may go by: its last fact there.
pub(crate) fn arm(run: RunId, recording: &Recording, step: Step, sent_ago: impl Fn(&Intent) -> bool) -> Option<Arm> {
    let mut last: BTreeMap<Step, Option<Arm>> = BTreeMap::new();
    for (seq, epoch, fact) in stored(run, recording) {
        match fact {
            Fact::Intent(intent) => {
                let arm = Arm { seq, epoch, key: intent.key.clone(), stale: sent_ago(&intent) };
                last.insert(named(run, intent.step.as_ref()), Some(arm));
            }
            Fact::Result(result) => _ = last.insert(named(run, result.step.as_ref()), None),
            Fact::Attempt(attempt) => _ = last.insert(named(run, attempt.step.as_ref()), None),
            Fact::Window(_) | Fact::Detached(_) | Fact::Attached(_) => {}
        }
    }
    last.remove(&step).flatten()
}

/// How a run ended, in the words of the history.
pub(crate) fn end_of(run: RunId, ended: &Ended) -> End {
    match ended.outcome.open::<Outcome>(Kind::Outcome, run).map(|outcome| outcome.ending) {
        Ok(Some(Ending::Value(payload))) if ended.state == RunState::Succeeded => {
            End::Value(serde_json::from_slice::<Vec<Sight>>(&payload.data).unwrap_or_default())
        }
        Ok(Some(Ending::Failure(failure))) => {
            End::Failure { refused: failure.kind == FailureKind::Refused as i32, message: failure.message }
        }
        Ok(Some(Ending::Cancelled(_))) => End::Cancelled,
        Ok(Some(Ending::Quarantined(why))) => End::Quarantined(why),
        other => End::Failure { message: format!("an outcome that does not fit {:?}: {other:?}", ended.state), refused: true },
    }
}

//! Words for hand-made histories.
//!
//! Invariant: what is not said is harmless.

use crate::{
    history::{Arm, End, Event, Noted, Step},
    plan::{Kind, Sight},
};
use lobster_core::{RunId, RunState};
use std::time::Duration;
use uuid::Uuid;

pub(super) fn run() -> RunId {
    RunId(Uuid::from_u128(7))
}
pub(super) fn step(number: u128) -> Step {
    Uuid::from_u128(number)
}
pub(super) fn at(events: Vec<Event>) -> Vec<(Duration, Event)> {
    events.into_iter().zip(1..).map(|(event, second)| (Duration::from_secs(second), event)).collect()
}
pub(super) fn claimed(epoch: u64, done: &[Step]) -> Event {
    Event::Claimed { run: run(), epoch, node: 1, leased: true, deaths: 0, done: done.to_vec() }
}
pub(super) fn arm(seq: u64, epoch: u64, key: &str) -> Arm {
    Arm { seq, epoch, key: key.into(), stale: false }
}
/// A call that is in order: of an epoch, under a key, by the intent of a seq.
pub(super) fn called(kind: Kind, epoch: u64, key: &str, seq: u64) -> Event {
    let arm = Some(arm(seq, epoch, key));
    Event::Called { node: 1, run: run(), epoch, owner: epoch, leased: true, step: step(1), kind, key: key.into(), arm }
}
pub(super) fn began(epoch: u64) -> Event {
    Event::Began { node: 1, run: run(), epoch, step: step(1), kind: Kind::Ordinary, attempt: 1 }
}
pub(super) fn appended(epoch: u64, from: u64, facts: Vec<Noted>) -> Event {
    Event::Appended { run: run(), epoch, from, to: from + facts.len() as u64 - 1, facts }
}
pub(super) fn result(token: u64) -> Noted {
    Noted::Result { step: step(1), token, ok: true }
}
pub(super) fn intent() -> Noted {
    armed("k", 0)
}
pub(super) fn armed(key: &str, lost: u32) -> Noted {
    Noted::Intent { step: step(1), key: key.into(), lost }
}
pub(super) fn executed(key: &str, token: u64) -> Event {
    Event::Executed { run: run(), step: step(1), key: key.into(), token }
}
pub(super) fn polled(body: u32, epoch: u64, poll: u64) -> Event {
    Event::Polled { body, node: 1, run: run(), epoch, poll }
}
pub(super) fn delivered(body: u32, poll: u64, kind: Kind, token: u64) -> Event {
    Event::Delivered { body, run: run(), poll, kind, label: 1, token, ok: true }
}
pub(super) fn told(label: u32, token: u64) -> Event {
    Event::Told { run: run(), end: End::Value(vec![Sight { label, token, ok: true }]) }
}
/// The end of the run `run-0` with these results (seq, step, token).
pub(super) fn succeeded(results: &[(u64, u128, u64)], sights: &[(u32, u64)]) -> Event {
    Event::Final {
        run: run(),
        key: Some("run-0".into()),
        state: RunState::Succeeded,
        results: results.iter().map(|(seq, number, token)| (*seq, step(*number), *token, true)).collect(),
        end: Some(End::Value(sights.iter().map(|(label, token)| Sight { label: *label, token: *token, ok: true }).collect())),
    }
}

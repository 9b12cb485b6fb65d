//! What the author of a step says about it, as constants.
//!
//! Invariant: everything `#[step]` writes about a step is a [`Spec`] that a person could write.

use crate::{
    codec::{self, CodecError, Returned},
    state::StateType,
};
use lobster_store::contract::record::Payload;
use std::time::Duration;

/// A step's name, kind and policies. Written by `#[step]`; by hand with struct update from [`Spec::ordinary`] and its siblings.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Durable name. Changing it makes another step.
    pub name: &'static str,
    /// The function, to tell two of one name apart.
    pub site: &'static str,
    /// Its kind.
    pub kind: StepKind,
    /// When it is tried again.
    pub retry: Retry,
    /// Longest time of one attempt, in milliseconds (ordinary and durable steps).
    pub timeout_ms: Option<u64>,
    /// D: longest time of one call, in milliseconds (irreversible and transactional steps); `None`: 10 s, and as the store says for a
    /// transaction.
    pub max_duration_ms: Option<u64>,
    /// What happens when a call's fate is unknown (irreversible steps).
    pub in_doubt: InDoubt,
    /// What happens when the attempts are exhausted while in doubt (irreversible steps).
    pub on_exhausted: OnExhausted,
    /// Has it a `key = ..`?
    pub keyed: bool,
    /// The types of the states it asks for.
    pub states: &'static [StateType],
    /// The type of its value, where it can be told ahead of a call: not for a step that is generic over it.
    pub value: Option<ValueType>,
}

/// The type of a step's value, as a task's list of steps knows it.
#[derive(Clone, Copy, Debug)]
pub struct ValueType {
    pub(crate) fits: fn(&Payload) -> Result<(), CodecError>,
}

impl ValueType {
    /// Of a step that returns this.
    pub const fn of<R: Returned>() -> Self {
        Self { fits: |value| codec::decode::<R::Value>(value).map(|_| ()) }
    }
}

/// Kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// The result is in memory when the call returns, and flushed behind.
    Ordinary,
    /// The call returns when its record is synced.
    Durable,
    /// Intent first, then the call; a policy for the case that its fate is unknown.
    Irreversible,
    /// What the step writes and its record are one transaction of the store.
    Transactional,
}

/// What happens when the fate of an irreversible call is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InDoubt {
    /// Call again with the same key: the author asserts that the remote executes a key once.
    Retry,
    /// Ask the author's function.
    Probe,
    /// Wait for a person.
    Hold,
}

/// What happens when the attempts of an irreversible step are exhausted while it is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnExhausted {
    /// Wait for a person.
    Hold,
    /// Record a failure with code `InDoubt`.
    Fail,
}

/// When an attempt is made again: exponential backoff with a cap and full jitter (M. Brooker, "Exponential Backoff And Jitter",
/// AWS Architecture Blog, 2015).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Retry {
    /// Attempts in all, the first included.
    pub attempts: u32,
    /// Delay before the second attempt, in milliseconds.
    pub first_ms: u64,
    /// Each further delay is so many times longer.
    pub factor: u32,
    /// The longest delay, in milliseconds.
    pub cap_ms: u64,
    /// Draw each delay uniformly from zero to its value.
    pub jitter: bool,
}

impl Retry {
    /// 5 attempts, 200 ms, doubled each time, at most 30 s, full jitter.
    pub const DEFAULT: Retry = Retry { attempts: 5, first_ms: 200, factor: 2, cap_ms: 30_000, jitter: true };

    /// Delay after attempt number `failed` (from 1).
    pub(crate) fn delay(&self, failed: u32, random: u64) -> Duration {
        let factor = u64::from(self.factor).saturating_pow(failed.saturating_sub(1).min(64));
        let full = Duration::from_millis(self.first_ms.saturating_mul(factor).min(self.cap_ms));
        if self.jitter { full.mul_f64(fraction(random)) } else { full }
    }
}

/// A fraction in [0, 1), of a uniformly drawn number.
pub(crate) fn fraction(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}

impl Spec {
    const fn of(kind: StepKind, in_doubt: InDoubt) -> Self {
        Spec {
            name: "",
            site: "",
            kind,
            retry: Retry::DEFAULT,
            timeout_ms: None,
            max_duration_ms: None,
            in_doubt,
            on_exhausted: OnExhausted::Hold,
            keyed: false,
            states: &[],
            value: None,
        }
    }
    /// An ordinary step, without a name yet.
    pub const fn ordinary() -> Self {
        Self::of(StepKind::Ordinary, InDoubt::Hold)
    }
    /// A durable step, without a name yet.
    pub const fn durable() -> Self {
        Self::of(StepKind::Durable, InDoubt::Hold)
    }
    /// An irreversible step, without a name yet.
    pub const fn irreversible(in_doubt: InDoubt) -> Self {
        Self::of(StepKind::Irreversible, in_doubt)
    }
    /// A transactional step, without a name yet.
    pub const fn transactional() -> Self {
        Self::of(StepKind::Transactional, InDoubt::Hold)
    }
    pub(crate) fn max_duration(&self) -> Duration {
        Duration::from_millis(self.max_duration_ms.unwrap_or(10_000))
    }
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap() {
        let retry = Retry { jitter: false, ..Retry::DEFAULT };
        let delays: Vec<_> = (1..=10).map(|failed| retry.delay(failed, 0).as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        assert_eq!(retry.delay(u32::MAX, 0).as_millis(), 30_000);
    }

    #[test]
    fn jitter_draws_from_zero_to_the_delay() {
        assert_eq!(Retry::DEFAULT.delay(3, 0), Duration::ZERO);
        let nearly = Retry::DEFAULT.delay(3, u64::MAX);
        assert!(nearly <= Duration::from_millis(800) && nearly > Duration::from_millis(799));
    }
}

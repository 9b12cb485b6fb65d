//! Numbers, and only numbers, in one serde-readable tree.
//!
//! Invariant: settings that cannot work together are refused at start, with the inequality they break.

use crate::error::Error;
use lobster_store::contract::limits::EPOCH_LEAP;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Every number of an engine. Missing fields take the defaults; durations read like `300s`, `200ms`, `7days`.
///
/// ```
/// use lobster_core::Settings;
/// let settings: Settings = serde_json::from_str(r#"{ "lease": { "ttl": "30s" }, "run": { "executing": 10 } }"#).unwrap();
/// assert_eq!(settings.run.executing, 10);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The node's lease.
    pub lease: LeaseSettings,
    /// Runs in this process.
    pub run: RunSettings,
    /// The committer.
    pub commit: CommitSettings,
    /// State of runs.
    pub state: StateSettings,
    /// Removal of ended runs.
    pub retention: RetentionSettings,
}

/// The lease of a node: how soon a silent one is taken for dead. See the guide "Idempotency and irreversible steps".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LeaseSettings {
    /// A node whose beat is older may be declared failed. Default 15 s.
    #[serde(with = "humantime_serde")]
    pub ttl: Duration,
    /// Time between renewals, and the start window W of irreversible calls. Default 3 s.
    #[serde(with = "humantime_serde")]
    pub renew: Duration,
    /// Without a renewal for so long a node starts no irreversible call and claims nothing. Default 9 s.
    #[serde(with = "humantime_serde")]
    pub self_fence: Duration,
    /// Added to the TTL by whoever declares another node failed. Default 1 s.
    #[serde(with = "humantime_serde")]
    pub guard: Duration,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(15),
            renew: Duration::from_secs(3),
            self_fence: Duration::from_secs(9),
            guard: Duration::from_secs(1),
        }
    }
}

/// Runs in one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// Runs executing at once. Default 100.
    pub executing: usize,
    /// The longest time between two looks for work that no hint announced. Default 1 s. On PostgreSQL, while hints of other processes
    /// are heard, a node that executes nothing takes twice as long: what comes due then, or what was submitted and its hint lost, is
    /// found within two polls. A run that killed its process again and again is looked for at every tenth look there, and whenever this
    /// node revoked another.
    #[serde(with = "humantime_serde")]
    pub poll: Duration,
    /// A run that only waits for something the engine knows, longer than this, leaves memory and comes back when it is due.
    /// Default 1 s.
    #[serde(with = "humantime_serde")]
    pub evict_after: Duration,
    /// A run with a state in a newer version than this code knows is left to others for so long. Default 10 s.
    #[serde(with = "humantime_serde")]
    pub newer_retry: Duration,
    /// Claims of a run without a newly recorded result before it is quarantined; a task may set its own
    /// (`#[task(max_attempts = ..)]`). Default 50.
    pub attempts_max: u32,
    /// Claims of a run in all before it is quarantined, however much progress each made; fewer than 1,048,576.
    /// Default 10,000.
    pub claims_max: u64,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            executing: 100,
            poll: Duration::from_secs(1),
            evict_after: Duration::from_secs(1),
            newer_retry: Duration::from_secs(10),
            attempts_max: 50,
            claims_max: 10_000,
        }
    }
}

/// The committer: how far memory may be ahead of the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CommitSettings {
    /// Bytes of one run that the store has not acknowledged yet; beyond, its steps wait. Default 8 MiB.
    pub lag_bytes: usize,
    /// The same in deltas. Default 20,000.
    pub lag_deltas: u64,
    /// Bytes of one run that are not synced yet, kept in memory; beyond, a synced flush is forced. Default 16 MiB.
    pub unsynced_bytes: usize,
    /// The longest time between two tries while the store is unavailable. Default 1 s.
    #[serde(with = "humantime_serde")]
    pub retry_max: Duration,
}

impl Default for CommitSettings {
    fn default() -> Self {
        Self { lag_bytes: 8 << 20, lag_deltas: 20_000, unsynced_bytes: 16 << 20, retry_max: Duration::from_secs(1) }
    }
}

/// State of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StateSettings {
    /// When changes are folded into a snapshot.
    pub snapshot: SnapshotSettings,
}

/// When the changes of a run are folded into a snapshot. A fold writes only what changed since the last one, so neither number decides
/// how much is written; they decide how much a resume has to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnapshotSettings {
    /// After so many deltas, if what the fold writes is less than what it replaces. Default 50.
    pub delta_threshold: u64,
    /// After this time, if there is anything to fold. Default 300 s.
    #[serde(with = "humantime_serde")]
    pub interval: Duration,
}

impl Default for SnapshotSettings {
    fn default() -> Self {
        Self { delta_threshold: 50, interval: Duration::from_secs(300) }
    }
}

/// Removal of ended runs, with everything they have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionSettings {
    /// How long an ended run is kept. Its key may be used again afterwards, for a new run with new idempotency keys.
    /// Default 7 days.
    #[serde(with = "humantime_serde")]
    pub keep: Duration,
    /// Time between two removals. Default 60 s.
    #[serde(with = "humantime_serde")]
    pub every: Duration,
    /// Runs removed in one transaction. Default 500.
    pub batch: usize,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        Self { keep: Duration::from_secs(7 * 24 * 3600), every: Duration::from_secs(60), batch: 500 }
    }
}

impl Settings {
    fn leased(ttl_ms: u64, renew_ms: u64, self_fence_ms: u64, guard_ms: u64) -> Self {
        let lease = LeaseSettings {
            ttl: Duration::from_millis(ttl_ms),
            renew: Duration::from_millis(renew_ms),
            self_fence: Duration::from_millis(self_fence_ms),
            guard: Duration::from_millis(guard_ms),
        };
        Self { lease, ..Self::default() }
    }
    /// Shorter leases for a good network: TTL 10 s.
    pub fn fast() -> Self {
        Self::leased(10_000, 2_000, 6_000, 1_000)
    }
    /// Longer leases for a network that stalls: TTL 30 s.
    pub fn wan() -> Self {
        Self::leased(30_000, 6_000, 18_000, 2_000)
    }
    /// For tests and demonstrations on one host: TTL 1 s, polls every 50 ms. Too short for a machine that may stall.
    pub fn test() -> Self {
        let mut settings = Self::leased(1_000, 200, 600, 200);
        settings.run.poll = Duration::from_millis(50);
        settings.run.evict_after = Duration::from_millis(100);
        settings.run.newer_retry = Duration::from_millis(200);
        settings.commit.retry_max = Duration::from_millis(100);
        settings
    }

    /// Checks what must hold between the numbers.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let LeaseSettings { ttl, renew, self_fence, guard } = self.lease;
        let rules = [
            (!renew.is_zero(), "lease.renew > 0", format!("{renew:?}")),
            (
                self_fence.checked_add(renew).is_some_and(|sum| sum <= ttl),
                "lease.self_fence + lease.renew <= lease.ttl",
                format!("{self_fence:?} + {renew:?} > {ttl:?}"),
            ),
            (renew < self_fence, "lease.renew < lease.self_fence", format!("{renew:?} >= {self_fence:?}")),
            (!guard.is_zero(), "lease.guard > 0", format!("{guard:?}")),
            (self.run.executing > 0, "run.executing > 0", self.run.executing.to_string()),
            (self.run.executing <= 100_000, "run.executing <= 100000", self.run.executing.to_string()),
            (!self.run.newer_retry.is_zero(), "run.newer_retry > 0", format!("{:?}", self.run.newer_retry)),
            (!self.run.poll.is_zero(), "run.poll > 0", format!("{:?}", self.run.poll)),
            (self.run.attempts_max > 0, "run.attempts_max > 0", self.run.attempts_max.to_string()),
            (self.run.claims_max > 0, "run.claims_max > 0", self.run.claims_max.to_string()),
            (self.run.claims_max < EPOCH_LEAP, "run.claims_max < 1048576", self.run.claims_max.to_string()),
            (self.commit.lag_bytes > 0, "commit.lag_bytes > 0", self.commit.lag_bytes.to_string()),
            (self.commit.lag_deltas > 0, "commit.lag_deltas > 0", self.commit.lag_deltas.to_string()),
            (self.commit.unsynced_bytes > 0, "commit.unsynced_bytes > 0", self.commit.unsynced_bytes.to_string()),
            (!self.commit.retry_max.is_zero(), "commit.retry_max > 0", format!("{:?}", self.commit.retry_max)),
            (
                self.state.snapshot.delta_threshold > 0,
                "state.snapshot.delta_threshold > 0",
                self.state.snapshot.delta_threshold.to_string(),
            ),
            (
                !self.state.snapshot.interval.is_zero(),
                "state.snapshot.interval > 0",
                format!("{:?}", self.state.snapshot.interval),
            ),
            (!self.retention.every.is_zero(), "retention.every > 0", format!("{:?}", self.retention.every)),
            (self.retention.batch > 0, "retention.batch > 0", self.retention.batch.to_string()),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, rule, found)) => Err(Error::invalid(format!("settings: {rule} does not hold ({found})"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_keeps_its_inequalities() {
        for settings in [Settings::default(), Settings::fast(), Settings::wan(), Settings::test()] {
            settings.check().expect("a shipped profile");
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let Settings { lease, run, commit: _, state, retention } = Settings::default();
        let secs = Duration::from_secs;
        assert_eq!((lease.ttl, lease.renew, lease.self_fence, lease.guard), (secs(15), secs(3), secs(9), secs(1)));
        assert_eq!((run.executing, run.poll, run.evict_after, run.attempts_max), (100, secs(1), secs(1), 50));
        assert_eq!((state.snapshot.delta_threshold, state.snapshot.interval), (50, secs(300)));
        assert_eq!((retention.keep, retention.every), (secs(7 * 24 * 3600), secs(60)));
    }

    #[test]
    fn a_broken_inequality_is_named() {
        type Breaks = fn(&mut Settings);
        let table: [(&str, Breaks); 20] = [
            ("lease.renew > 0", |of| of.lease.renew = Duration::ZERO),
            ("lease.self_fence + lease.renew <= lease.ttl (14s + 3s > 15s)", |of| of.lease.self_fence = Duration::from_secs(14)),
            ("lease.self_fence + lease.renew <= lease.ttl", |of| of.lease.self_fence = Duration::MAX),
            ("lease.renew < lease.self_fence", |of| of.lease.self_fence = of.lease.renew),
            ("lease.guard > 0", |of| of.lease.guard = Duration::ZERO),
            ("run.executing > 0", |of| of.run.executing = 0),
            ("run.executing <= 100000", |of| of.run.executing = 100_001),
            ("run.newer_retry > 0", |of| of.run.newer_retry = Duration::ZERO),
            ("run.poll > 0", |of| of.run.poll = Duration::ZERO),
            ("run.attempts_max > 0", |of| of.run.attempts_max = 0),
            ("run.claims_max > 0", |of| of.run.claims_max = 0),
            ("run.claims_max < 1048576 (1048576)", |of| of.run.claims_max = EPOCH_LEAP),
            ("commit.lag_bytes > 0", |of| of.commit.lag_bytes = 0),
            ("commit.lag_deltas > 0", |of| of.commit.lag_deltas = 0),
            ("commit.unsynced_bytes > 0", |of| of.commit.unsynced_bytes = 0),
            ("commit.retry_max > 0", |of| of.commit.retry_max = Duration::ZERO),
            ("state.snapshot.delta_threshold > 0", |of| of.state.snapshot.delta_threshold = 0),
            ("state.snapshot.interval > 0", |of| of.state.snapshot.interval = Duration::ZERO),
            ("retention.every > 0", |of| of.retention.every = Duration::ZERO),
            ("retention.batch > 0", |of| of.retention.batch = 0),
        ];
        for (rule, breaks) in table {
            let mut settings = Settings::default();
            breaks(&mut settings);
            let error = settings.check().expect_err(rule).to_string();
            // All of the rule, and the values that break it.
            let (rule, values) = rule.split_once(" (").unwrap_or((rule, ""));
            assert!(error.contains(&format!("settings: {rule} does not hold ({values}")), "{error}");
        }
    }
}

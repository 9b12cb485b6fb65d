//! The swarm: which faults a seed knows and how strong they are, drawn per seed, so that rare ones meet undisturbed.
//!
//! Invariant: drawn from its own stream, before anything runs.

use crate::rng::Rng;
use lobster_core::{LeaseSettings, Settings};
use std::time::Duration;

/// D of every irreversible step of the simulation.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(1);

/// Where in the life of a store call or an outside call something may be done to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Moment {
    /// It was sent.
    Sent,
    /// It applied; the answer is on its way.
    Applied,
    /// The answer was handed over.
    Answered,
}

/// What an operation is, as far as faults and coverage tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Call {
    Submit,
    Claim,
    Restore,
    Relaxed,
    Synced,
    Intent,
    Finish,
    Away,
    /// A transaction, up to the work in it.
    Transact,
    /// Its commit.
    Commit,
    /// A batch that waits for a row which others have locked again and again.
    Patient,
    /// What became of a commit that was not acknowledged?
    FindOut,
    Fold,
    Parts,
    Cancel,
    Verdict,
    Attend,
    Sweep,
    Join,
    Renew,
    Peers,
    Revoke,
    Leave,
    Read,
    Outside,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Blow {
    Kill,
    Pause,
    Crash,
}

impl Trigger {
    /// Where blows may fall, each once, at the first time of its moment.
    pub fn everywhere() -> Vec<Self> {
        let mut all = Vec::new();
        let mut calls = CALLS.to_vec();
        calls.dedup();
        for call in calls {
            for moment in [Moment::Sent, Moment::Applied, Moment::Answered] {
                all.extend([Blow::Kill, Blow::Pause, Blow::Crash].map(|blow| Self { call, moment, blow, count: 1 }));
            }
        }
        all
    }
    /// The place, as coverage names it.
    pub fn place(&self) -> String {
        format!("{:?}", (self.call, self.moment, self.blow))
    }
}

/// Something that happens at the n-th time of a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trigger {
    pub call: Call,
    pub moment: Moment,
    pub blow: Blow,
    pub count: u32,
}

/// A seed's configuration.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub nodes: usize,
    pub own_hosts: bool,
    pub runs: u32,
    pub clients: usize,
    pub chaos: Duration,
    pub settings: Settings,
    /// Largest ordinary delay of a part of a store call, in milliseconds.
    pub latency_ms: u64,
    /// Per mille of store calls.
    pub unavailable: u32,
    pub lost: u32,
    pub unknown: u32,
    pub late: u32,
    pub slow: u32,
    /// Of commits of transactions.
    pub refused: u32,
    /// Of store calls of processes that die meanwhile, where hosts are apart: they apply all the same.
    pub ghosts: u32,
    /// Of hints.
    pub deaf: u32,
    /// Mean time between two, in milliseconds; 0: none.
    pub kills_ms: u64,
    pub pauses_ms: u64,
    pub crashes_ms: u64,
    pub outages_ms: u64,
    pub drains_ms: u64,
    pub jumps_ms: u64,
    pub cancels_ms: u64,
    pub locks_ms: u64,
    /// Per mille of kills that leave no proof of death in time.
    pub slow_restart: u32,
    /// Per mille of outside calls.
    pub outside_errors: u32,
    pub outside_slow: u32,
    pub probe_blind: u32,
    pub person_in_chaos: bool,
    pub triggers: Vec<Trigger>,
    /// So many waiting runs send a second batch beside one that is on its way.
    pub beside: Option<usize>,
    /// Per mille of claims that say, for the first time of a run, that what happened may be lost.
    pub doubts: u32,
}

impl Swarm {
    /// Draws the configuration of a seed.
    pub fn draw(seed: u64) -> Self {
        let rng = &mut Rng::new(seed, "swarm", 0);
        let calm = rng.chance(100);
        let some = |rng: &mut Rng, permille: u32, low: u64, high: u64| match !calm && rng.chance(permille) {
            true => rng.within(low, high),
            false => 0,
        };
        let rate = |rng: &mut Rng, permille, low, high| u32::try_from(some(rng, permille, low, high)).unwrap_or(0);
        let triggers = (0..some(rng, 700, 1, 5)).map(|_| trigger(rng)).collect();
        Self {
            nodes: usize::try_from(rng.within(1, 4)).unwrap_or(1),
            own_hosts: rng.chance(400),
            runs: if rng.chance(500) { rng.within(1, 4) } else { rng.within(1, 20) } as u32,
            clients: usize::try_from(rng.within(1, 3)).unwrap_or(1),
            chaos: rng.ms(500, 6000),
            settings: settings(rng),
            latency_ms: rng.pick(&[0, 1, 1, 3, 10]),
            unavailable: rate(rng, 400, 1, 80),
            lost: rate(rng, 400, 1, 80),
            unknown: rate(rng, 500, 1, 120),
            late: rate(rng, 200, 1, 60),
            slow: rate(rng, 400, 1, 60),
            refused: rate(rng, 300, 10, 200),
            ghosts: rate(rng, 500, 100, 900),
            deaf: rate(rng, 300, 100, 1000),
            kills_ms: some(rng, 600, 150, 2500),
            pauses_ms: some(rng, 500, 200, 2500),
            crashes_ms: some(rng, 500, 100, 2500),
            outages_ms: some(rng, 200, 500, 4000),
            drains_ms: some(rng, 300, 400, 3000),
            jumps_ms: some(rng, 200, 200, 2000),
            cancels_ms: some(rng, 300, 100, 1500),
            locks_ms: some(rng, 300, 50, 1000),
            slow_restart: rate(rng, 500, 100, 1000),
            outside_errors: rate(rng, 600, 20, 400),
            outside_slow: rate(rng, 500, 20, 300),
            probe_blind: rate(rng, 500, 20, 400),
            person_in_chaos: rng.chance(500),
            triggers,
            beside: if rng.chance(500) { Some(rng.pick(&[1, 2, 4])) } else { None },
            doubts: rate(rng, 400, 100, 1000),
        }
    }
}

impl Swarm {
    /// The same with one blow alone, and with what it takes for its call to be made at all.
    pub fn aimed(mut self, trigger: Trigger) -> Self {
        self.triggers = vec![trigger];
        match trigger.call {
            Call::Cancel => self.cancels_ms = 200,
            Call::Leave => self.drains_ms = 400,
            Call::Revoke => self.kills_ms = 400,
            Call::Fold | Call::Parts => {
                let snapshot = &mut self.settings.state.snapshot;
                (snapshot.delta_threshold, snapshot.interval) = (1, Duration::from_millis(1));
            }
            Call::Patient => self.locks_ms = 50,
            Call::FindOut => (self.unknown, self.late) = (120, 60),
            Call::Verdict => (self.person_in_chaos, self.outside_errors) = (true, 400),
            _ => {}
        }
        self
    }
}

fn settings(rng: &mut Rng) -> Settings {
    let ttl_ms = rng.pick(&[800, 1500, 3000]);
    let ms = Duration::from_millis;
    let mut settings = Settings::test();
    settings.lease =
        LeaseSettings { ttl: ms(ttl_ms), renew: ms(ttl_ms / 5), self_fence: ms(ttl_ms * 3 / 5), guard: ms(ttl_ms / 10) };
    settings.run.poll = ms(rng.pick(&[50, 100, 250]));
    settings.run.evict_after = ms(rng.pick(&[20, 100, 1000]));
    settings.run.executing = rng.pick(&[2, 4, 100]);
    settings.commit.lag_deltas = rng.pick(&[1, 3, 20_000]);
    settings.commit.unsynced_bytes = rng.pick(&[200, 16 << 20]);
    settings.state.snapshot.delta_threshold = rng.within(1, 10);
    settings.state.snapshot.interval = ms(rng.pick(&[1, 20, 200, 300_000]));
    settings
}

/// Calls at which blows fall; the more interesting ones more often.
const CALLS: [Call; 29] = [
    Call::Submit,
    Call::Claim,
    Call::Restore,
    Call::Relaxed,
    Call::Synced,
    Call::Synced,
    Call::Intent,
    Call::Intent,
    Call::Intent,
    Call::Finish,
    Call::Away,
    Call::Transact,
    Call::Transact,
    Call::Commit,
    Call::Commit,
    Call::Patient,
    Call::FindOut,
    Call::Fold,
    Call::Fold,
    Call::Parts,
    Call::Cancel,
    Call::Verdict,
    Call::Join,
    Call::Renew,
    Call::Revoke,
    Call::Leave,
    Call::Outside,
    Call::Outside,
    Call::Outside,
];

fn trigger(rng: &mut Rng) -> Trigger {
    Trigger {
        call: rng.pick(&CALLS),
        moment: rng.pick(&[Moment::Sent, Moment::Applied, Moment::Answered]),
        blow: rng.pick(&[Blow::Kill, Blow::Kill, Blow::Pause, Blow::Pause, Blow::Crash]),
        count: rng.within(1, 8) as u32,
    }
}

//! The lease of this node: what it permits at this moment, and the thread that renews it.
//!
//! Invariant: a lease is trusted from the moment before its renewal was sent, and checked where it matters, on the call path.

use crate::settings::LeaseSettings;
use lobster_store::contract::Boot;
use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

/// Renewals that a store is given in a second by all nodes together, as long as their leases permit it.
const BEATS_PER_SECOND: u32 = 50;

/// A renewal comes up to a tenth of the interval sooner or later, so that nodes that started together do not stay in step.
pub(crate) const JITTER: f64 = 0.1;

/// The time between two renewals in a cluster of so many living nodes: what the settings say, and longer where they would be too many for
/// the store. Never so long that one which comes late would leave less than the self-fence of a TTL: in a cluster too large for that the
/// store gets more of them.
pub(crate) fn interval(settings: &LeaseSettings, nodes: u32) -> Duration {
    let longest = settings.ttl.saturating_sub(settings.self_fence).div_f64(1.0 + JITTER);
    let share = Duration::from_secs(nodes.into()) / BEATS_PER_SECOND;
    share.min(longest).max(settings.renew)
}

/// What the holder may rely on. Read before every poll of an irreversible call.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// End of what the last renewal permits: nanoseconds on the boot clock.
    deadline: AtomicU64,
    /// When the store was last known to have this incarnation among the living: nanoseconds on the boot clock.
    heard: AtomicU64,
    /// Grows whenever the lease had lapsed before it was renewed, and with each new incarnation.
    generation: AtomicU64,
    /// Living nodes, as they were last read.
    nodes: AtomicU32,
}

/// A moment of the lease, compared later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Lease {
    /// A renewal sent at `sent` was acknowledged. Returns whether the lease had lapsed.
    pub fn renewed(&self, sent: Boot, self_fence: Duration) -> bool {
        let lapsed = !self.good(sent);
        if lapsed {
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
        self.heard.fetch_max(sent.nanos(), Ordering::SeqCst);
        self.deadline.fetch_max((sent + self_fence).nanos(), Ordering::SeqCst);
        lapsed
    }
    /// So many nodes live, this one among them.
    pub fn seen(&self, nodes: usize) {
        self.nodes.store(u32::try_from(nodes).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
    /// The time between two renewals of any node, as it should be now.
    pub fn interval(&self, settings: &LeaseSettings) -> Duration {
        interval(settings, self.nodes.load(Ordering::Relaxed))
    }
    /// Nothing is permitted until the next renewal.
    pub fn lost(&self) {
        self.deadline.store(0, Ordering::SeqCst);
    }
    /// Is the self-fence still ahead?
    pub fn good(&self, now: Boot) -> bool {
        now.nanos() < self.deadline.load(Ordering::SeqCst)
    }
    /// A new incarnation has joined: nothing is permitted yet.
    pub fn joined(&self, now: Boot) {
        self.lost();
        self.heard.store(now.nanos(), Ordering::SeqCst);
    }
    /// Time since this incarnation has joined, or the last renewal that was acknowledged was sent.
    pub fn silent(&self, now: Boot) -> Duration {
        now.since(Boot::from_nanos(self.heard.load(Ordering::SeqCst)))
    }
    /// Time until the self-fence.
    pub fn left(&self, now: Boot) -> Duration {
        Boot::from_nanos(self.deadline.load(Ordering::SeqCst)).since(now)
    }
    /// The lapse-free stretch that this moment belongs to.
    pub fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn a_large_cluster_renews_less_often_as_far_as_the_ttl_permits() {
        let table = [
            (Settings::default(), 1, 3_000),
            (Settings::default(), 150, 3_000),
            (Settings::default(), 200, 4_000),
            (Settings::default(), 272, 5_440),
            (Settings::default(), 300, 5_454),
            (Settings::default(), 100_000, 5_454),
            (Settings::fast(), 100, 2_000),
            (Settings::fast(), 150, 3_000),
            (Settings::fast(), 1_000, 3_636),
            (Settings::wan(), 300, 6_000),
            (Settings::wan(), 500, 10_000),
            (Settings::wan(), u32::MAX, 10_909),
            (Settings::test(), 10, 200),
            (Settings::test(), 1_000, 363),
        ];
        for (settings, nodes, ms) in table {
            let found = interval(&settings.lease, nodes);
            assert_eq!(found.as_millis(), ms, "{nodes} nodes of {:?}", settings.lease);
            let latest = found.mul_f64(1.0 + JITTER);
            let room = settings.lease.ttl - settings.lease.self_fence + Duration::from_micros(1);
            assert!(latest <= room.max(settings.lease.renew.mul_f64(1.0 + JITTER)), "{nodes} nodes: {latest:?}");
        }
        // As close to the TTL as settings may be: nothing grows, and nothing shrinks.
        let mut close = Settings::default().lease;
        close.self_fence = close.ttl - close.renew;
        assert_eq!(interval(&close, 10_000), close.renew);
    }

    #[test]
    fn a_lapse_begins_a_new_generation_even_if_renewed_later() {
        let (lease, fence) = (Lease::default(), Duration::from_secs(9));
        let at = |seconds| Boot(Duration::from_secs(seconds));
        assert!(!lease.good(at(1)));
        assert!(lease.renewed(at(1), fence), "the first renewal begins a generation");
        let first = lease.generation();
        assert!(lease.good(at(9)) && !lease.good(at(10)));
        assert!(!lease.renewed(at(8), fence));
        assert_eq!(lease.generation(), first);
        assert!(lease.renewed(at(17), fence), "it lapsed at 17");
        assert_ne!(lease.generation(), first);
        assert!(lease.good(at(18)));
        lease.lost();
        assert!(!lease.good(at(18)));
    }
}

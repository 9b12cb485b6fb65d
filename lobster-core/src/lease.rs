//! The lease of this node: what it permits at this moment, and the thread that renews it.
//!
//! Invariant: a lease is trusted from the moment before its renewal was sent, and checked where it matters, on the call path.

use lobster_store::contract::Boot;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// What the holder may rely on. Read before every poll of an irreversible call.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// End of what the last renewal permits: nanoseconds on the boot clock.
    deadline: AtomicU64,
    /// Grows whenever the lease had lapsed before it was renewed, and with each new incarnation.
    generation: AtomicU64,
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
        self.deadline.fetch_max((sent + self_fence).nanos(), Ordering::SeqCst);
        lapsed
    }
    /// Nothing is permitted until the next renewal.
    pub fn lost(&self) {
        self.deadline.store(0, Ordering::SeqCst);
    }
    /// Is the self-fence still ahead?
    pub fn good(&self, now: Boot) -> bool {
        now.nanos() < self.deadline.load(Ordering::SeqCst)
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

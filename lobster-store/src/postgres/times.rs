//! Moments by two clocks: the server's, by which everything stored is dated and judged, and this host's, by which callers count.
//!
//! Invariant: a moment is translated where it enters or leaves a statement, by the difference that the last answers told.

use crate::contract::Wall;
use std::sync::atomic::{AtomicI64, Ordering};

/// Clocks that differ by less are taken to agree: synchronized clocks do, and an answer takes about as long.
const AGREE_MS: i64 = 50;

/// The server's time in milliseconds, for a statement to tell.
pub(super) const SERVER_MS: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::int8";

/// How far the server's clock is ahead of this host's.
#[derive(Debug, Default)]
pub(super) struct Times {
    ahead_ms: AtomicI64,
}

impl Times {
    /// The server told its time between two moments here.
    pub(super) fn told(&self, before: Wall, server_ms: i64, after: Wall) {
        let (least, most) = (server_ms.saturating_sub(after.0), server_ms.saturating_sub(before.0));
        let ahead = self.ahead_ms.load(Ordering::Relaxed);
        if !(least.saturating_sub(AGREE_MS)..=most.saturating_add(AGREE_MS)).contains(&ahead) {
            // What is due now is not to be due a moment later there.
            let ahead = if (least..=most).contains(&0) { 0 } else { least };
            self.ahead_ms.store(ahead, Ordering::Relaxed);
        }
    }

    /// A moment of this host's clock by the server's.
    pub(super) fn there(&self, moment: Wall) -> i64 {
        moment.0.saturating_add(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// A moment of the server's clock by this host's.
    pub(super) fn here(&self, moment_ms: i64) -> Wall {
        Wall(moment_ms.saturating_sub(self.ahead_ms.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_nearly_agree_are_not_translated() {
        let times = Times::default();
        times.told(Wall(1_000), 1_040, Wall(1_003));
        assert_eq!(times.there(Wall(5)), 5);
        // An answer that took its time says little.
        times.told(Wall(1_000), 9_000, Wall(20_000));
        assert_eq!(times.there(Wall(5)), 5);
    }

    #[test]
    fn a_step_of_either_clock_is_followed_and_taken_back() {
        let times = Times::default();
        times.told(Wall(100_000), 160_001, Wall(100_002));
        assert_eq!((times.there(Wall(0)), times.here(times.there(Wall(7)))), (59_999, Wall(7)));
        times.told(Wall(200_000), 260_030, Wall(200_010));
        assert_eq!(times.there(Wall(0)), 59_999, "no jitter with every answer");
        times.told(Wall(300_000), 240_000, Wall(300_001));
        assert_eq!(times.there(Wall(0)), -60_001);
        times.told(Wall(400_000), 400_000, Wall(400_001));
        assert_eq!(times.there(Wall(0)), 0);
        times.told(Wall(i64::MAX), 0, Wall(i64::MAX));
        times.there(Wall(i64::MIN));
    }
}

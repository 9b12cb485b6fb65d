//! Time as an argument: a clock that counts suspend, and a wall clock.
//!
//! Invariant: nothing in the engine or a tier reads a clock except through [`Clock`].

use std::{fmt, time::Duration};

/// A moment on a clock that starts with the host and goes on through suspend (CLOCK_BOOTTIME on Linux).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Boot(pub Duration);

impl Boot {
    /// Time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Boot) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
    /// Whole nanoseconds, as recorded.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
    /// From recorded nanoseconds.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }
}

impl std::ops::Add<Duration> for Boot {
    type Output = Boot;
    fn add(self, later: Duration) -> Boot {
        Boot(self.0.saturating_add(later))
    }
}

/// Wall-clock milliseconds since 1970-01-01T00:00:00Z. Decides due times and retention, never a lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wall(pub i64);

impl Wall {
    /// This moment and `later` more.
    pub fn plus(self, later: Duration) -> Wall {
        Wall(self.0.saturating_add(i64::try_from(later.as_millis()).unwrap_or(i64::MAX)))
    }
    /// This moment less `earlier`.
    pub fn minus(self, earlier: Duration) -> Wall {
        Wall(self.0.saturating_sub(i64::try_from(earlier.as_millis()).unwrap_or(i64::MAX)))
    }
    /// Time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Wall) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Debug for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// The two clocks of a host.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Now, on the clock that counts suspend.
    fn boot(&self) -> Boot;
    /// Now, by the calendar.
    fn wall(&self) -> Wall;
}

//! A clock that stands still until a test moves it.
//!
//! Invariant: it never moves by itself, and only its calendar can be set back.

use crate::contract::{Boot, Clock, Wall};
use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// A clock under a test's control. Starts at ten thousand seconds after boot, some day in 2026.
#[derive(Debug)]
pub struct TestClock {
    now: Mutex<(Boot, Wall)>,
}

impl TestClock {
    /// A new clock, standing.
    pub fn new() -> Arc<Self> {
        let now = (Boot(Duration::from_secs(10_000)), Wall(1_780_000_000_000));
        Arc::new(Self { now: Mutex::new(now) })
    }

    /// Moves both its faces on.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now();
        now.0 = now.0 + by;
        now.1 = now.1.plus(by);
    }

    /// Sets the calendar, forward or back; the time since boot stays.
    pub fn set_wall(&self, wall: Wall) {
        self.now().1 = wall;
    }

    fn now(&self) -> MutexGuard<'_, (Boot, Wall)> {
        self.now.lock().expect("nothing panics while it holds a clock's two numbers")
    }
}

impl Clock for TestClock {
    fn boot(&self) -> Boot {
        self.now().0
    }
    fn wall(&self) -> Wall {
        self.now().1
    }
}

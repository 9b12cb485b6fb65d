//! Bytes that a client must not send unharmed.
//!
//! Invariant: an armed trap fires once, for the first connection that sends all of its bytes, however they are cut into chunks.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The trap of a proxy.
#[derive(Debug, Default)]
pub(super) struct Trap {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    armed: Option<(Vec<u8>, bool)>,
    fired: bool,
}

/// What becomes of the chunk that springs the trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sprung {
    Deliver,
    Drop,
}

impl Trap {
    pub fn arm(&self, needle: &[u8], deliver: bool) {
        assert!(!needle.is_empty(), "every client sends nothing");
        *self.state() = State { armed: Some((needle.to_owned(), deliver)), fired: false };
    }

    pub fn disarm(&self) {
        self.state().armed = None;
    }

    /// Looks at what a connection sent; `recent` is what this connection sent before, as far as it matters.
    pub fn springs(&self, recent: &mut Vec<u8>, chunk: &[u8]) -> Option<Sprung> {
        let mut state = self.state();
        let Some((needle, deliver)) = &state.armed else {
            recent.clear();
            return None;
        };
        recent.extend_from_slice(chunk);
        let found = recent.windows(needle.len()).any(|window| window == needle);
        let (keep, deliver) = (needle.len() - 1, *deliver);
        recent.drain(..recent.len().saturating_sub(keep));
        if !found {
            return None;
        }
        state.armed = None;
        Some(if deliver { Sprung::Deliver } else { Sprung::Drop })
    }

    /// What the trap is for has happened.
    pub fn fire(&self) {
        self.state().fired = true;
        self.changed.notify_all();
    }

    pub fn fired(&self) -> bool {
        self.state().fired
    }

    pub fn wait(&self, within: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), within, |state| !state.fired);
        waited.unwrap_or_else(PoisonError::into_inner).0.fired
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Sprung, Trap};

    #[test]
    fn it_springs_once_and_across_chunks() {
        let (trap, mut recent) = (Trap::default(), Vec::new());
        trap.arm(b"COMMIT", true);
        assert_eq!(trap.springs(&mut recent, b"BEGIN; COMM"), None);
        assert_eq!(trap.springs(&mut Vec::new(), b"IT"), None, "another connection");
        assert_eq!(trap.springs(&mut recent, b"IT;"), Some(Sprung::Deliver));
        assert_eq!(trap.springs(&mut recent, b"COMMIT"), None);
    }
}

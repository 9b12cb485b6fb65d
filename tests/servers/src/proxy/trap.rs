//! Bytes that a client must not send unharmed.
//!
//! Invariant: an armed trap fires once, for the first connection that sends all of its bytes in their order, however they are cut into
//! chunks.

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
    armed: Option<(Vec<Vec<u8>>, bool)>,
    /// How often it was armed.
    armings: u64,
    fired: bool,
}

/// What one connection sent since the trap was armed, as far as it matters.
#[derive(Debug, Default)]
pub(super) struct Sent {
    arming: u64,
    /// So many needles.
    needles: usize,
    /// And what may be the beginning of the next one.
    recent: Vec<u8>,
}

/// What becomes of the chunk that springs the trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sprung {
    Deliver,
    Drop,
}

impl Trap {
    pub fn arm(&self, needles: &[&[u8]], deliver: bool) {
        assert!(needles.iter().all(|needle| !needle.is_empty()), "every client sends nothing");
        let mut state = self.state();
        let needles = needles.iter().map(|needle| needle.to_vec()).collect();
        *state = State { armed: Some((needles, deliver)), armings: state.armings + 1, fired: false };
    }

    pub fn disarm(&self) {
        self.state().armed = None;
    }

    /// Looks at a chunk of a connection; `sent` is what this connection sent before.
    pub fn springs(&self, sent: &mut Sent, chunk: &[u8]) -> Option<Sprung> {
        let mut state = self.state();
        let (needles, deliver) = state.armed.as_ref()?;
        if sent.arming != state.armings {
            *sent = Sent { arming: state.armings, ..Sent::default() };
        }
        sent.recent.extend_from_slice(chunk);
        while let Some(needle) = needles.get(sent.needles) {
            let Some(at) = sent.recent.windows(needle.len()).position(|window| window == needle) else {
                sent.recent.drain(..sent.recent.len().saturating_sub(needle.len() - 1));
                return None;
            };
            sent.recent.drain(..at + needle.len());
            sent.needles += 1;
        }
        let sprung = if *deliver { Sprung::Deliver } else { Sprung::Drop };
        state.armed = None;
        Some(sprung)
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
    use super::{Sent, Sprung, Trap};

    #[test]
    fn it_springs_once_and_across_chunks() {
        let (trap, mut sent) = (Trap::default(), Sent::default());
        trap.arm(&[b"COMMIT"], true);
        assert_eq!(trap.springs(&mut sent, b"BEGIN; COMM"), None);
        assert_eq!(trap.springs(&mut Sent::default(), b"IT"), None, "another connection");
        assert_eq!(trap.springs(&mut sent, b"IT;"), Some(Sprung::Deliver));
        assert_eq!(trap.springs(&mut sent, b"COMMIT"), None);
    }

    #[test]
    fn it_springs_when_one_connection_has_sent_everything_in_its_order() {
        let (trap, mut one, mut other) = (Trap::default(), Sent::default(), Sent::default());
        trap.arm(&[b"INSERT", b"COMMIT"], false);
        assert_eq!(trap.springs(&mut one, b"COMMIT; BEGIN; INSERT; COM"), None);
        assert_eq!(trap.springs(&mut other, b"MIT; BEGIN; COMMIT"), None);
        assert_eq!(trap.springs(&mut one, b"MIT"), Some(Sprung::Drop));
        trap.arm(&[b"INSERT", b"COMMIT"], true);
        assert_eq!(trap.springs(&mut one, b"COMMIT"), None, "what it sent before does not count");
        assert_eq!(trap.springs(&mut other, b"INSERT; COMMIT"), Some(Sprung::Deliver));
    }
}

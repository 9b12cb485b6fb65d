//! Waiting for what another process does and sends no signal for. There is always a deadline.

use std::time::{Duration, Instant};

/// How long a server may take for anything. Generous, since machines that build are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until there is an answer; `None` after the deadline.
pub(crate) fn until<T>(within: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() > deadline {
            return None;
        }
        // Between two looks at a process that is not ours to be notified of.
        std::thread::sleep(Duration::from_millis(2));
    }
}

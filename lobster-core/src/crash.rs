//! Named crash points (`P0` .. `P23`, and others by word), armed by `LOBSTER_CRASH`, compiled under the feature `crash-points`.
//!
//! Invariant: without the feature, a point is nothing at all.

/// Passes a named point. With `LOBSTER_CRASH=P13:2` the second pass of `P13` ends the process by SIGKILL;
/// with `LOBSTER_CRASH=P13:2:stop` it stops it by SIGSTOP instead, until somebody continues it.
#[cfg(feature = "crash-points")]
pub(crate) fn point(name: &str) {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    };
    struct Armed {
        name: String,
        pass: u64,
        signal: rustix::process::Signal,
        passed: AtomicU64,
    }
    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let text = std::env::var("LOBSTER_CRASH").ok()?;
        let mut parts = text.split(':');
        let name = parts.next()?.to_owned();
        let pass = parts.next().and_then(|pass| pass.parse().ok()).unwrap_or(1);
        let signal = match parts.next() {
            Some("stop") => rustix::process::Signal::STOP,
            _ => rustix::process::Signal::KILL,
        };
        Some(Armed { name, pass, signal, passed: AtomicU64::new(0) })
    });
    if let Some(armed) = &*ARMED
        && armed.name == name
        && armed.passed.fetch_add(1, Ordering::SeqCst) + 1 == armed.pass
    {
        // The signal takes effect before the call returns to this thread.
        let sent = rustix::process::kill_process(rustix::process::getpid(), armed.signal);
        assert!(sent.is_ok(), "a process may always signal itself");
    }
}

/// Passes a named point.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub(crate) fn point(_name: &str) {}

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
        let sent = rustix::process::kill_process(rustix::process::getpid(), armed.signal);
        assert!(sent.is_ok(), "a process may always signal itself");
        // A kill ends every thread before the call returns to any. A stop is a signal like others: the main thread takes it
        // when it can, and until then this thread would walk on past its point. Once it is taken, no thread comes back from
        // a system call, the read below among them.
        while armed.signal == rustix::process::Signal::STOP && stop_pending() {}
    }
}

/// Does a stop sent to this process still wait to be taken by one of its threads? Where the system does not say: no.
#[cfg(feature = "crash-points")]
fn stop_pending() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).map(|mask| u64::from_str_radix(mask.trim(), 16));
    matches!(mask, Some(Ok(mask)) if mask & (1 << (rustix::process::Signal::STOP.as_raw() - 1)) != 0)
}

/// Passes a named point.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub(crate) fn point(_name: &str) {}

//! The working process, seen from itself: what it owes its supervisor.
//!
//! Invariant: it stops when its supervisor is gone or says so, and never waits for it.

use std::io::Read;

use tokio::sync::oneshot;

/// Tells the supervisor how much is done.
pub fn finished(count: u64) {
    println!("finished {count}");
}

/// Completes when the standard input ends, which means: stop. Read on a thread of its own: a process that is done does not wait for it.
pub fn asked_to_stop() -> oneshot::Receiver<()> {
    let (asked, stop) = oneshot::channel();
    std::thread::spawn(move || {
        let _ended = std::io::stdin().read_to_end(&mut Vec::new());
        let _already_done = asked.send(());
    });
    stop
}

/// Shows the engine's log on standard error, if this variable of the environment names the least important lines to show: `error`,
/// `warn`, `info`, `debug`, `trace`.
pub fn log_if_asked(variable: &str) {
    if let Some(level) = std::env::var(variable).ok().and_then(|level| level.parse::<tracing::Level>().ok()) {
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    }
}

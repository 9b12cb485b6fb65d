//! What the engine asks of its host: clocks, chance, tasks, a thread for the lease.
//!
//! Invariant: the engine reads no clock, draws no number and starts no task except through [`Host`]; so a simulation that
//! provides one decides everything.

use lobster_store::contract::{Boot, Clock, Wall};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The engine's surroundings. [`OsHost`] is the real one; testing kits bring their own.
pub trait Host: Clock {
    /// Runs a task of the engine to its end.
    fn spawn(&self, task: BoxFuture<'static, ()>);
    /// Runs the lease's task where busy or blocked user code cannot starve it: on a thread and runtime of its own.
    ///
    /// # Errors
    /// If no thread can be started.
    fn spawn_lease(&self, task: BoxFuture<'static, ()>) -> std::io::Result<()>;
    /// Completes after `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
    /// A uniformly drawn number.
    fn random(&self) -> u64;
}

/// The process and the tokio runtime it was made in.
#[derive(Debug, Clone)]
pub struct OsHost {
    runtime: tokio::runtime::Handle,
}

impl OsHost {
    /// A host on the current tokio runtime, whose timers must be enabled; `None` outside of one.
    pub fn current() -> Option<Self> {
        tokio::runtime::Handle::try_current().ok().map(|runtime| Self { runtime })
    }
}

/// The clock that goes on while the machine sleeps: on macOS that is CLOCK_MONOTONIC, on Linux another.
#[cfg(all(target_os = "linux", not(lobster_portable)))]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
#[cfg(not(all(target_os = "linux", not(lobster_portable))))]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

impl Clock for OsHost {
    fn boot(&self) -> Boot {
        let now = rustix::time::clock_gettime(BOOT_CLOCK);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        Boot(Duration::new(seconds, nanos))
    }
    fn wall(&self) -> Wall {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Wall(now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000))
    }
}

#[allow(clippy::disallowed_methods, reason = "the one place where the engine spawns, sleeps and draws")]
impl Host for OsHost {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(self.runtime.spawn(task));
    }
    fn spawn_lease(&self, task: BoxFuture<'static, ()>) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("lobster-lease".into());
        thread.spawn(move || runtime.block_on(task)).map(drop)
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
    fn random(&self) -> u64 {
        getrandom::u64().expect("an operating system without randomness can run no lobster: ids would collide")
    }
}

/// The host as the engine holds it.
pub(crate) type HostRef = Arc<dyn Host>;

/// Waits until the wall clock says `due`, looking again at least every minute, since wall clocks jump.
pub(crate) async fn sleep_until(host: &dyn Host, due: Wall) {
    loop {
        let left = due.since(host.wall());
        if left.is_zero() {
            return;
        }
        host.sleep(left.min(Duration::from_secs(60))).await;
    }
}

/// Ids of runs: UUIDv7 whose first 60 bits grow with every id of this process, so that ids sort in the order of submission
/// (RFC 9562, section 6.2, method 1: a counter in the twelve bits behind the milliseconds).
#[derive(Debug, Default)]
pub(crate) struct Ids(AtomicU64);

impl Ids {
    pub fn next(&self, host: &dyn Host) -> uuid::Uuid {
        let floor = u64::try_from(host.wall().0).unwrap_or(0) << 12;
        let grow = |last: u64| Some(floor.max(last + 1));
        let last = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, grow).expect("the update always applies");
        let now = floor.max(last + 1);
        let mut random = [0u8; 10];
        random[..2].copy_from_slice(&((now & 0xfff) as u16).to_be_bytes());
        random[2..].copy_from_slice(&host.random().to_le_bytes());
        uuid::Builder::from_unix_timestamp_millis(now >> 12, &random).into_uuid()
    }
}

/// A fresh UUIDv7 from the wall clock and the host's randomness (RFC 9562, section 5.7).
pub(crate) fn uuid_v7(host: &dyn Host) -> uuid::Uuid {
    let millis = u64::try_from(host.wall().0).unwrap_or(0);
    let mut random = [0u8; 10];
    random[..8].copy_from_slice(&host.random().to_le_bytes());
    random[8..].copy_from_slice(&host.random().to_le_bytes()[..2]);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ids_grow_even_within_a_millisecond() {
        let (host, ids) = (OsHost::current().expect("inside a runtime"), Ids::default());
        let all: Vec<_> = (0..10_000).map(|_| ids.next(&host)).collect();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(all.iter().all(|id| id.get_version_num() == 7));
    }
}

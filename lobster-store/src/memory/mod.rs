//! The memory tier: one process, one lock, and the durability of a real store, so that simulation can lose data.
//!
//! Invariant: it is linearizable, and what was only appended relaxed is gone after [`Memory::crash_store`].
//!
//! It is the reference that other tiers are compared with, and the store under unit tests and simulation. Like a
//! write-ahead log it keeps two watermarks: a relaxed append or a renewal is visible at once but not durable; the next
//! operation that is synced *and writes* makes everything before it durable. A synced operation that writes nothing
//! syncs nothing, as in a real store.

mod business;
mod catalog;
mod journal;
mod members;
mod state;
mod strict;

pub use business::MemoryTx;

use crate::contract::{Clock, Incarnation, RunId, Stored, Wake};
use async_trait::async_trait;
use state::State;
use std::{
    fmt, mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::Notify;

/// A store in memory. It keeps every promise of the contract, and ends with the process.
///
/// ```
/// use lobster_store::{Tiers, contract::Clock, memory::Memory};
/// # fn tiers(clock: std::sync::Arc<dyn Clock>) -> Tiers {
/// Tiers::of(Memory::new(clock), "memory")
/// # }
/// ```
pub struct Memory {
    clock: Arc<dyn Clock>,
    strict: bool,
    state: Mutex<State>,
    hints: AtomicU64,
    // Wakes its waiters in the order they came. A watch channel would wake them in a random one, and a simulation
    // could not be repeated.
    hinted: Notify,
    /// Held by the business transaction of the moment.
    business: tokio::sync::Mutex<()>,
    /// Tells this store's transactions from those of another.
    identity: Arc<()>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("strict", &self.strict).finish_non_exhaustive()
    }
}

impl Memory {
    /// An empty store that goes by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::build(clock, false)
    }

    /// An empty store that also checks its caller: whatever breaks a rule of the contract's types (two offers of one run
    /// in a batch, rows that do not chain, a checksum that does not fit, an end that is no end) fails the call with
    /// [`Failed::Internal`](crate::contract::Failed::Internal), before anything is written. Meant for tests of engines.
    pub fn strict(clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::build(clock, true)
    }

    fn build(clock: Arc<dyn Clock>, strict: bool) -> Arc<Self> {
        Arc::new(Self {
            clock,
            strict,
            state: Mutex::default(),
            hints: AtomicU64::new(0),
            hinted: Notify::new(),
            business: tokio::sync::Mutex::default(),
            identity: Arc::default(),
        })
    }

    /// The store crashes and comes back while every process lives on: what was not synced is gone.
    ///
    /// Notes ([`Members::note`](crate::contract::Members::note)) stay: they belong to the host, not to the store.
    pub fn crash_store(&self) {
        self.with(State::crash);
    }

    /// The run as a crash of the store at this moment would leave it. Reading it changes nothing, and syncs nothing.
    pub fn durable(&self, run: RunId) -> Option<Stored> {
        self.with(|state| state.durable(run))
    }

    /// The process of `incarnation` dies: its slot or name is free and its death can be proved. Its row, its runs and its
    /// notes stay as they are, until somebody revokes it.
    pub fn kill(&self, incarnation: Incarnation) {
        self.with(|state| state.kill(incarnation));
    }

    /// Runs `f` on the locked state; gives the hint it asked for after the lock is released.
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().expect("nothing panics while it holds the state of the store");
        let value = f(&mut state);
        let stirred = mem::take(&mut state.stirred);
        drop(state);
        if stirred {
            self.hint();
        }
        value
    }
}

#[async_trait]
impl Wake for Memory {
    fn hint(&self) {
        self.hints.fetch_add(1, Ordering::SeqCst);
        self.hinted.notify_waiters();
    }

    fn hints(&self) -> u64 {
        self.hints.load(Ordering::SeqCst)
    }

    async fn hinted(&self, seen: u64) -> u64 {
        loop {
            // Made before the count is read: a hint between the two is not missed.
            let next = self.hinted.notified();
            let hints = self.hints();
            if hints != seen {
                return hints;
            }
            next.await;
        }
    }

    fn stride(&self) -> u32 {
        1
    }
}

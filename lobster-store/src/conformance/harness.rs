//! What a tier provides to be tested, and how one case is run.
//!
//! Invariant: each case has a store of its own.

use super::World;
use crate::{
    Tiers,
    contract::{Clock, Incarnation},
};
use async_trait::async_trait;
use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

/// One fresh, empty store for one case, and the power to do to it what happens to stores.
///
/// The `bool` answers say whether the tier can do such a thing at all. Where it cannot, it has to say so to
/// [`conformance!`](crate::conformance!), which leaves out the cases that need it.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// Opens the store, as one more process would: with connections, locks and caches of its own.
    async fn open(&self) -> Tiers;

    /// The clock that the store goes by.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Moves that clock on, both time since boot and calendar. `false`: it is not ours to move.
    async fn advance(&self, by: Duration) -> bool;

    /// The store crashes and is back when this returns; whatever was not synced *may* be gone. Processes live on: every
    /// [`Tiers`] opened before works again. `false`: the store cannot crash without its processes.
    async fn crash_store(&self) -> bool;

    /// The process behind `process`, which joined as `incarnation`, dies as by SIGKILL: what the operating system held for it
    /// is released and nothing is written. The caller keeps no clone of `process`. `false`: no death can be proved here,
    /// [`proves_dead`](crate::contract::Members::proves_dead) is always false.
    async fn kill(&self, process: Tiers, incarnation: Incarnation) -> bool;
}

/// A case that is not done by then hangs.
const CASE_MAX: Duration = Duration::from_secs(120);

/// A future in a box.
type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

/// Runs one case against one fresh store. Called by [`conformance!`](crate::conformance!); takes boxes, so that two hundred
/// cases do not compile it two hundred times.
pub fn run(harness: Boxed<Arc<dyn Harness>>, case: fn(World) -> Boxed<()>) {
    // Several threads, so that races between tasks are real ones.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a test may start two threads");
    let harness = runtime.block_on(async {
        let harness = harness.await;
        let world = World::new(harness.clone()).await;
        tokio::time::timeout(CASE_MAX, case(world)).await.expect("a case ends within its time");
        harness
    });
    // The last to go: it may own the files under a store.
    drop(runtime);
    drop(harness);
}

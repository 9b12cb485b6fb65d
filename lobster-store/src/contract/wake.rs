//! Hints that something changed. They save waiting; they decide nothing.
//!
//! Invariant: with every hint lost, polling alone still finds all work.

use async_trait::async_trait;

/// Passes hints between the processes that share a store.
#[async_trait]
pub trait Wake: Send + Sync + 'static {
    /// Says that runs may be ready, ended or asked for. Cheap, never fails, may be lost.
    fn hint(&self);
    /// How many hints were seen so far, by anybody.
    fn hints(&self) -> u64;
    /// Waits until [`hints`](Wake::hints) differs from `seen`, and returns it. May wait for ever.
    async fn hinted(&self, seen: u64) -> u64;
    /// An idle node looks for work at every so-manieth poll. 1 where a look costs next to nothing, and wherever hints of other
    /// processes are not heard at this moment.
    fn stride(&self) -> u32;
}

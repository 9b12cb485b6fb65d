//! The cellar of lobster: what stores must promise, and the tiers that keep those promises.
//!
//! Invariant: `contract` imports nothing else of this crate, and tiers import only `contract`.
//!
//! Users of lobster never need this crate directly; `lobster-core` re-exports what they need. A third party
//! writes a tier against [`contract`] and proves it with the `conformance` suite (feature `conformance`).

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod memory;
#[doc(hidden)]
pub mod planted;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod tiers;

pub use tiers::Tiers;

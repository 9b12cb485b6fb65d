//! One suite that every tier must pass: each sentence of the [`contract`](crate::contract) as a test of its own.
//!
//! Invariant: a case knows the contract only, so that it holds for every tier; what is left out for a tier stands where it calls the suite.
//!
//! A tier implements [`Harness`] and calls [`conformance!`](crate::conformance!) once, in a file under `tests/`:
//!
//! ```
//! use lobster_store::{Tiers, conformance::{Harness, TestClock}, contract::{Clock, Incarnation}, memory::Memory};
//! use std::{sync::Arc, time::Duration};
//!
//! struct InMemory { clock: Arc<TestClock>, store: Arc<Memory> }
//!
//! impl InMemory {
//!     fn fresh() -> Self {
//!         let clock = TestClock::new();
//!         Self { store: Memory::new(clock.clone()), clock }
//!     }
//! }
//!
//! #[async_trait::async_trait]
//! impl Harness for InMemory {
//!     async fn open(&self) -> Tiers { Tiers::of(self.store.clone(), "memory") }
//!     fn clock(&self) -> Arc<dyn Clock> { self.clock.clone() }
//!     async fn advance(&self, by: Duration) -> bool { self.clock.advance(by); true }
//!     async fn crash_store(&self) -> bool { self.store.crash_store(); true }
//!     async fn kill(&self, _: Tiers, incarnation: Incarnation) -> bool { self.store.kill(incarnation); true }
//! }
//!
//! lobster_store::conformance!(InMemory::fresh());
//! ```

#![allow(clippy::disallowed_methods, reason = "a suite for real stores, on a real runtime and its clock")]

mod build;
mod cases;
mod clock;
mod harness;
mod world;

#[doc(hidden)]
pub use cases::*;
pub use clock::TestClock;
pub use harness::{Harness, run};
pub use world::{Node, World};

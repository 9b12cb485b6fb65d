//! The parts of the `orders` example that are not the engine: the order book, the ledger that plays the outside world,
//! the supervisor that kills and restarts the working process, and the figures read back at the end.
//!
//! Nothing in this library knows lobster; the engine is used in `orders/checkout.rs` and `orders/worker.rs` only.
#![allow(clippy::disallowed_methods, reason = "an application is free to spawn and read clocks")]

pub mod book;
pub mod chaos;
pub mod figures;
pub mod ledger;
pub mod options;
pub mod pricing;
pub mod progress;
pub mod supervisor;

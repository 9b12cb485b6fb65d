//! The parts of the larger examples that are not the engine: the order book, the ledger that plays the outside world, the tables of a bank,
//! the supervisors that kill and restart a working process, and the figures read back at the end.
//!
//! Nothing in this library knows lobster; the engine is used in the folders `orders`, `navaids` and `transfers` only.
#![allow(clippy::disallowed_methods, reason = "an application is free to spawn and read clocks")]

pub mod book;
pub mod chaos;
pub mod database;
pub mod figures;
pub mod ledger;
pub mod navaids;
pub mod options;
pub mod pricing;
pub mod progress;
pub mod supervisor;
pub mod transfers;
pub mod working;

//! What the SQLite tier promises beyond the contract: its files, its processes, its syncs, and what bad days do to it.
#![cfg(feature = "sqlite")]

#[path = "../scratch/mod.rs"]
mod scratch;

mod bad_days;
mod children;
mod deaths;
mod dropped;
mod folds;
mod growth;
mod kit;
mod processes;
mod syncs;
mod twins;

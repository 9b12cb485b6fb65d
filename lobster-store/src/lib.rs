//! The cellar of lobster: what stores must promise, and the tiers that keep those promises.
//!
//! Invariant: `contract` imports nothing else of this crate, and tiers import only `contract`, and `local` for what a host knows.
//!
//! Users of lobster never need this crate directly; `lobster-core` re-exports it as `lobster_core::store`.
//!
//! The tiers: [`memory`], for tests; `sqlite` (feature `sqlite`, on by default), one file for the processes of one host; `postgres` (feature
//! `postgres`), one schema for processes of any number of hosts. Each gives business code its own transactions: `MemoryTx`, `SqliteTx`,
//! `PgTx`.
//!
//! # Writing a tier
//!
//! A tier is one value, or several, that keep the four promises of the [`contract`]: [`Journal`](contract::Journal) (runs with their
//! deltas, changes and snapshots), [`Members`](contract::Members) (nodes and their beats), [`Catalog`](contract::Catalog) (reads) and
//! [`Wake`](contract::Wake) (hints). [`memory`] is the reference: short, complete, and linearizable. In this order:
//!
//! 1. Implement the traits. The rule of [`append`](contract::Journal::append) is [`decide`](contract::decide), on the *locked* row
//!    of the run; that of [`fold`](contract::Journal::fold) is [`decide_fold`](contract::decide_fold), on that row and the seq of the
//!    run's snapshot. A tier that decides in SQL says the same there. Deltas and changes of a row share its seqs and its mark, and
//!    lie apart: deltas stay to the end of the run, and a fold takes changes away. A fold is one transaction: its manifest, its new
//!    parts, and what it removes are seen together or not at all, and a recording is always read under one snapshot. Whatever is
//!    acknowledged is synced, except a relaxed append and a fold; a synced append makes everything durable that was appended to its
//!    runs or folded before, and a crash that takes a row back takes back the folds that cover it. An outcome that is not known is
//!    [`Failed::Unknown`](contract::Failed::Unknown), never a failure. Records are bytes: a tier stores them and their checksums, and
//!    checks nothing. [`transact`](contract::Journal::transact) begins only if [`decide_hold`](contract::decide_hold) says so of the
//!    locked row, and commits what business code wrote together with the row it returns; a tier without transactions for others says
//!    so in [`business`](contract::Journal::business). Types of transactions that runs can be submitted in
//!    ([`submit_in`](contract::Journal::submit_in)) implement [`Tx`](contract::Tx).
//! 2. Implement `conformance::Harness` (feature `conformance`) and call `conformance!` once, in a file under `tests/`: each
//!    sentence of the contract becomes a test. What cannot be done to a tier in a test (moving its clock, crashing it, proving a
//!    death) stands there as well, and the cases that need it are left out.
//! 3. Put it together with [`Tiers::of`] and hand it to `lobster_core::Builder::tiers`.
//!
//! ```
//! use lobster_store::{Tiers, contract::{Catalog, Clock, Journal, Members, Wake}};
//! use std::sync::Arc;
//!
//! fn tiers<S: Journal + Members + Catalog + Wake>(my_store: Arc<S>) -> Tiers {
//!     Tiers::of(my_store, "my store")
//! }
//! # fn with(clock: Arc<dyn Clock>) -> Tiers { tiers(lobster_store::memory::Memory::new(clock)) }
//! ```
//!
//! The records themselves are published in `proto/records.proto`.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
#[cfg_attr(
    not(feature = "sqlite"),
    allow(dead_code, unused_imports, reason = "beats in files are SQLite's, elsewhere they are rows")
)]
mod local;
pub mod memory;
#[doc(hidden)]
pub mod planted;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod tiers;

pub use tiers::Tiers;

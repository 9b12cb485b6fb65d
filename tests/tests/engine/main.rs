//! The engine, as its users see it, on every store.
//!
//! Rule: each test is a sentence of the documentation.

#![allow(clippy::disallowed_methods, reason = "tests are applications: they may spawn and sleep")]
#![allow(missing_docs, reason = "tests are named as sentences")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

// Also run where nothing of Linux is used (`tests/portable`).
mod crash;
mod runs;
mod steps;

#[cfg(not(lobster_portable))]
mod bad_input;
#[cfg(not(lobster_portable))]
mod bookings;
#[cfg(not(lobster_portable))]
mod calls;
#[cfg(not(lobster_portable))]
mod changes;
#[cfg(not(lobster_portable))]
mod commits;
#[cfg(not(lobster_portable))]
mod damage;
#[cfg(not(lobster_portable))]
mod doubt;
#[cfg(not(lobster_portable))]
mod eviction;
#[cfg(not(lobster_portable))]
mod fleet;
#[cfg(not(lobster_portable))]
mod hostile;
#[cfg(not(lobster_portable))]
mod irreversible;
#[cfg(not(lobster_portable))]
mod nodes;
#[cfg(not(lobster_portable))]
mod poison;
#[cfg(not(lobster_portable))]
mod shutdown;
#[cfg(not(lobster_portable))]
mod state;
#[cfg(not(lobster_portable))]
mod stores;
#[cfg(not(lobster_portable))]
mod submit_in;
#[cfg(not(lobster_portable))]
mod transactional;

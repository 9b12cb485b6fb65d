//! The engine, as its users see it, on every embedded store.
//!
//! Rule: each test is a sentence of the documentation.

#![allow(clippy::disallowed_methods, reason = "tests are applications: they may spawn and sleep")]
#![allow(missing_docs, reason = "tests are named as sentences")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod bad_input;
mod bookings;
mod calls;
mod changes;
mod crash;
mod damage;
mod eviction;
mod fleet;
mod irreversible;
mod nodes;
mod poison;
mod runs;
mod shutdown;
mod state;
mod steps;
mod stores;
mod submit_in;
mod transactional;

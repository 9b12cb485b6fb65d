//! The engine, as its users see it, on every embedded store.
//!
//! Rule: each test is a sentence of the documentation.

#![allow(clippy::disallowed_methods, reason = "tests are applications: they may spawn and sleep")]
#![allow(missing_docs, reason = "tests are named as sentences")]

mod bad_input;
mod calls;
mod crash;
mod irreversible;
mod runs;
mod shutdown;
mod steps;

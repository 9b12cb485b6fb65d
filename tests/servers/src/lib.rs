//! Real servers for tests and benchmarks: PostgreSQL and PgBouncer of the machine, and a proxy that spoils connections.
//!
//! Invariant: nothing survives the process that started it, however that ends: no server, no directory, no shared memory.
//!
//! ```no_run
//! use lobster_servers::postgres::{Durability, Postgres};
//!
//! let server = Postgres::start(Durability::Fast)?;
//! let url = server.fresh_database();
//! lobster_servers::psql::sql(&url, "CREATE TABLE t (n INT)")?;
//! # Ok::<(), lobster_servers::Error>(())
//! ```
//!
//! Servers run on Linux: what they leave behind is found through `/proc`.

#![allow(clippy::disallowed_methods, reason = "servers of tests live in real time, and the proxy on a thread of its own")]

mod error;
mod home;
pub mod pgbouncer;
pub mod postgres;
mod process;
mod programs;
pub mod proxy;
pub mod psql;
pub mod shared;
mod wait;

pub use error::{Error, Missing, Result};

//! One server for all tests of a run, a database of its own for each.
//!
//! Invariant: a test finds its database empty, whoever else uses the server.

use crate::{
    postgres::{Durability, Postgres},
    psql::fresh_database,
};
use std::{env, sync::OnceLock};

/// Names the server of a run: the URL of a superuser.
pub const VARIABLE: &str = "LOBSTER_TEST_POSTGRES";

/// The URL of a fresh database: on the server that `LOBSTER_TEST_POSTGRES` names, else on a private one of this process.
///
/// # Panics
/// If there is no server: saying what to install.
pub fn postgres() -> String {
    static PRIVATE: OnceLock<Postgres> = OnceLock::new();
    let url = env::var(VARIABLE).unwrap_or_else(|_| {
        let start = || Postgres::start(Durability::Fast).unwrap_or_else(|error| panic!("{error}"));
        PRIVATE.get_or_init(start).url()
    });
    fresh_database(&url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

//! One server for all tests of a run, a database of its own for each.
//!
//! Invariant: a test finds its database empty, whoever else uses the server.

use crate::{
    postgres::{Durability, Postgres},
    psql::{beside, fresh_database, sql},
};
use std::{env, sync::OnceLock};

/// Names the server of a run: the URL of a superuser. What a run makes there stays: databases (`t..`) and roles of the same names.
pub const VARIABLE: &str = "LOBSTER_TEST_POSTGRES";

/// Names the pooler of a run, which stands before its server: the pooler's URL.
pub const POOLER: &str = "LOBSTER_TEST_PGBOUNCER";

/// Set: nothing takes another way than the pooler.
pub const POOLER_ONLY: &str = "LOBSTER_TEST_PGBOUNCER_ONLY";

/// The URL by which lobster reaches a database of [`postgres`]: through the pooler of the run, with hints and leases by the direct way unless
/// there shall be none, or the same again where there is no pooler.
pub fn by_the_pooler(direct: &str) -> String {
    let Ok(pooler) = env::var(POOLER) else { return direct.to_owned() };
    let direct = direct.split('?').next().unwrap_or(direct);
    let (user, database) = (direct.rsplit_once('@').map_or("", |(user, _)| user), direct.rsplit('/').next().unwrap_or(""));
    let encoded: String = direct.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let host = pooler.rsplit_once('@').map_or(&*pooler, |(_, host)| host);
    let pooled = format!("{}?lobster_pooled=true", beside(&format!("{user}@{host}"), database));
    if env::var_os(POOLER_ONLY).is_some() { pooled } else { format!("{pooled}&lobster_direct={encoded}") }
}

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

/// The URL of the same database for a role of its own in a group; both are made by a person who applies `schema`. The role may do as it
/// likes in `public`.
///
/// # Panics
/// With what the server said.
pub fn as_member(url: &str, group: &str, schema: &str) -> String {
    let (user, rest) = url.split_once('@').unwrap_or_else(|| panic!("{url} names no user"));
    let (scheme, user) = user.split_once("://").unwrap_or(("postgres", user));
    // A server that asks for passwords gets the same one.
    let password = user.split_once(':').map_or("", |(_, password)| password);
    let database = rest.split('?').next().and_then(|rest| rest.rsplit('/').next()).unwrap_or("");
    let name = format!("{group}_{database}");
    let role = format!(
        "{schema}\nCREATE ROLE {name} LOGIN PASSWORD '{password}' IN ROLE {group};\nGRANT ALL ON SCHEMA public TO {name};\n\
         ALTER DATABASE {database} SET search_path = public;\n\
         ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO {name};"
    );
    sql(url, &role).unwrap_or_else(|error| panic!("{url}: {error}"));
    let password = if password.is_empty() { String::new() } else { format!(":{password}") };
    format!("{scheme}://{name}{password}@{rest}")
}

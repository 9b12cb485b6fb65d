//! One server for all tests of a run, a database of its own for each.
//!
//! Invariant: a test finds its database empty, whoever else uses the server.

use crate::{
    pgbouncer::PgBouncer,
    postgres::{Durability, Postgres},
    psql::{fresh_database, sql},
};
use std::{
    collections::BTreeMap,
    env,
    sync::{Mutex, OnceLock, PoisonError},
};

/// Names the server of a run: the URL of a superuser. What a run makes there stays: databases (`t..`) and roles of the same names.
pub const VARIABLE: &str = "LOBSTER_TEST_POSTGRES";

/// Names the pooler of a run, which stands before its server: the pooler's URL. With it, poolers stand before all other servers too.
pub const POOLER: &str = "LOBSTER_TEST_PGBOUNCER";

/// Set: nothing takes another way than the pooler.
pub const POOLER_ONLY: &str = "LOBSTER_TEST_PGBOUNCER_ONLY";

/// The URL by which lobster reaches a database: through a pooler if the run has one, with hints and leases by the direct way unless there
/// shall be none; otherwise the same again. The pooler is that of the run, or one of this process before any other server, or before a
/// proxy.
pub fn by_the_pooler(direct: &str) -> String {
    let Ok(of_the_run) = env::var(POOLER) else { return direct.to_owned() };
    let pooler = match env::var(VARIABLE) {
        Ok(server) if host(&server) == host(direct) => of_the_run,
        _ => own_pooler(host(direct)),
    };
    let direct = direct.split('?').next().unwrap_or(direct);
    let encoded: String = direct.bytes().map(|byte| format!("%{byte:02x}")).collect();
    // When its server is there again, a pooler says for another second that it is not.
    let pooled = format!("{}&lobster_wait_ms=5000", behind(&pooler, direct));
    if env::var_os(POOLER_ONLY).is_some() { pooled } else { format!("{pooled}&lobster_direct={encoded}") }
}

/// The URL of the same database for the same role, through a pooler in transaction mode.
pub fn behind(pooler: &str, direct: &str) -> String {
    let direct = direct.split('?').next().unwrap_or(direct);
    let (user, database) = (direct.rsplit_once('@').map_or("", |(user, _)| user), direct.rsplit('/').next().unwrap_or(""));
    format!("{user}@{}/{database}?lobster_pooled=true", host(pooler))
}

/// The pooler before what listens here: one for all who ask, as long as this process lives.
fn own_pooler(host: &str) -> String {
    static POOLERS: Mutex<BTreeMap<String, PgBouncer>> = Mutex::new(BTreeMap::new());
    let start = || {
        let port =
            host.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or_else(|| panic!("{host} names no port"));
        PgBouncer::before(port).unwrap_or_else(|error| panic!("{error}"))
    };
    let mut poolers = POOLERS.lock().unwrap_or_else(PoisonError::into_inner);
    poolers.entry(host.to_owned()).or_insert_with(start).url("")
}

/// Host and port of a URL.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['/', '?']).next().unwrap_or(rest);
    rest.rsplit_once('@').map_or(rest, |(_, host)| host)
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

/// The URL of the same database for a role of its own in a group; both are made by a person who applies `schema`, the first time. The
/// role may do as it likes in `public`.
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
    let tell = |text: &str| sql(url, text).unwrap_or_else(|error| panic!("{url}: {error}"));
    if tell(&format!("SELECT 1 FROM pg_roles WHERE rolname = '{name}'")).is_empty() {
        tell(&role);
    }
    let password = if password.is_empty() { String::new() } else { format!(":{password}") };
    format!("{scheme}://{name}{password}@{rest}")
}

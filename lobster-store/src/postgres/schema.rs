//! The tables, and the steps that bring an older schema to them.
//!
//! Invariant: a step that was released never changes; a schema of a newer version is not touched.
//!
//! `runs` is the hot row and holds no payloads: an append changes no column that an index looks at, so that PostgreSQL writes the new
//! version of the row beside the old one and no index (a heap-only tuple). Its indexes are partial: ended runs, which pile up until
//! retention takes them, are in none that a claim or a batch looks at. States are stored as `RunState` numbers them: 0 ready, 1 running,
//! 2 held, from 3 ended. No foreign keys lead to `runs`: they would lock its rows.

use super::{
    newest::{self, timeline},
    options::Options,
    pool,
    roles::{self, Role},
    sql::get,
};
use crate::contract::{Failed, Result, RunState, limits};
use sqlx::{AssertSqlSafe, Connection, Executor, postgres::PgConnection};
use std::time::Duration;

/// Version `n` of the schema is what the first `n` steps make.
const STEPS: &[Step] = &[Step { text: FIRST, oldest: 0 }];

/// From one version to the next.
struct Step {
    text: &'static str,
    /// The oldest version whose code goes on with it. Most steps only add, and old code does not notice; one that takes away or changes
    /// what older code uses is not made while a node lives that says that it speaks such a version.
    oldest: i64,
}

impl Step {
    /// What is applied. A node that was silent for twice its TTL holds nothing up: its statements would fail by name, and change nothing.
    fn whole(&self) -> String {
        let (oldest, text) = (self.oldest, self.text);
        if oldest == 0 {
            return text.to_owned();
        }
        format!(
            "LOCK TABLE @nodes IN SHARE ROW EXCLUSIVE MODE;
DO $$ DECLARE old text := (SELECT string_agg(n.name, ', ') FROM @nodes n WHERE n.state = 0 AND n.schema_version < {oldest}
    AND clock_timestamp() - n.beat_at < make_interval(secs => 2 * n.ttl_ms / 1000.0));
BEGIN
    IF old IS NOT NULL THEN RAISE EXCEPTION 'nodes of older code must end first: %', old USING ERRCODE = '55000'; END IF;
END $$;
{text}"
        )
    }
}

/// Steps behind one another, and the note of the version that they lead to.
fn texts(steps: &[Step], from: usize) -> String {
    let texts: String = steps.iter().skip(from).map(Step::whole).collect();
    if texts.is_empty() { texts } else { texts + &version_is(steps.len()) }
}

/// The version of this code.
pub(super) const VERSION: i64 = 1;
const _: () = assert!(STEPS.len() == 1);

/// The oldest server that is known to run these statements: `server_version_num`.
const OLDEST: i32 = 140_000;

// What the first step says in numbers. Whoever changes one of these adds a step that rebuilds the indexes.
const _: () = assert!(RunState::Ready as u8 == 0 && RunState::Running as u8 == 1 && RunState::Held as u8 == 2);
const _: () = assert!(limits::DEATHS_ALONE == 3);

/// `@` stands for the schema.
const FIRST: &str = concat!(
    r"
CREATE TABLE @runs (
    id uuid PRIMARY KEY,
    key text,
    digest bytea NOT NULL,
    task text NOT NULL,
    version int8 NOT NULL,
    state int2 NOT NULL,
    owner uuid,
    epoch int8 NOT NULL,
    tail int8 NOT NULL,
    mark int8 NOT NULL,
    wake int8 NOT NULL,
    wake_seen int8 NOT NULL,
    cancel bool NOT NULL,
    attempts int8 NOT NULL,
    deaths int8 NOT NULL,
    due int8 NOT NULL,
    submitted int8 NOT NULL,
    ended int8,
    reason text NOT NULL,
    timeline int8 NOT NULL,
    doubt int8
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE UNIQUE INDEX runs_key ON @runs (key) WHERE key IS NOT NULL;
CREATE INDEX runs_ready ON @runs (task, version, due, id) WHERE state = 0;
CREATE INDEX runs_suspect ON @runs (task, version, due, id) WHERE state = 0 AND deaths >= 3;
CREATE INDEX runs_running ON @runs (owner, due, id) WHERE state = 1;
CREATE INDEX runs_ended ON @runs (ended, id) WHERE ended IS NOT NULL;
CREATE TABLE @inputs (
    run uuid PRIMARY KEY,
    crc int8 NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE @deltas (
    run uuid NOT NULL,
    seq_from int8 NOT NULL,
    seq_to int8 NOT NULL,
    epoch int8 NOT NULL,
    crc int8 NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (run, seq_from)
);
CREATE TABLE @changes (
    run uuid NOT NULL,
    seq_from int8 NOT NULL,
    seq_to int8 NOT NULL,
    epoch int8 NOT NULL,
    crc int8 NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (run, seq_from)
);
CREATE TABLE @manifests (
    run uuid PRIMARY KEY,
    seq int8 NOT NULL,
    crc int8 NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE @parts (
    run uuid NOT NULL,
    id int8 NOT NULL,
    crc int8 NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (run, id)
);
CREATE TABLE @outcomes (
    run uuid PRIMARY KEY,
    crc int8 NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE @verdicts_in (
    run uuid NOT NULL,
    intent int8 NOT NULL,
    step bytea NOT NULL,
    origin int2 NOT NULL,
    at int8 NOT NULL,
    crc int8 NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (run, intent)
);
CREATE TABLE @tags (
    run uuid NOT NULL,
    tag text NOT NULL,
    PRIMARY KEY (run, tag)
);
CREATE INDEX tags_tag ON @tags (tag, run);
CREATE TABLE @nodes (
    incarnation uuid PRIMARY KEY,
    name text NOT NULL,
    state int2 NOT NULL,
    ttl_ms int8 NOT NULL,
    slots int8 NOT NULL,
    beat int8 NOT NULL,
    beat_at timestamptz NOT NULL,
    polling uuid[] NOT NULL,
    connections text NOT NULL,
    schema_version int8 NOT NULL,
    boot_id text NOT NULL,
    machine_id text NOT NULL,
    beat_device int8,
    beat_inode int8
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 20);
CREATE TABLE @node_tasks (
    incarnation uuid NOT NULL,
    task text NOT NULL,
    version int8 NOT NULL,
    PRIMARY KEY (incarnation, task, version)
);
CREATE TABLE @timelines (
    system int8 NOT NULL,
    number int8 NOT NULL,
    settled bool NOT NULL,
    noted int8 NOT NULL,
    trusted bool NOT NULL,
    PRIMARY KEY (system, number)
);
DO $$ BEGIN INSERT INTO @timelines SELECT system_identifier, ",
    timeline!(),
    r", true, 0, false FROM pg_control_system();
EXCEPTION WHEN OTHERS THEN NULL; END $$;
ALTER TABLE @inputs ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE @deltas ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE @changes ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE @manifests ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE @parts ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE @outcomes ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE @verdicts_in ALTER COLUMN body SET STORAGE EXTERNAL;
"
);

/// The schema's name in front of a table, where a statement has `@`.
pub(super) fn qualified(text: &str, schema: &str) -> String {
    text.replace('@', &format!("\"{schema}\"."))
}

/// The statements that bring an installation of version `from` (0: there is none) to the version of this code, for whoever applies
/// them by hand, in one transaction, as the owner of the schema. Nothing to do gives an empty text.
///
/// ```
/// let file = lobster_store::postgres::sql("lobster", 0);
/// assert!(file.starts_with("BEGIN;") && file.trim_end().ends_with("COMMIT;"));
/// ```
pub fn sql(schema: &str, from: u32) -> String {
    let steps = texts(STEPS, from as usize);
    if steps.is_empty() {
        return steps;
    }
    format!("BEGIN;\n{};\n{}{}COMMIT;\n", alone(schema), first_of_all(schema), qualified(&steps, schema))
}

/// Whoever changes the tables of an installation does so alone, whether a process or a person.
fn alone(schema: &str) -> String {
    format!("SELECT pg_advisory_xact_lock(hashtextextended('lobster {schema}', 0))")
}

fn first_of_all(schema: &str) -> String {
    format!(
        "CREATE SCHEMA IF NOT EXISTS \"{schema}\";\n\
         CREATE TABLE IF NOT EXISTS \"{schema}\".meta (name text PRIMARY KEY, value text NOT NULL);\n\
         INSERT INTO \"{schema}\".meta (name, value) VALUES ('installation', gen_random_uuid()) ON CONFLICT DO NOTHING;\n"
    )
}

fn version_is(version: usize) -> String {
    format!(
        "INSERT INTO @meta (name, value) VALUES ('schema', '{version}') ON CONFLICT (name) DO UPDATE SET value = excluded.value;\n"
    )
}

/// What was found of an installation.
pub(super) struct Installation {
    /// Its id: never the same for two.
    pub(super) id: String,
    /// What `synchronous_commit` must be for a synced statement.
    pub(super) synced: &'static str,
    /// An id for this process's connections.
    pub(super) connections: String,
}

/// Looks at server and schema; brings the schema to this code's version where it is older and `options` let it.
pub(super) async fn prepare(options: &Options) -> Result<Installation> {
    // Statements of their own transaction each: a pooler in transaction mode is as good as none.
    let mut connection = pool::connect(&pool::named(&options.connect, options.pooled, "lobster")).await?;
    let found = prepare_on(&mut connection, options).await;
    connection.close().await.ok();
    found
}

async fn prepare_on(connection: &mut PgConnection, options: &Options) -> Result<Installation> {
    let synced = check_server(connection).await?;
    let mut found = version(connection, options).await?;
    if found < STEPS.len() && options.migrate {
        migrate(connection, options).await?;
        found = version(connection, options).await?;
    }
    fits(found, options)?;
    let text = format!("SELECT value, gen_random_uuid()::text FROM \"{}\".meta WHERE name = 'installation'", options.schema);
    let rows = ask(connection, &text).await?;
    let row = rows.first().ok_or_else(|| Failed::Refused("the table `meta` does not say which installation it is".to_owned()))?;
    Ok(Installation { id: get(row, 0)?, synced, connections: format!("lobster {}", get::<String>(row, 1)?) })
}

/// Is this the version that this code speaks?
fn fits(found: usize, options: &Options) -> Result<()> {
    let known = STEPS.len();
    let number = |version: usize| u32::try_from(version).unwrap_or(u32::MAX);
    if found > known {
        return Err(Failed::NewerVersion { found: number(found), known: number(known) });
    }
    if found < known {
        let schema = &options.schema;
        return Err(Failed::Refused(format!(
            "schema \"{schema}\" has version {found}, this code needs {known}: apply what `postgres::sql(\"{schema}\", {found})` prints"
        )));
    }
    Ok(())
}

/// Looks at server, schema and rights, and changes nothing.
pub(super) async fn verify(options: &Options, role: Role) -> Result<()> {
    let mut connection = pool::connect(&pool::named(&options.connect, options.pooled, "lobster")).await?;
    let found = verify_on(&mut connection, options, role).await;
    connection.close().await.ok();
    found
}

async fn verify_on(connection: &mut PgConnection, options: &Options, role: Role) -> Result<()> {
    check_server(connection).await?;
    fits(version(connection, options).await?, options)?;
    let rows = ask(connection, &roles::missing(&options.schema, role)).await?;
    let missing = rows.iter().map(|row| get::<String>(row, 0)).collect::<Result<Vec<_>>>()?;
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failed::Refused(format!(
            "this role may not {}: apply what `postgres::roles(\"{}\")` prints",
            missing.join(", "),
            options.schema
        ))),
    }
}

/// What the statements of this tier rely on.
async fn check_server(connection: &mut PgConnection) -> Result<&'static str> {
    let text = "SELECT current_setting('server_version_num')::int4, current_setting('server_version'), pg_is_in_recovery(), \
                current_setting('default_transaction_isolation'), current_setting('synchronous_commit'), current_setting('fsync'), \
                current_setting('server_encoding')";
    let rows = ask(connection, text).await?;
    let row = rows.first().ok_or_else(|| Failed::Internal("a SELECT without a row".to_owned()))?;
    new_enough(get(row, 0)?, get(row, 1)?)?;
    if get::<bool>(row, 2)? {
        return Err(newest::is_standby());
    }
    let isolation: String = get(row, 3)?;
    if isolation != "read committed" {
        return Err(Failed::Refused(format!(
            "this role's transactions are {isolation} by default; the fence needs `ALTER ROLE .. SET default_transaction_isolation = \
             'read committed'`"
        )));
    }
    if get::<String>(row, 6)? != "UTF8" {
        return Err(Failed::Refused("the database's encoding is not UTF8".to_owned()));
    }
    if get::<String>(row, 5)? == "off" {
        tracing::warn!("the server runs with fsync = off: synced means nothing when its host fails");
    }
    // Whoever asked for more than the local disk gets it; whoever asked for less does not.
    Ok(if get::<String>(row, 4)? == "remote_apply" { "remote_apply" } else { "on" })
}

fn new_enough(number: i32, name: &str) -> Result<()> {
    match number >= OLDEST {
        true => Ok(()),
        false => Err(Failed::Refused(format!("PostgreSQL {name} is too old: {} is needed", OLDEST / 10_000))),
    }
}

/// 0: there is no such schema.
///
/// Asked of the catalog's tables: `to_regclass` and its like may answer from before somebody else's migration, for which this transaction
/// has waited.
async fn version(connection: &mut PgConnection, options: &Options) -> Result<usize> {
    let schema = &options.schema;
    let there = format!(
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = '{schema}' AND c.relname = 'meta')"
    );
    if !is(connection, &there).await? {
        return Ok(0);
    }
    let rows = ask(connection, &format!("SELECT value FROM \"{schema}\".meta WHERE name = 'schema'")).await?;
    let Some(row) = rows.first() else { return Ok(0) };
    let value: String = get(row, 0)?;
    value.parse().map_err(|_| Failed::Refused(format!("the table `meta` says that the schema has version {value:?}")))
}

/// How often a migration is tried that waits for a lock. Each time for two seconds, so that nobody waits behind it for longer.
const TRIES: u32 = 30;

async fn migrate(connection: &mut PgConnection, options: &Options) -> Result<()> {
    for _ in 1..TRIES {
        match migrate_once(connection, options, STEPS).await {
            Err(Failed::Unavailable(why)) if why.contains("(55P03)") => {
                tracing::info!(%why, "the migration waits for a lock");
                rollback(connection).await;
            }
            done => return done,
        }
    }
    migrate_once(connection, options, STEPS).await
}

/// One process migrates, whoever comes later finds it done.
async fn migrate_once(connection: &mut PgConnection, options: &Options, steps: &[Step]) -> Result<()> {
    let schema = &options.schema;
    tell(connection, &format!("BEGIN;SET LOCAL lock_timeout = '2s';{}", alone(schema))).await?;
    let found = version(connection, options).await?;
    if found < steps.len() {
        // A role that may use an existing schema need not have the right to create one.
        let there = format!("SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = '{schema}')");
        let mut text = first_of_all(schema);
        if is(connection, &there).await? {
            text = text.split_once(";\n").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        }
        text += &qualified(&texts(steps, found), schema);
        tell(connection, &format!("SET LOCAL synchronous_commit = on;{text}")).await?;
    }
    tell(connection, "COMMIT").await
}

async fn rollback(connection: &mut PgConnection) {
    tell(connection, "ROLLBACK").await.ok();
}

const DEADLINE: Duration = Duration::from_secs(60);

async fn tell(connection: &mut PgConnection, text: &str) -> Result<()> {
    let told = pool::timeout(DEADLINE, connection.execute(sqlx::raw_sql(AssertSqlSafe(text)))).await;
    let told = told.ok_or_else(|| Failed::Unavailable("the server did not answer".to_owned()))?;
    told.map(drop).map_err(|error| super::failure::of(super::failure::Stage::Read, &error))
}

async fn is(connection: &mut PgConnection, text: &str) -> Result<bool> {
    ask(connection, text).await?.first().map_or(Ok(false), |row| get(row, 0))
}

async fn ask(connection: &mut PgConnection, text: &str) -> Result<Vec<sqlx::postgres::PgRow>> {
    // The simple protocol: a pooler in transaction mode may run each statement on another connection.
    let asked = pool::timeout(DEADLINE, connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(text)))).await;
    let asked = asked.ok_or_else(|| Failed::Unavailable("the server did not answer".to_owned()))?;
    asked.map_err(|error| super::failure::of(super::failure::Stage::Read, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_old_code_would_not_survive_waits_for_old_nodes_and_no_other_step_does() {
        let url = lobster_servers::shared::postgres();
        let options = Options::from_url(&url).expect("the URL of a test's server");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a test may have a runtime").block_on(async {
            let mut connection = PgConnection::connect(&url).await.expect("the server takes a connection");
            let connection = &mut connection;
            migrate_once(connection, &options, STEPS).await.expect("there is nothing yet");
            let node = |id: u32, version: u32, silent: u32| {
                format!(
                    "INSERT INTO lobster.nodes SELECT '00000000-0000-0000-0000-00000000000{id}', 'node {id}', 0, 10000, 1, 1,
                    clock_timestamp() - interval '{silent} s', '{{}}', '', {version}, '', '', NULL, NULL"
                )
            };
            tell(connection, &[node(1, 1, 0), node(2, 1, 21), node(3, 2, 0)].join(";")).await.expect("nodes may join");
            let adds = Step { text: "ALTER TABLE @runs ADD COLUMN note text;", oldest: 0 };
            let renames = Step { text: "ALTER TABLE @runs RENAME COLUMN note TO notes;", oldest: 2 };
            let first = || Step { text: FIRST, oldest: 0 };
            migrate_once(connection, &options, &[first(), adds]).await.expect("whoever is there goes on");
            let later = [first(), Step { text: "", oldest: 0 }, renames];
            let waits = migrate_once(connection, &options, &later).await.expect_err("somebody would not go on");
            assert!(matches!(&waits, Failed::Unavailable(why) if why.contains("must end first: node 1 ")), "{waits}");
            rollback(connection).await;
            assert_eq!(version(connection, &options).await.expect("a version"), 2, "nothing was changed");
            tell(connection, "UPDATE lobster.nodes SET state = 1 WHERE name = 'node 1'").await.expect("a node may leave");
            migrate_once(connection, &options, &later).await.expect("nobody is in the way");
            assert_eq!(version(connection, &options).await.expect("a version"), 3);
            assert!(is(connection, "SELECT count(notes) = 0 FROM lobster.runs").await.expect("it has a new name"));
        });
    }

    #[test]
    fn a_server_that_is_too_old_is_refused_by_its_name() {
        assert!(new_enough(140_000, "14.0").is_ok());
        assert!(new_enough(180_001, "18.1").is_ok());
        let failed = new_enough(130_014, "13.14 (Debian 13.14-1)").expect_err("it is too old");
        assert_eq!(failed.to_string(), "refused: PostgreSQL 13.14 (Debian 13.14-1) is too old: 14 is needed");
    }
}

//! The tables, and the steps that bring an older file to them.
//!
//! Invariant: a step that was released never changes; a file of a newer version is not touched.
//!
//! `lobster_runs` is the hot row and holds no payloads. Its indexes are partial, so that ended runs, which pile up until
//! retention takes them, are in no index that a claim or a batch looks at. States are stored as `RunState` numbers them:
//! 0 ready, 1 running, 2 held, from 3 ended.

use super::{
    reader::{self, Use},
    sql, whole,
};
use crate::contract::{Failed, NodeState, Result, RunState, limits};
use sqlx::{Connection, sqlite::SqliteConnection};
use std::path::Path;

/// Version `n` of the schema is what the first `n` steps make.
const STEPS: &[&str] = &[FIRST];

// What the first step says in numbers. Whoever changes one of these adds a step that rebuilds the indexes.
const _: () = assert!(RunState::Ready as u8 == 0 && RunState::Running as u8 == 1 && RunState::Held as u8 == 2);
const _: () = assert!(limits::DEATHS_ALONE == 3);

const FIRST: &str = "
CREATE TABLE lobster_runs (
    id BLOB NOT NULL PRIMARY KEY,
    key TEXT,
    digest BLOB NOT NULL,
    task TEXT NOT NULL,
    version INTEGER NOT NULL,
    state INTEGER NOT NULL,
    owner BLOB,
    epoch INTEGER NOT NULL,
    tail INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    syncs INTEGER NOT NULL,
    wake INTEGER NOT NULL,
    wake_seen INTEGER NOT NULL,
    cancel INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    deaths INTEGER NOT NULL,
    due INTEGER NOT NULL,
    submitted INTEGER NOT NULL,
    ended INTEGER,
    reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX lobster_runs_key ON lobster_runs (key) WHERE key IS NOT NULL;
CREATE INDEX lobster_runs_ready ON lobster_runs (task, version, due, id) WHERE state = 0;
CREATE INDEX lobster_runs_suspect ON lobster_runs (task, version, due, id) WHERE state = 0 AND deaths >= 3;
CREATE INDEX lobster_runs_running ON lobster_runs (owner, due, id) WHERE state = 1;
CREATE INDEX lobster_runs_ended ON lobster_runs (ended, id) WHERE ended IS NOT NULL;
CREATE TABLE lobster_inputs (
    run BLOB NOT NULL PRIMARY KEY,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE lobster_deltas (
    run BLOB NOT NULL,
    seq_from INTEGER NOT NULL,
    seq_to INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX lobster_deltas_seq ON lobster_deltas (run, seq_from);
CREATE TABLE lobster_changes (
    run BLOB NOT NULL,
    seq_from INTEGER NOT NULL,
    seq_to INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX lobster_changes_seq ON lobster_changes (run, seq_from);
CREATE TABLE lobster_manifests (
    run BLOB NOT NULL PRIMARY KEY,
    seq INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE lobster_parts (
    run BLOB NOT NULL,
    id INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run, id)
) STRICT;
CREATE TABLE lobster_outcomes (
    run BLOB NOT NULL PRIMARY KEY,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE lobster_verdicts_in (
    run BLOB NOT NULL,
    intent INTEGER NOT NULL,
    step BLOB NOT NULL,
    origin INTEGER NOT NULL,
    at INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run, intent)
) STRICT, WITHOUT ROWID;
CREATE TABLE lobster_tags (
    run BLOB NOT NULL,
    tag TEXT NOT NULL,
    PRIMARY KEY (run, tag)
) STRICT, WITHOUT ROWID;
CREATE INDEX lobster_tags_tag ON lobster_tags (tag, run);
CREATE TABLE lobster_nodes (
    incarnation BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    state INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL,
    slots INTEGER NOT NULL,
    beat INTEGER NOT NULL,
    beat_at_ns INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    machine_id TEXT NOT NULL,
    beat_device INTEGER NOT NULL,
    beat_inode INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE lobster_node_tasks (
    incarnation BLOB NOT NULL,
    task TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (incarnation, task, version)
) STRICT, WITHOUT ROWID;
";

/// Stored number of a node's state.
pub(super) fn node_state_number(state: NodeState) -> i64 {
    match state {
        NodeState::Active => 0,
        NodeState::Left => 1,
        NodeState::Failed => 2,
    }
}

/// From its stored number.
pub(super) fn node_state(number: i64) -> Result<NodeState> {
    match number {
        0 => Ok(NodeState::Active),
        1 => Ok(NodeState::Left),
        2 => Ok(NodeState::Failed),
        _ => Err(Failed::Internal(format!("there is no state {number} of a node"))),
    }
}

/// Brings the file at `path` to the schema of this code, by the connection that then writes. The caller holds the gate.
///
/// Closed here and opened again, it would often be the last one of the file: SQLite then moves the whole log into the file,
/// syncs it and removes the log, which costs a process that takes over from a killed one most of its start.
pub(super) async fn prepare(path: &Path) -> Result<SqliteConnection> {
    let mut connection = reader::connect(path, Use::Write).await?;
    match prepare_on(&mut connection).await {
        Ok(()) => Ok(connection),
        Err(failed) => {
            // Waited for: the next connection should not find this one's locks.
            connection.close().await.ok();
            Err(failed)
        }
    }
}

async fn prepare_on(connection: &mut SqliteConnection) -> Result<()> {
    let library = text(connection, "SELECT sqlite_version();").await?;
    if parts(&library) < parts(OLDEST) {
        return Err(Failed::Refused(format!("SQLite {library} can corrupt a log that is written anew; {OLDEST} is needed")));
    }
    let found = version(connection).await?;
    let known = STEPS.len();
    if found > known {
        let number = |version: usize| u32::try_from(version).unwrap_or(u32::MAX);
        return Err(Failed::NewerVersion { found: number(found), known: number(known) });
    }
    if found == 0 {
        // Only before the first page is written; in a file that is shared with an application it is as that made it. Said to a file
        // that has it, it would be a synced write at every start.
        sql::all(connection, "PRAGMA auto_vacuum=INCREMENTAL;").await?;
    }
    let mode = text(connection, "PRAGMA journal_mode=WAL;").await?;
    if mode != "wal" {
        return Err(Failed::Refused(format!("the file stays in journal mode {mode}, its file system cannot share memory")));
    }
    if found < known {
        // Synced, or a crash could leave a file that its own log does not fit.
        sql::all(connection, "PRAGMA synchronous=FULL;BEGIN IMMEDIATE;").await?;
        // Read again: another process may have been faster.
        let found = version(connection).await?;
        for step in STEPS.iter().skip(found) {
            sql::all(connection, step).await?;
        }
        let set = format!("INSERT OR REPLACE INTO lobster_meta (name, value) VALUES ('schema', {known});COMMIT;");
        sql::all(
            connection,
            &["CREATE TABLE IF NOT EXISTS lobster_meta (name TEXT PRIMARY KEY, value INTEGER) STRICT;", &set].concat(),
        )
        .await?;
    }
    sql::all(connection, &whole::prepare()).await?;
    Ok(())
}

/// The first version without a bug that corrupts a database when a log is reset.
const OLDEST: &str = "3.51.3";

fn parts(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

async fn version(connection: &mut SqliteConnection) -> Result<usize> {
    if sql::all(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'lobster_meta';").await?.is_empty() {
        return Ok(0);
    }
    let rows = sql::all(connection, "SELECT value FROM lobster_meta WHERE name = 'schema';").await?;
    rows.first().map_or(Ok(0), |row| Ok(sql::get_u32(row, 0)? as usize))
}

async fn text(connection: &mut SqliteConnection, statement: &str) -> Result<String> {
    let rows = sql::all(connection, statement).await?;
    rows.first().map_or_else(|| Err(Failed::Internal("a pragma without an answer".to_owned())), |row| sql::get(row, 0))
}

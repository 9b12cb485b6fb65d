//! The ledger's file: one connection, one transaction per batch, synced before anyone hears of it.
//! Each table of a batch goes in as one statement over a JSON array, because a statement is what costs time here.

use std::path::Path;

use rust_decimal::Decimal;
use serde::Serialize;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, Row, SqliteConnection};

use super::rules::{Fate, RequestRow, Rules};
use super::wire::{Begun, Killed, Kind, Receipt, Started};

/// The tables. A reader may open the file at any time, also while the ledger lives.
pub const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS requests (
    seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, ask TEXT NOT NULL, key TEXT NOT NULL, order_id INTEGER, answer TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS effects (
    seq INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, order_id INTEGER NOT NULL, amount TEXT,
    receipt TEXT NOT NULL, at_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS closed (key TEXT NOT NULL PRIMARY KEY, at_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS bodies (
    mark TEXT NOT NULL PRIMARY KEY, step TEXT NOT NULL, order_id INTEGER NOT NULL, attempt INTEGER NOT NULL, epoch INTEGER NOT NULL,
    pid INTEGER NOT NULL, at_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS starts (
    pid INTEGER NOT NULL, at_ms INTEGER NOT NULL, after_kill INTEGER NOT NULL, PRIMARY KEY (pid, at_ms));
CREATE TABLE IF NOT EXISTS kills (pid INTEGER NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (pid, at_ms));
";

const PUT_REQUESTS: &str = "INSERT INTO requests (at_ms, ask, key, order_id, answer)
    SELECT value ->> 'at_ms', value ->> 'ask', value ->> 'key', value ->> 'order_id', value ->> 'answer' FROM json_each(?)";
const PUT_EFFECTS: &str = "INSERT INTO effects (key, kind, order_id, amount, receipt, at_ms)
    SELECT value ->> 'key', value ->> 'kind', value ->> 'order', value ->> 'amount', value ->> 'number', value ->> 'at_ms'
    FROM json_each(?)";
const PUT_CLOSED: &str = "INSERT INTO closed (key, at_ms) SELECT value ->> 'key', value ->> 'at_ms' FROM json_each(?)";
const PUT_BODIES: &str = "INSERT OR IGNORE INTO bodies (mark, step, order_id, attempt, epoch, pid, at_ms)
    SELECT value ->> 'mark', value ->> 'step', value ->> 'order', value ->> 'attempt', value ->> 'epoch', value ->> 'pid',
    value ->> 'at_ms' FROM json_each(?)";
const PUT_STARTS: &str = "INSERT OR IGNORE INTO starts (pid, at_ms, after_kill)
    SELECT value ->> 'pid', value ->> 'at_ms', value ->> 'after_kill' FROM json_each(?)";
const PUT_KILLS: &str = "INSERT OR IGNORE INTO kills (pid, at_ms) SELECT value ->> 'pid', value ->> 'at_ms' FROM json_each(?)";

/// A key that was executed, with its receipt.
#[derive(Debug, Serialize)]
pub struct EffectRow {
    pub key: String,
    #[serde(flatten)]
    pub receipt: Receipt,
}

/// A key that was closed.
#[derive(Debug, Serialize)]
pub struct ClosedRow {
    pub key: String,
    pub at_ms: u64,
}

/// What one batch adds to the file.
#[derive(Debug, Default)]
pub struct Rows {
    pub requests: Vec<RequestRow>,
    pub effects: Vec<EffectRow>,
    pub closed: Vec<ClosedRow>,
    pub bodies: Vec<Begun>,
    pub starts: Vec<Started>,
    pub kills: Vec<Killed>,
}

impl Rows {
    pub fn is_empty(&self) -> bool {
        let Rows { requests, effects, closed, bodies, starts, kills } = self;
        let tables = [requests.len(), effects.len(), closed.len(), bodies.len(), starts.len(), kills.len()];
        tables.iter().sum::<usize>() == 0
    }
}

/// The file, open for writing.
pub struct Store {
    connection: SqliteConnection,
}

impl Store {
    pub async fn open(file: &Path) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let mut connection = SqliteConnection::connect_with(&options).await?;
        sqlx::raw_sql(SCHEMA).execute(&mut connection).await?;
        Ok(Self { connection })
    }

    /// What the file says of the past.
    pub async fn load(&mut self) -> Result<Rules, sqlx::Error> {
        let mut rules = Rules::default();
        let effects = sqlx::query("SELECT key, kind, order_id, amount, receipt, at_ms FROM effects ORDER BY seq");
        for row in effects.fetch_all(&mut self.connection).await? {
            rules.fates.insert(row.try_get("key")?, Fate::Happened(receipt_of(&row)?));
            rules.counts.executed += 1;
        }
        for row in sqlx::query("SELECT key FROM closed").fetch_all(&mut self.connection).await? {
            rules.fates.insert(row.try_get("key")?, Fate::Closed);
        }
        rules.counts.requests = self.count("SELECT count(*) FROM requests").await?;
        rules.counts.refused = self.count(COUNT_REFUSED).await?;
        rules.counts.bodies = self.count("SELECT count(*) FROM bodies").await?;
        rules.counts.kills = self.count("SELECT count(*) FROM kills").await?;
        Ok(rules)
    }

    async fn count(&mut self, query: &'static str) -> Result<u64, sqlx::Error> {
        let count: i64 = sqlx::query_scalar(query).fetch_one(&mut self.connection).await?;
        Ok(count.unsigned_abs())
    }

    /// Writes one batch; when it returns, the batch is synced.
    pub async fn write(&mut self, rows: &Rows) -> Result<(), sqlx::Error> {
        let mut batch = self.connection.begin().await?;
        put(&mut batch, PUT_REQUESTS, &rows.requests).await?;
        put(&mut batch, PUT_EFFECTS, &rows.effects).await?;
        put(&mut batch, PUT_CLOSED, &rows.closed).await?;
        put(&mut batch, PUT_BODIES, &rows.bodies).await?;
        put(&mut batch, PUT_STARTS, &rows.starts).await?;
        put(&mut batch, PUT_KILLS, &rows.kills).await?;
        batch.commit().await
    }

    pub async fn close(self) -> Result<(), sqlx::Error> {
        self.connection.close().await
    }
}

/// Counts the requests to act that were refused.
pub const COUNT_REFUSED: &str =
    "SELECT count(*) FROM requests WHERE answer IN ('repeated', 'closed') AND ask IN ('charge', 'ship', 'notify')";

async fn put<T: Serialize>(batch: &mut SqliteConnection, statement: &'static str, rows: &[T]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let array = serde_json::to_string(rows).map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query(statement).bind(array).execute(batch).await.map(drop)
}

fn receipt_of(row: &sqlx::sqlite::SqliteRow) -> Result<Receipt, sqlx::Error> {
    let kind = kind_of(row.try_get("kind")?)?;
    let amount = amount_of(row.try_get("amount")?)?;
    let (order, at_ms): (u32, i64) = (row.try_get("order_id")?, row.try_get("at_ms")?);
    Ok(Receipt { number: row.try_get("receipt")?, kind, order, amount, at_ms: at_ms.unsigned_abs() })
}

/// The kind behind a word of the tables.
///
/// # Errors
/// There is no such kind.
pub fn kind_of(word: &str) -> Result<Kind, sqlx::Error> {
    let known = Kind::ALL.into_iter().find(|kind| kind.word() == word);
    known.ok_or_else(|| sqlx::Error::Decode(format!("`{word}` is no kind: charge, ship, notify are").into()))
}

/// The amount behind a text of the tables.
///
/// # Errors
/// It is no decimal.
pub fn amount_of(text: Option<&str>) -> Result<Option<Decimal>, sqlx::Error> {
    text.map(Decimal::from_str_exact).transpose().map_err(|error| sqlx::Error::Decode(error.into()))
}

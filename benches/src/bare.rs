//! The bare store: the same product through the same driver, one row of 100 bytes per synced commit.
//!
//! Invariant: it is measured next to each round of a figure, so that both saw the same disk.

use crate::{
    Result,
    options::Store,
    site::{Place, Site},
};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection,
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous},
};
use std::{path::Path, time::Instant};
use tokio::task::JoinSet;

/// What synced commits cost.
#[derive(Clone, Copy, Debug)]
pub struct Commits {
    /// Commits per second, of all clients.
    pub rate: f64,
    /// Seconds of the median one: a few slow ones must not be taken off a window in which there was none.
    pub median: f64,
}

/// An open bare store.
pub enum Bare {
    /// One client: a file has one writer.
    Sqlite(SqliteConnection),
    /// A connection for each client, and the table.
    Postgres(Vec<PgConnection>, String),
}

impl Bare {
    /// Opens it for so many clients; `None`: the store syncs nothing.
    pub async fn open(site: &Site, clients: usize) -> Result<Option<Self>> {
        Ok(match (site.store, site.place()) {
            (Store::Memory, _) => None,
            (Store::Sqlite, Place::File(path)) => Some(Self::sqlite(&path).await?),
            (_, place) => Some(Self::postgres(&place, clients).await?),
        })
    }

    /// With the log and the checkpoints of the tier.
    async fn sqlite(path: &Path) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("wal_autocheckpoint", "2000")
            .disable_statement_logging();
        let mut connection = options.connect().await?;
        connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT").await?;
        Ok(Self::Sqlite(connection))
    }

    async fn postgres(place: &Place, clients: usize) -> Result<Self> {
        let table = format!("{}.bare", place.schema()?);
        let mut connections = Vec::with_capacity(clients);
        for _ in 0..clients.max(1) {
            let mut connection = place.connect().await?;
            connection.execute("SET synchronous_commit = on").await?;
            connections.push(connection);
        }
        let made = format!(
            "CREATE SCHEMA {}; CREATE TABLE {table} (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)",
            place.schema()?
        );
        connections[0].execute(sqlx::raw_sql(AssertSqlSafe(made))).await?;
        Ok(Self::Postgres(connections, table))
    }

    /// Measures so many synced commits of each client, all clients at once.
    pub async fn measure(&mut self, commits: u32) -> Result<Commits> {
        let began = Instant::now();
        let (mut took, clients) = match self {
            Self::Sqlite(connection) => {
                let mut took = Vec::new();
                for _ in 0..commits {
                    let sent = Instant::now();
                    sqlx::query("INSERT INTO bare (body) VALUES (?)").bind(&BODY[..]).execute(&mut *connection).await?;
                    took.push(sent.elapsed().as_secs_f64());
                }
                (took, 1)
            }
            Self::Postgres(connections, table) => {
                let clients = connections.len();
                let mut all = JoinSet::new();
                for connection in connections.drain(..) {
                    all.spawn(client(connection, format!("INSERT INTO {table} (body) VALUES ($1)"), commits));
                }
                let mut took = Vec::new();
                while let Some(done) = all.join_next().await {
                    let (connection, one) = done??;
                    connections.push(connection);
                    took.extend(one);
                }
                (took, clients)
            }
        };
        let rate = f64::from(commits) * clients as f64 / began.elapsed().as_secs_f64();
        took.sort_unstable_by(f64::total_cmp);
        Ok(Commits { rate, median: took.get(took.len() / 2).copied().unwrap_or(0.0) })
    }

    /// Closes it.
    pub async fn close(self) -> Result<()> {
        match self {
            Self::Sqlite(connection) => connection.close().await?,
            Self::Postgres(connections, _) => {
                for connection in connections {
                    connection.close().await?;
                }
            }
        }
        Ok(())
    }
}

const BODY: [u8; 100] = [b'x'; 100];

/// What each commit of one client took.
async fn client(mut connection: PgConnection, text: String, commits: u32) -> Result<(PgConnection, Vec<f64>)> {
    let mut took = Vec::new();
    for _ in 0..commits {
        let sent = Instant::now();
        sqlx::query(AssertSqlSafe(text.as_str())).bind(&BODY[..]).execute(&mut connection).await?;
        took.push(sent.elapsed().as_secs_f64());
    }
    Ok((connection, took))
}

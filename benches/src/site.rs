//! Where data lies: on the disk that the build uses, or in a server that syncs what it commits; never in memory.
//!
//! Invariant: everything made here is gone when the process ends by itself.

use crate::{
    Result,
    meter::Meter,
    options::{Options, Store},
};
use lobster_core::{
    OsHost,
    store::{
        Tiers,
        memory::Memory,
        postgres::{self, Postgres},
        sqlite::Sqlite,
    },
};
use lobster_servers::postgres::{Durability, Postgres as Server};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, postgres::PgConnectOptions};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// Where one store lies.
#[derive(Clone, Debug)]
pub enum Place {
    /// In this process.
    Memory,
    /// In a file.
    File(PathBuf),
    /// In a schema of a database.
    Schema {
        /// The database.
        url: String,
        /// The schema.
        schema: String,
        /// The directory for proofs of death.
        locks: PathBuf,
    },
}

impl Place {
    /// For another process; what [`of_words`](Self::of_words) reads.
    pub fn words(&self) -> [String; 3] {
        match self {
            Place::Memory => Default::default(),
            Place::File(path) => [path.display().to_string(), String::new(), String::new()],
            Place::Schema { url, schema, locks } => [url.clone(), schema.clone(), locks.display().to_string()],
        }
    }

    /// The place that the words name.
    pub fn of_words([place, schema, locks]: [String; 3]) -> Self {
        match (place.is_empty(), schema.is_empty()) {
            (true, _) => Place::Memory,
            (false, true) => Place::File(place.into()),
            (false, false) => Place::Schema { url: place, schema, locks: locks.into() },
        }
    }

    /// Opens the store, behind a meter.
    pub async fn open(&self) -> Result<(Tiers, Arc<Meter>)> {
        let host = Arc::new(OsHost::current().ok_or("a store is opened inside of a runtime")?);
        Ok(Meter::before(match self {
            Place::Memory => Tiers::of(Memory::new(host), "memory"),
            Place::File(path) => Tiers::of(Sqlite::open(path, host).await?, "sqlite"),
            Place::Schema { url, schema, locks } => {
                let options = postgres::Options::from_url(url)?.schema(schema)?.local_path(locks);
                Tiers::of(Postgres::open(options, host).await?, "postgres")
            }
        }))
    }

    /// The schema's name.
    pub fn schema(&self) -> Result<&str> {
        match self {
            Place::Schema { schema, .. } => Ok(schema),
            _ => Err("there is no schema here".into()),
        }
    }

    /// A connection to the database, past the store.
    pub async fn connect(&self) -> Result<PgConnection> {
        match self {
            Place::Schema { url, .. } => Ok(url.parse::<PgConnectOptions>()?.disable_statement_logging().connect().await?),
            _ => Err("there is no database here".into()),
        }
    }

    /// A connection to another database of the server, and the name of this one.
    pub async fn beside(&self) -> Result<(PgConnection, String)> {
        match self {
            Place::Schema { url, .. } => {
                let options = url.parse::<PgConnectOptions>()?.disable_statement_logging();
                let name = options.get_database().unwrap_or_default().to_owned();
                let other = if name == "postgres" { "template1" } else { "postgres" };
                Ok((options.database(other).connect().await?, name))
            }
            _ => Err("there is no database here".into()),
        }
    }
}

/// A directory of this process beside the build's results, and a server if the store wants one.
pub struct Site {
    /// What stores are made of.
    pub store: Store,
    dir: PathBuf,
    url: String,
    /// Ours: it ends with this process.
    _server: Option<Server>,
    made: AtomicU32,
}

impl Site {
    /// Makes the directory, and starts the server unless there is one.
    pub fn make(options: &Options) -> Result<Self> {
        let program = std::env::current_exe()?;
        let target = program.parent().and_then(Path::parent).ok_or("the program lies in no directory")?;
        let dir = target.join("benches").join(std::process::id().to_string());
        fs::create_dir_all(dir.join("locks"))?;
        let mut site = Self { store: options.store, dir, url: String::new(), _server: None, made: AtomicU32::new(0) };
        if options.store == Store::Postgres {
            site.url = match &options.url {
                Some(url) => url.clone(),
                None => site._server.insert(Server::start(Durability::Full)?).url(),
            };
        }
        Ok(site)
    }

    /// A place that nothing has used.
    pub fn place(&self) -> Place {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        match self.store {
            Store::Memory => Place::Memory,
            Store::Sqlite => Place::File(self.dir.join(format!("{number}.db"))),
            Store::Postgres => self.schema(number),
        }
    }

    fn schema(&self, number: u32) -> Place {
        let schema = format!("benches_{}_{number}", std::process::id());
        Place::Schema { url: self.url.clone(), schema, locks: self.dir.join("locks") }
    }

    /// A fresh store behind a fresh meter.
    pub async fn store(&self) -> Result<(Tiers, Arc<Meter>)> {
        self.place().open().await
    }

    /// Removes what was made in a server that stays.
    pub async fn close(self) -> Result<()> {
        if self.store != Store::Postgres || self._server.is_some() {
            return Ok(());
        }
        let places = (0..self.made.load(Ordering::Relaxed)).map(|number| self.schema(number));
        for place in places {
            let mut connection = place.connect().await?;
            let gone = format!("DROP SCHEMA IF EXISTS {} CASCADE", place.schema()?);
            connection.execute(sqlx::raw_sql(AssertSqlSafe(gone))).await?;
            connection.close().await?;
        }
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("{}: {error}", self.dir.display());
        }
    }
}

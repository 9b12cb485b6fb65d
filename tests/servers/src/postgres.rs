//! A private PostgreSQL server: in a directory of its own, on a free port of 127.0.0.1, without passwords.
//!
//! Invariant: what was committed under [`Durability::Full`] is there after any [`Postgres::kill`] and [`Postgres::start_again`].

mod calendar;
mod standby;
mod template;
mod tls;

use crate::{
    Error, Result,
    home::Home,
    programs::{find, postgres_folder},
    psql,
    wait::{PATIENCE, until},
};
use calendar::Calendar;
use rustix::process::Signal;
use std::{
    collections::hash_map::RandomState,
    fs,
    hash::{BuildHasher, Hasher},
    net::TcpListener,
    path::{Path, PathBuf},
};

/// What a commit means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It is on the disk, as PostgreSQL has it by default: for tests of crashes, and for speed.
    Full,
    /// It survives a killed server, but not a killed machine: for everything else.
    Fast,
}

/// The server. Dropped, it is killed and removed; so it is when the process that started it ends in any way.
///
/// The superuser is `lobster`. Methods without a `Result` panic with the server's log when it does not do as told.
#[derive(Debug)]
pub struct Postgres {
    home: Home,
    programs: PathBuf,
    port: u16,
    ca: Option<PathBuf>,
    calendar: Option<Calendar>,
}

impl Postgres {
    /// Starts one; returns when it answers.
    ///
    /// # Errors
    /// [`Error::Missing`] if PostgreSQL is not installed.
    pub fn start(durability: Durability) -> Result<Self> {
        let home = template::home(&postgres_folder()?)?;
        Self::configured(home, durability, None, None)
    }

    /// The same with a calendar of its own, for [`Self::set_calendar`].
    ///
    /// # Errors
    /// [`Error::Missing`] if PostgreSQL or a C compiler is not installed.
    pub fn start_with_calendar(durability: Durability) -> Result<Self> {
        let home = template::home(&postgres_folder()?)?;
        let calendar = Calendar::new(&home)?;
        Self::configured(home, durability, None, Some(calendar))
    }

    /// The same with a certificate, and for encrypted connections only.
    ///
    /// # Errors
    /// [`Error::Missing`] if PostgreSQL or OpenSSL's command is not installed.
    pub fn start_with_tls(durability: Durability) -> Result<Self> {
        let home = template::home(&postgres_folder()?)?;
        let ca = tls::certify(&home)?;
        Self::configured(home, durability, Some(ca), None)
    }

    fn configured(home: Home, durability: Durability, ca: Option<PathBuf>, calendar: Option<Calendar>) -> Result<Self> {
        let programs = postgres_folder()?;
        let path = home.path().join("data/postgresql.conf");
        let text = fs::read_to_string(&path).map_err(Error::io("postgresql.conf"))?;
        let ours = configuration(&programs, durability, ca.is_some());
        home.write("data/postgresql.conf", &format!("{text}\n{ours}"))?;
        Self::on_a_free_port(Self { home, programs, port: 0, ca, calendar })
    }

    fn on_a_free_port(mut server: Self) -> Result<Self> {
        // Between the look at a port and its use somebody else may take it.
        for _ in 0..8 {
            server.port = free_port()?;
            match server.launch() {
                Err(Error::Failed(why)) if why.contains("could not bind") => {}
                started => return started.map(|()| server),
            }
        }
        Err(Error::failed("postgres", "every port is taken before it can be used"))
    }

    fn launch(&self) -> Result<()> {
        let data = self.home.path().join("data");
        let (data_text, socket) = (data.display().to_string(), self.home.path().display().to_string());
        let (port, name) = (self.port.to_string(), format!("cluster_name={}", self.home.name()));
        // A path of a socket has room for some hundred bytes. Whoever has a longer temporary directory connects by TCP.
        let socket = if socket.len() < 80 { socket } else { String::new() };
        let args = ["-D", &data_text, "-p", &port, "-k", &socket, "-c", &name];
        // What `pg_ctl` looks at: the server writes its state into the file with its process number.
        let program = self.programs.join("postgres");
        let mut args: Vec<String> = args.map(str::to_owned).into();
        let program = match &self.calendar {
            Some(calendar) => {
                args.splice(0..0, calendar.environment().into_iter().chain([program.display().to_string()]));
                find("env", "coreutils")?
            }
            None => program,
        };
        self.home.launch(&program, &args, |pid| {
            let text = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            let mut lines = text.lines();
            lines.next() == Some(&pid.to_string()) && lines.nth(6).is_some_and(|state| state.trim() == "ready")
        })
    }

    /// Of the database `postgres`.
    pub fn url(&self) -> String {
        format!("postgres://lobster@127.0.0.1:{}/postgres", self.port)
    }

    /// The port on 127.0.0.1. It stays the same when the server starts again.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate that signed the server's, for `sslrootcert`. It is good for `localhost` and `127.0.0.1`.
    pub fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// Makes an empty database; its URL.
    pub fn fresh_database(&self) -> String {
        psql::fresh_database(&self.url()).unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Runs SQL in a database; the rows, one a line, columns between `|`.
    ///
    /// # Errors
    /// With what the server said.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String> {
        psql::sql(&psql::beside(&self.url(), database), sql)
    }

    /// Kills the server and all its sessions, in the middle of whatever they do; returns when all are gone.
    pub fn kill(&self) {
        self.home.kill();
    }

    /// Ends it in order: sessions are cut off, everything is written; returns when it has ended.
    pub fn stop(&self) {
        self.home.end(Signal::INT);
    }

    /// After [`Self::kill`] or [`Self::stop`]: the same data, the same port. Returns when it answers.
    pub fn start_again(&self) {
        self.launch().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Stops all its processes where they are: connections stay, nothing answers.
    pub fn pause(&self) {
        self.home.pause();
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.home.resume();
    }

    /// Sets the calendar of a server that has one of its own: so many seconds before that of the host, or behind it.
    pub fn set_calendar(&self, ahead_s: i64) {
        let calendar = self.calendar.as_ref().unwrap_or_else(|| panic!("this server reads the calendar of its host"));
        calendar.set(ahead_s).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Everything that it wrote since it was made.
    pub fn log(&self) -> String {
        self.home.log()
    }

    /// Changes a setting for new sessions and, where PostgreSQL allows that, for running ones; returns when it holds.
    pub fn set(&self, name: &str, value: &str) {
        let value = value.replace('\'', "''");
        let loaded = || self.sql("postgres", "SELECT pg_conf_load_time()").unwrap_or_else(|error| panic!("{error}"));
        let before = loaded();
        let change = format!("ALTER SYSTEM SET {name} = '{value}'; SELECT pg_reload_conf();");
        self.sql("postgres", &change).unwrap_or_else(|error| panic!("{error}"));
        let reloaded = until(PATIENCE, || (loaded() != before).then_some(()));
        assert!(reloaded.is_some(), "{name} is not read again\n{}", self.log());
    }
}

fn configuration(programs: &Path, durability: Durability, tls: bool) -> String {
    let mut lines = vec![
        "listen_addresses = '127.0.0.1'",
        "max_connections = 300",
        "log_checkpoints = off",
        // Files in the data directory, which are removed with it: elsewhere they would outlive a killed server.
        "dynamic_shared_memory_type = mmap",
    ];
    if durability == Durability::Fast {
        lines.extend(["fsync = off", "full_page_writes = off"]);
    }
    if tls {
        lines.extend(["ssl = on", "ssl_cert_file = 'server.crt'", "ssl_key_file = 'server.key'"]);
    }
    let libraries = ["../lib", "../lib/postgresql"].map(|folder| programs.join(folder).join("pg_stat_statements.so"));
    if libraries.iter().any(|library| library.is_file()) {
        lines.push("shared_preload_libraries = 'pg_stat_statements'");
    }
    lines.join("\n") + "\n"
}

/// A port that nobody listens on, below those that the kernel gives to outgoing connections: while a killed server is down,
/// no connection may take its port by chance.
pub(crate) fn free_port() -> Result<u16> {
    let drawn = (0..64).map(|_| 12_000 + u16::try_from(RandomState::new().build_hasher().finish() % 20_000).unwrap_or(0));
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    drawn.into_iter().find(free).ok_or_else(|| Error::failed("127.0.0.1", "no free port"))
}

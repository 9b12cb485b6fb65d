//! PgBouncer before a private PostgreSQL: connections are lent for one transaction at a time.
//!
//! Invariant: a session of the server belongs to nobody; what one client leaves in it another may find.

use crate::{
    Result,
    home::Home,
    postgres::{Postgres, free_port},
    programs::find,
    psql::beside,
};
use std::net::TcpStream;

/// The pooler. Dropped, it is killed and removed; so it is when the process that started it ends in any way.
#[derive(Debug)]
pub struct PgBouncer {
    home: Home,
    port: u16,
}

impl PgBouncer {
    /// Starts one before a server; returns when it accepts connections. Twenty sessions per database, given back when nobody
    /// has used them for a second; a thousand clients.
    ///
    /// # Errors
    /// [`crate::Error::Missing`] if PgBouncer is not installed.
    pub fn start(server: &Postgres) -> Result<Self> {
        Self::before(server.port())
    }

    /// The same before a server on this host that listens at a port.
    ///
    /// # Errors
    /// [`crate::Error::Missing`] if PgBouncer is not installed.
    pub fn before(port_of_server: u16) -> Result<Self> {
        let program = find("pgbouncer", "pgbouncer")?;
        let (home, port) = (Home::new("lobster-pgbouncer-")?, free_port()?);
        let settings = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={port_of_server}\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = trust\n\
             auth_file = users.txt\n\
             auth_user = lobster\n\
             pool_mode = transaction\n\
             default_pool_size = 20\n\
             max_client_conn = 1000\n\
             server_login_retry = 1\n\
             server_idle_timeout = 1\n\
             ignore_startup_parameters = extra_float_digits\n"
        );
        home.write("pgbouncer.ini", &settings)?;
        // All other roles are looked up at the server.
        home.write("users.txt", "\"lobster\" \"\"\n")?;
        home.launch(&program, &["pgbouncer.ini"], |_| TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        Ok(Self { home, port })
    }

    /// Of a database of the server, for its superuser.
    pub fn url(&self, database: &str) -> String {
        beside(&format!("postgres://lobster@127.0.0.1:{}", self.port), database)
    }

    /// Kills it: all clients are cut off.
    pub fn kill(&self) {
        self.home.kill();
    }

    /// Everything that it wrote.
    pub fn log(&self) -> String {
        self.home.log()
    }
}

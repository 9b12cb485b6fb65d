//! Where the database is, and how this process talks to it.
//!
//! Invariant: nothing leaves this host in the clear unless somebody asked for it.

use crate::contract::{Failed, Result};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use std::{fmt, path::PathBuf, time::Duration};

/// The default name of an installation's schema.
pub const SCHEMA: &str = "lobster";

/// How a store on PostgreSQL is reached. From a URL, then changed by its methods.
///
/// ```
/// use lobster_store::postgres::Options;
/// # fn main() -> Result<(), lobster_store::contract::Failed> {
/// let options = Options::from_url("postgres://worker@db.example.com/shop?lobster_schema=orders")?.connections(20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Options {
    pub(super) connect: PgConnectOptions,
    /// For what a pooler in transaction mode cannot do.
    pub(super) direct: PgConnectOptions,
    pub(super) has_direct: bool,
    pub(super) pooled: bool,
    pub(super) schema: String,
    pub(super) connections: u32,
    pub(super) deadline: Duration,
    pub(super) wait: Duration,
    pub(super) local_path: Option<PathBuf>,
    pub(super) migrate: bool,
    pub(super) trust_promoted: bool,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("place", &self.to_string()).field("pooled", &self.pooled).finish_non_exhaustive()
    }
}

impl fmt::Display for Options {
    /// Host, port, database and schema, for people. Never a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (self.connect.get_host(), self.connect.get_port());
        write!(f, "postgres {host}:{port}/{} schema {}", self.connect.get_database().unwrap_or("?"), self.schema)
    }
}

impl Options {
    /// Reads a `postgres://` or `postgresql://` URL, with the parameters of libpq (`sslmode`, `sslrootcert`, ..) and these, each of
    /// which has a method of the same name: `lobster_schema`, `lobster_pooled` (`true` or `false`), `lobster_direct` (a URL,
    /// percent-encoded), `lobster_connections`, `lobster_deadline_ms`, `lobster_wait_ms`, `lobster_local_path`, `lobster_migrate`,
    /// `lobster_trust_promoted`.
    ///
    /// Without an `sslmode` a server on this host is spoken to as it likes, any other through TLS with its certificate and name
    /// verified (`verify-full`).
    ///
    /// # Errors
    /// [`Failed::Refused`] if it is no such URL, or a parameter cannot be read. The message never holds the URL: it may hold a password.
    pub fn from_url(url: &str) -> Result<Self> {
        let (rest, ours) = split(url)?;
        let connect = connect_options(&rest)?;
        let mut options = Self {
            direct: connect.clone(),
            connect,
            has_direct: false,
            pooled: false,
            schema: SCHEMA.to_owned(),
            connections: 10,
            deadline: Duration::from_secs(20),
            wait: Duration::ZERO,
            local_path: None,
            migrate: true,
            trust_promoted: false,
        };
        for (name, value) in ours {
            let number = || value.parse::<u64>().map_err(|_| wrong(&name, "a whole number"));
            let flag = || value.parse::<bool>().map_err(|_| wrong(&name, "`true` or `false`"));
            options = match name.as_str() {
                "lobster_schema" => options.schema(&value)?,
                "lobster_pooled" => options.pooled(flag()?),
                "lobster_direct" => options.direct(&value)?,
                "lobster_connections" => options.connections(u32::try_from(number()?).map_err(|_| wrong(&name, "smaller"))?),
                "lobster_deadline_ms" => options.deadline(Duration::from_millis(number()?)),
                "lobster_wait_ms" => options.wait(Duration::from_millis(number()?)),
                "lobster_local_path" => options.local_path(value),
                "lobster_migrate" => options.migrate(flag()?),
                "lobster_trust_promoted" => options.trust_promoted(flag()?),
                _ => return Err(Failed::Refused(format!("there is no parameter `{name}` in a URL of PostgreSQL"))),
            };
        }
        Ok(options)
    }

    /// The schema of this installation: several can share a database. Default `lobster`.
    ///
    /// # Errors
    /// [`Failed::Refused`] if it is not made of lower-case letters, digits and underscores, or is longer than 63 bytes.
    pub fn schema(mut self, name: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || name.len() > 63 || !name.chars().all(plain) || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(wrong("lobster_schema", "a name of lower-case letters, digits and underscores"));
        }
        name.clone_into(&mut self.schema);
        Ok(self)
    }

    /// The URL leads to a pooler in transaction mode: statements are then prepared for one transaction only, which costs three more
    /// round trips each. Leave it at `false` for poolers that keep prepared statements (PgBouncer from 1.21 on with
    /// `max_prepared_statements`), and name the [direct](Self::direct) URL there: it tells that sessions are shared, so that nothing is set
    /// in them. Default `false`.
    pub fn pooled(mut self, pooled: bool) -> Self {
        self.pooled = pooled;
        self
    }

    /// A URL past the pooler, for the lease and for hints of other processes. Without one, a pooled process finds their work by polling.
    ///
    /// # Errors
    /// As [`from_url`](Self::from_url).
    pub fn direct(mut self, url: &str) -> Result<Self> {
        self.direct = connect_options(&split(url)?.0)?;
        self.has_direct = true;
        Ok(self)
    }

    /// Is a session this process's alone, as far as is known? Behind a pooler it is also somebody else's.
    pub(super) fn has_sessions(&self) -> bool {
        !self.pooled && !self.has_direct
    }

    /// Connections at most, beside two for batches, one for the lease and one for hints; as many again for transactional steps, while there
    /// are any. Default 10.
    pub fn connections(mut self, most: u32) -> Self {
        self.connections = most.max(1);
        self
    }

    /// A statement that has no answer by then is given up, with its connection. Waiting for a connection of this process, and connecting,
    /// may take as long each. Default 20 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long opening waits for a server that does not answer. Default: not at all.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// A directory on a file system of this host, for slots and proofs of death (`<dir>/<installation>/<slot>.lock`). All processes of
    /// this host that share an installation name the same one. Default: `lobster-<uid>` in the directory for temporary files. Where it
    /// cannot be used, a restarted process waits for the lease of its predecessor.
    pub fn local_path(mut self, dir: impl Into<PathBuf>) -> Self {
        self.local_path = Some(dir.into());
        self
    }

    /// May opening create or migrate the schema? Default `true`. With `false`, and for roles that may not, [`sql`](super::sql) prints
    /// what somebody else has to apply.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Has a standby that is promoted everything that was acknowledged? Say so where it confirms every commit (`synchronous_standby_names`,
    /// and only such a standby is promoted). Otherwise what happened last to a run may be lost: whoever claims it on the new timeline for
    /// the first time has each irreversible call in doubt that it could have made, and `in_doubt` of the step decides. A restored backup
    /// is trusted like a standby: the guide has the statement that says what it is. Default `false`.
    pub fn trust_promoted(mut self, trust: bool) -> Self {
        self.trust_promoted = trust;
        self
    }
}

fn wrong(name: &str, wanted: &str) -> Failed {
    Failed::Refused(format!("`{name}` in the URL of PostgreSQL must be {wanted}"))
}

/// The URL as the driver takes it, and our own parameters.
fn split(url: &str) -> Result<(String, Vec<(String, String)>)> {
    let Some((head, query)) = url.split_once('?') else { return Ok((url.to_owned(), Vec::new())) };
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name.starts_with("lobster_") {
            true => ours.push((name.to_owned(), decode(value).ok_or_else(|| wrong(name, "percent-encoded text"))?)),
            false => theirs.push(pair),
        }
    }
    let rest = if theirs.is_empty() { head.to_owned() } else { format!("{head}?{}", theirs.join("&")) };
    Ok((rest, ours))
}

/// RFC 3986, section 2.1.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn connect_options(url: &str) -> Result<PgConnectOptions> {
    let refused = |why: String| Failed::Refused(format!("the URL of PostgreSQL cannot be read: {why}"));
    let is_ours = url.starts_with("postgres://") || url.starts_with("postgresql://");
    if !is_ours {
        return Err(refused("it begins with `postgres://`".to_owned()));
    }
    let options: PgConnectOptions = url.parse().map_err(|error: sqlx::Error| refused(error.to_string()))?;
    let asked = url.contains("sslmode=") || url.contains("ssl-mode=") || std::env::var_os("PGSSLMODE").is_some();
    let here = options.get_socket().is_some() || ["localhost", "127.0.0.1", "::1", "[::1]"].contains(&options.get_host());
    let here = here || options.get_host().starts_with('/');
    Ok(if asked || here { options } else { options.ssl_mode(PgSslMode::VerifyFull) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_elsewhere_is_verified_unless_somebody_says_otherwise() {
        let mode = |url: &str| Options::from_url(url).expect("a URL").connect.get_ssl_mode();
        assert!(matches!(mode("postgres://db.example.com/shop"), PgSslMode::VerifyFull));
        assert!(matches!(mode("postgres://10.0.0.7/shop"), PgSslMode::VerifyFull));
        assert!(matches!(mode("postgres://10.0.0.7/shop?sslmode=disable"), PgSslMode::Disable));
        assert!(matches!(mode("postgres://localhost/shop"), PgSslMode::Prefer));
        assert!(matches!(mode("postgres://u:p@127.0.0.1:5433/shop"), PgSslMode::Prefer));
    }

    #[test]
    fn our_parameters_are_read_and_the_others_are_the_drivers() {
        let url = "postgresql://u@localhost/shop?lobster_schema=orders&application_name=x&lobster_pooled=true&lobster_connections=3\
                   &lobster_direct=postgres%3A%2F%2Fdb%3A5433%2Fshop&lobster_wait_ms=1500";
        let options = Options::from_url(url).expect("a URL");
        assert_eq!((options.schema.as_str(), options.pooled, options.connections), ("orders", true, 3));
        assert!(!options.has_sessions());
        let has_sessions = |url: &str| Options::from_url(url).expect("a URL").has_sessions();
        assert!(has_sessions("postgres://u@localhost/shop"));
        assert!(!has_sessions("postgres://u@localhost/shop?lobster_direct=postgres%3A%2F%2Fdb%2Fshop"), "it tells of a pooler");
        assert_eq!((options.direct.get_host(), options.direct.get_port()), ("db", 5433));
        assert_eq!((options.wait, options.connect.get_application_name()), (Duration::from_millis(1500), Some("x")));
    }

    #[test]
    fn what_cannot_be_read_is_refused_and_not_repeated() {
        for url in [
            "mysql://localhost/x",
            "postgres://localhost/x?lobster_schema=Orders",
            "postgres://localhost/x?lobster_schema=a%22b",
            "postgres://localhost/x?lobster_nothing=1",
            "postgres://localhost/x?lobster_pooled=maybe",
            "postgres://localhost/x?lobster_schema=%zz",
            "postgres://user:secret@localhost:port/x",
        ] {
            let error = Options::from_url(url).expect_err(url);
            assert!(matches!(&error, Failed::Refused(why) if !why.contains("secret")), "{error}");
        }
    }
}

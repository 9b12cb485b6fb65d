//! What an example has to know of the database that a URL names, without opening it.
//!
//! Invariant: nothing of whoever connects, and no password, gets into the name of a file.

use std::path::{Path, PathBuf};

use anyhow::bail;

/// Where records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database<'a> {
    /// In a SQLite file.
    File(&'a Path),
    /// On a PostgreSQL server: host, database and parameters.
    Server(&'a str),
}

impl<'a> Database<'a> {
    /// The one that a URL names. What is in memory ends with its process, so these examples want more.
    ///
    /// # Errors
    /// It names none.
    pub fn of(url: &'a str) -> anyhow::Result<Self> {
        let server = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        if let Some(server) = server.filter(|server| !server.is_empty()) {
            return Ok(Self::Server(server.rsplit_once('@').map_or(server, |(_who, server)| server)));
        }
        let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"));
        match path.filter(|path| !path.is_empty()) {
            Some(path) => Ok(Self::File(Path::new(path))),
            None => bail!("--db {url}: a file is allowed, as sqlite://records.db, or a server, as postgres://user@host/database"),
        }
    }

    /// The file that it is in, if it is in one.
    pub fn file(self) -> Option<&'a Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Server(_) => None,
        }
    }

    /// A file that an example has beside this database: `<file>.<what>`, for a server in `folder`.
    pub fn companion(self, folder: &Path, what: &str) -> PathBuf {
        let mut name = match self {
            Self::File(path) => path.as_os_str().to_owned(),
            Self::Server(words) => {
                let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
                let words: String = words.chars().map(plain).take(SERVER_CHARS).collect();
                folder.join(format!("postgres-{words}")).into_os_string()
            }
        };
        name.push(".");
        name.push(what);
        PathBuf::from(name)
    }
}

/// So much of the URL of a server is in the name of a file, which has room for 255 bytes.
const SERVER_CHARS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn companion(url: &str) -> String {
        let database = Database::of(url).expect("it is allowed");
        database.companion(Path::new("/t/orders"), "ledger").display().to_string()
    }

    #[test]
    fn what_belongs_to_a_file_lies_beside_it() {
        assert_eq!(companion("sqlite:///r/orders.db"), "/r/orders.db.ledger");
        assert_eq!(companion("sqlite:o.db"), "o.db.ledger");
    }

    #[test]
    fn what_belongs_to_a_server_is_named_by_its_database_and_not_by_who_connects() {
        let plain = "/t/orders/postgres-db-example-com-5432-shop.ledger";
        for url in ["postgres://db.example.com:5432/shop", "postgresql://me:s3cr@t@db.example.com:5432/shop"] {
            assert_eq!(companion(url), plain);
        }
        assert_ne!(companion("postgres://me@db.example.com:5432/shop?lobster_schema=other"), plain);
    }

    #[test]
    fn anything_else_is_refused() {
        for url in ["memory:", "sqlite:", "sqlite://", "postgres://", "orders.db"] {
            let message = Database::of(url).expect_err("it names no database").to_string();
            assert!(message.contains("a file is allowed"), "{message}");
        }
    }
}

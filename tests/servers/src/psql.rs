//! SQL through `psql`, on any server that a URL names.
//!
//! Invariant: statements run one by one, each in a transaction of its own, and the first that fails is the last.

use crate::{
    Error, Result,
    programs::{find, postgres_folder},
};
use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

/// Runs SQL; the rows, one a line, columns between `|`.
///
/// # Errors
/// With what the server said.
pub fn sql(url: &str, sql: &str) -> Result<String> {
    let mut psql = Command::new(program()?)
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-f", "-", "-d", url])
        .env_remove("PGOPTIONS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::io("psql"))?;
    // The pipe closes at the end of the statement. One that ends early says why itself.
    let _said = psql.stdin.take().map(|mut pipe| pipe.write_all(sql.as_bytes()));
    let output = psql.wait_with_output().map_err(Error::io("psql"))?;
    if !output.status.success() {
        return Err(Error::failed("psql", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// A new, empty database beside the one that the URL names; its URL.
///
/// # Errors
/// With what the server said.
pub fn fresh_database(url: &str) -> Result<String> {
    // Drawn, since several machines and runs may use one server.
    let name = format!("t{:016x}", RandomState::new().build_hasher().finish());
    sql(url, &format!("CREATE DATABASE {name};"))?;
    Ok(beside(url, &name))
}

/// The URL of another database on the same server.
pub fn beside(url: &str, database: &str) -> String {
    let (url, parameters) = url.split_once('?').map_or((url, ""), |(url, parameters)| (url, parameters));
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |at| host + at);
    let mark = if parameters.is_empty() { "" } else { "?" };
    format!("{}/{database}{mark}{parameters}", &url[..end])
}

/// The server's own, and not the wrapper that Debian puts on the path: that one takes longer to start than most SQL.
fn program() -> Result<PathBuf> {
    postgres_folder().map(|folder| folder.join("psql")).or_else(|_| find("psql", "postgresql-client"))
}

#[cfg(test)]
mod tests {
    use super::beside;

    #[test]
    fn another_database_of_the_same_server() {
        assert_eq!(beside("postgres://me@host:1/postgres", "t"), "postgres://me@host:1/t");
        assert_eq!(beside("postgres://host", "t"), "postgres://host/t");
        assert_eq!(beside("postgres://host/a?sslmode=require", "t"), "postgres://host/t?sslmode=require");
    }
}

//! What can go wrong with a server. A missing program is told apart, since the answer to it is to install something.

use std::{fmt, io};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no server, or no answer of it.
#[derive(Debug)]
pub enum Error {
    /// A program is not on this machine: install its package.
    Missing(Missing),
    /// Anything else, told with what the programs said.
    Failed(String),
}

/// A program that was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The program.
    pub program: &'static str,
    /// The Debian package that brings it.
    pub package: &'static str,
}

impl Error {
    pub(crate) fn failed(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Failed(format!("{what}: {why}"))
    }

    /// For `map_err` after something was done to a file or a process.
    pub(crate) fn io(what: &str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::failed(what, error)
    }
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not on this machine: install the Debian package `{}`", self.program, self.package)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => missing.fmt(f),
            Self::Failed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Missing {}
impl std::error::Error for Error {}

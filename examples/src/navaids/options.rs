//! The command line of the example, and of its working process.
//!
//! Invariant: what the supervisor was asked for, the working process is asked for in the same words.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lexopt::{Arg, ValueExt};

use crate::database::Database;
use crate::options::{file, number};

/// Most kills that may be asked for.
pub const CHAOS_MAX: u64 = 500;

/// What `--help` prints.
pub const HELP: &str = "\
Imports 11,008 navaids in pages of 20, as one resumable run whose state grows with every page; prints what it wrote.
An import that was interrupted goes on; after one that has ended, the next begins.

Options:
  --db URL        where lobster keeps its records: sqlite://records.db, or postgres://user@host/database in a build
                  with `--features postgres`  [default: sqlite file <target directory>/navaids/navaids.db]
  --tally FILE    where it notes what really happened
                  [default: <file>.tally, for a server in <target directory>/navaids]
  --chaos N       kill the working process (SIGKILL) N times, spread over the import
  --seed S        draws the moments of the kills   [default: 1]
  --help          this text

With NAVAIDS_LOG=warn (or info, debug) in the environment, lobster's own log is shown on standard error.

Exit code: 0 if the recorded state is what the file says, 1 otherwise, 130 after Ctrl-C.
";

/// The part a process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Starts, kills and restarts the working process; prints the figures.
    Supervise,
    /// Executes the import with lobster. A page after this many waits: a kill is due before it.
    Work {
        /// How many pages.
        hold: Option<u64>,
    },
    /// Prints the help text.
    Help,
}

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where lobster keeps its records.
    pub db: String,
    /// The file of the tally.
    pub tally: PathBuf,
    /// How many kills.
    pub chaos: u64,
    /// What the moments of the kills are drawn with.
    pub seed: u64,
}

impl Options {
    /// The arguments of a working process.
    pub fn work(&self, hold: Option<u64>) -> Vec<OsString> {
        let hold = hold.map(|hold| OsString::from(format!("--hold={hold}")));
        let words = ["work", "--db", &self.db, "--tally"].map(OsString::from);
        words.into_iter().chain([self.tally.clone().into_os_string()]).chain(hold).collect()
    }
}

/// Reads role and options; `folder` is where the files are by default.
///
/// # Errors
/// An unknown option, or a value out of its range; the message says what is allowed.
pub fn parse(arguments: impl IntoIterator<Item = OsString>, folder: &Path) -> anyhow::Result<(Role, Options)> {
    let mut role = Role::Supervise;
    let db = format!("sqlite://{}", folder.join("navaids.db").display());
    let mut options = Options { db, tally: PathBuf::new(), chaos: 0, seed: 1 };
    let mut tally = None;
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("db") => options.db = parser.value()?.string()?,
            Arg::Long("tally") => tally = Some(file(&mut parser, "--tally")?),
            Arg::Long("chaos") => options.chaos = number(&mut parser, "--chaos", 0, CHAOS_MAX)?,
            Arg::Long("seed") => options.seed = number(&mut parser, "--seed", 0, u64::MAX)?,
            Arg::Long("hold") if matches!(role, Role::Work { .. }) => {
                role = Role::Work { hold: Some(number(&mut parser, "--hold", 0, u64::MAX)?) };
            }
            Arg::Long("help") | Arg::Short('h') => return Ok((Role::Help, options)),
            Arg::Value(word) if role == Role::Supervise && word == "work" => role = Role::Work { hold: None },
            other => return Err(other.unexpected()).context("try --help"),
        }
    }
    let database = Database::of(&options.db)?;
    options.tally = match tally {
        Some(tally) => tally,
        None => std::path::absolute(database.companion(folder, "tally")).context("the tally's file")?,
    };
    Ok((role, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &[&str]) -> anyhow::Result<(Role, Options)> {
        parse(words.iter().map(OsString::from), Path::new("/t"))
    }

    #[test]
    fn the_tally_lies_beside_the_records() {
        let (role, options) = parse_words(&["--chaos", "20", "--seed=7"]).expect("both are allowed");
        assert_eq!((role, options.db.as_str(), options.chaos, options.seed), (Role::Supervise, "sqlite:///t/navaids.db", 20, 7));
        assert_eq!(options.tally, Path::new("/t/navaids.db.tally"));
    }

    #[test]
    fn the_arguments_for_a_working_process_read_back() {
        let (_, options) = parse_words(&["--db", "sqlite:n.db", "--tally=/x/t"]).expect("it is allowed");
        for hold in [None, Some(0), Some(30)] {
            let read = parse(options.work(hold), Path::new("/elsewhere")).expect("they were written a line ago");
            assert_eq!(read, (Role::Work { hold }, options.clone()));
        }
    }

    #[test]
    fn a_wrong_value_is_told_what_is_allowed() {
        for (words, expected) in [
            (["--chaos", "501"], "a whole number from 0 to 500 is allowed"),
            (["--db", "memory:"], "a file is allowed"),
            (["--db", "sqlite://"], "a file is allowed"),
            (["--hold", "3"], "try --help"),
        ] {
            let message = format!("{:#}", parse_words(&words).expect_err(expected));
            assert!(message.contains(expected), "{message} does not say: {expected}");
        }
    }
}

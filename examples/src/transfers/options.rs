//! The command line of the example, and of its working process.
//!
//! Invariant: what the supervisor was asked for, the working process is asked for in the same words.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;
use lexopt::{Arg, ValueExt};

use crate::database::Database;
use crate::options::number;

/// Most transfers that may be asked for.
pub const TRANSFERS_MAX: u64 = 10_000;
/// Most kills that may be asked for.
pub const CHAOS_MAX: u64 = 500;

/// What `--help` prints.
pub const HELP: &str = "\
Moves money between twenty accounts that lie in the database of the store: each order, its transfer and its receipt are
rows of a bank, written in the same transactions as lobster's own records; prints what the tables say in the end.
Run it again to go on where it stopped.

Options:
  --db URL        where bank and records are: sqlite://records.db, or postgres://user@host/database in a build
                  with `--features postgres`  [default: sqlite file <target directory>/transfers/transfers.db]
  --transfers N   how many transfers, 1 to 10000   [default: 500]
  --chaos N       kill the working process (SIGKILL) N times, spread over the job
  --seed S        draws the moments of the kills   [default: 1]
  --help          this text

With TRANSFERS_LOG=warn (or info, debug) in the environment, lobster's own log is shown on standard error.

Exit code: 0 if the money is all there, nothing was doubled and nothing lost, 1 otherwise, 130 after Ctrl-C.
";

/// The part a process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Starts, kills and restarts the working process; prints the figures.
    Supervise,
    /// Executes transfers and receipts with lobster. A receipt after this many waits: a kill is due before it.
    Work {
        /// How many receipts.
        hold: Option<u64>,
    },
    /// Prints the help text.
    Help,
}

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where bank and records are.
    pub db: String,
    /// How many transfers.
    pub transfers: u64,
    /// How many kills.
    pub chaos: u64,
    /// What the moments of the kills are drawn with.
    pub seed: u64,
}

impl Options {
    /// The arguments of a working process.
    pub fn work(&self, hold: Option<u64>) -> Vec<OsString> {
        let hold = hold.map(|hold| format!("--hold={hold}"));
        let [transfers, chaos] = [self.transfers, self.chaos].map(|number| number.to_string());
        let words = ["work", "--db", &self.db, "--transfers", &transfers, "--chaos", &chaos];
        words.into_iter().map(OsString::from).chain(hold.map(OsString::from)).collect()
    }
}

/// Reads role and options; `folder` is where the file is by default.
///
/// # Errors
/// An unknown option, or a value out of its range; the message says what is allowed.
pub fn parse(arguments: impl IntoIterator<Item = OsString>, folder: &Path) -> anyhow::Result<(Role, Options)> {
    let mut role = Role::Supervise;
    let db = format!("sqlite://{}", folder.join("transfers.db").display());
    let mut options = Options { db, transfers: 500, chaos: 0, seed: 1 };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("db") => options.db = parser.value()?.string()?,
            Arg::Long("transfers") => options.transfers = number(&mut parser, "--transfers", 1, TRANSFERS_MAX)?,
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
    Database::of(&options.db)?;
    Ok((role, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &[&str]) -> anyhow::Result<(Role, Options)> {
        parse(words.iter().map(OsString::from), Path::new("/t"))
    }

    #[test]
    fn without_options_the_file_is_in_the_default_folder() {
        let (role, options) = parse_words(&[]).expect("nothing can be wrong with nothing");
        assert_eq!((role, options.db.as_str(), options.transfers), (Role::Supervise, "sqlite:///t/transfers.db", 500));
    }

    #[test]
    fn the_arguments_for_a_working_process_read_back() {
        let (_, options) = parse_words(&["--db", "sqlite:t.db", "--transfers=7", "--chaos", "3"]).expect("it is allowed");
        for hold in [None, Some(0), Some(30)] {
            let read = parse(options.work(hold), Path::new("/elsewhere")).expect("they were written a line ago");
            assert_eq!(read, (Role::Work { hold }, options.clone()));
        }
    }

    #[test]
    fn a_wrong_value_is_told_what_is_allowed() {
        for (words, expected) in [
            (["--chaos", "501"], "a whole number from 0 to 500 is allowed"),
            (["--transfers", "0"], "a whole number from 1 to 10000 is allowed"),
            (["--db", "memory:"], "a file is allowed"),
            (["--hold", "3"], "try --help"),
        ] {
            let message = format!("{:#}", parse_words(&words).expect_err(expected));
            assert!(message.contains(expected), "{message} does not say: {expected}");
        }
    }
}

//! The command line of the example, and the one its hidden parts are called with: the same options for all.
//! Every option has a default, so that a bare `cargo run --example orders` does the whole job.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use lexopt::{Arg, ValueExt};

use crate::database::Database;

/// Most orders there are.
pub const ORDERS_MAX: usize = 830;
/// Most kills that may be asked for.
pub const CHAOS_MAX: u64 = 2_000;
/// Most working processes.
pub const NODES_MAX: u64 = 16;

/// What `--help` prints.
pub const HELP: &str = "\
Prices, checks, charges, ships and announces 830 real orders, each as one resumable run, against a ledger
that the engine does not own; prints what really happened. Run it again to go on where it stopped.

Options:
  --db URL        where lobster keeps its records: sqlite://records.db, or postgres://user@host/database in a build
                  with `--features postgres`       [default: sqlite file <target directory>/orders/orders.db]
  --ledger FILE   the ledger's file                [default: <file>.ledger, for a server in <target directory>/orders]
  --orders N      how many orders, 1 to 830        [default: 830]
  --nodes N       how many working processes share the job, 1 to 16  [default: 1]
  --chaos N       kill a working process (SIGKILL) N times, spread over the job
  --seed S        draws moments and victims        [default: 1]
  --help          this text

With ORDERS_LOG=warn (or info, debug) in the environment, lobster's own log is shown on standard error.

Exit code: 0 if nothing was doubled and nothing lost, 1 otherwise, 130 after Ctrl-C.
";

/// The part a process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Starts, kills and restarts the others; prints the figures.
    Supervise,
    /// The outside world.
    Ledger,
    /// Executes the orders with lobster.
    Work,
    /// Reads the outcomes from lobster's records, executes nothing.
    Report,
    /// Prints the help text.
    Help,
}

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where lobster keeps its records.
    pub db: String,
    /// The ledger's file.
    pub ledger: PathBuf,
    /// How many orders.
    pub orders: usize,
    /// How many working processes.
    pub nodes: usize,
    /// How many kills.
    pub chaos: u64,
    /// What the moments of the kills are drawn with.
    pub seed: u64,
}

impl Options {
    /// Creates the folders of the files, where they are missing.
    ///
    /// # Errors
    /// One cannot be created.
    pub fn make_folders(&self) -> anyhow::Result<()> {
        let files = Database::of(&self.db)?.file().into_iter().chain([self.ledger.as_path()]);
        for folder in files.filter_map(Path::parent) {
            std::fs::create_dir_all(folder).with_context(|| format!("the folder {}", folder.display()))?;
        }
        Ok(())
    }

    /// The arguments that give another process of the same program this role and these options.
    pub fn arguments(&self, role: Role) -> Vec<OsString> {
        let word = match role {
            Role::Supervise => None,
            Role::Ledger => Some("ledger"),
            Role::Work => Some("work"),
            Role::Report => Some("report"),
            Role::Help => Some("--help"),
        };
        let [orders, nodes] = [self.orders, self.nodes].map(|number| number.to_string());
        let [chaos, seed] = [self.chaos, self.seed].map(|number| number.to_string());
        let text = ["--db", &self.db, "--orders", &orders, "--nodes", &nodes, "--chaos", &chaos, "--seed", &seed, "--ledger"];
        let all = word.into_iter().chain(text).map(OsString::from);
        all.chain([self.ledger.clone().into_os_string()]).collect()
    }
}

/// Reads role and options; `folder` is where the files are by default.
///
/// # Errors
/// An unknown option, or a value out of its range; the message says what is allowed.
pub fn parse(arguments: impl IntoIterator<Item = OsString>, folder: &Path) -> anyhow::Result<(Role, Options)> {
    let mut role = Role::Supervise;
    let db = format!("sqlite://{}", folder.join("orders.db").display());
    let mut options = Options { db, ledger: PathBuf::new(), orders: ORDERS_MAX, nodes: 1, chaos: 0, seed: 1 };
    let mut ledger = None;
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("db") => options.db = parser.value()?.string()?,
            Arg::Long("ledger") => ledger = Some(file(&mut parser, "--ledger")?),
            Arg::Long("nodes") => options.nodes = number(&mut parser, "--nodes", 1, NODES_MAX)?.try_into()?,
            Arg::Long("orders") => options.orders = number(&mut parser, "--orders", 1, ORDERS_MAX as u64)?.try_into()?,
            Arg::Long("chaos") => options.chaos = number(&mut parser, "--chaos", 0, CHAOS_MAX)?,
            Arg::Long("seed") => options.seed = number(&mut parser, "--seed", 0, u64::MAX)?,
            Arg::Long("help") | Arg::Short('h') => return Ok((Role::Help, options)),
            Arg::Value(word) if role == Role::Supervise && word == "ledger" => role = Role::Ledger,
            Arg::Value(word) if role == Role::Supervise && word == "work" => role = Role::Work,
            Arg::Value(word) if role == Role::Supervise && word == "report" => role = Role::Report,
            other => return Err(other.unexpected()).context("try --help"),
        }
    }
    let database = Database::of(&options.db)?;
    options.ledger = match ledger {
        Some(ledger) => ledger,
        None => std::path::absolute(database.companion(folder, "ledger")).context("the ledger's file")?,
    };
    Ok((role, options))
}

/// Reads the value of an option that is a file.
pub(crate) fn file(parser: &mut lexopt::Parser, option: &str) -> anyhow::Result<PathBuf> {
    let file = PathBuf::from(parser.value()?);
    std::path::absolute(&file).with_context(|| format!("{option} {}", file.display()))
}

/// Reads the value of an option that is a whole number within bounds.
pub(crate) fn number(parser: &mut lexopt::Parser, option: &str, min: u64, max: u64) -> anyhow::Result<u64> {
    let text = parser.value()?.string()?;
    match text.parse::<u64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => bail!("{option} {text}: a whole number from {min} to {max} is allowed"),
    }
}

/// What a program ends with; an error is told first.
pub fn exit_code(played: anyhow::Result<ExitCode>) -> ExitCode {
    played.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

/// `<target directory>/<name>` of the program that is running: an example is built into `<target directory>/<profile>/examples`.
///
/// # Errors
/// The program's own path is unknown.
pub fn default_folder(name: &str) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("the path of this program")?;
    Ok(program.ancestors().nth(3).unwrap_or(Path::new("target")).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &[&str]) -> anyhow::Result<(Role, Options)> {
        parse(words.iter().map(OsString::from), Path::new("/t"))
    }

    #[test]
    fn without_options_the_whole_job_is_done_in_the_default_folder() {
        let (role, options) = parse_words(&[]).expect("nothing can be wrong with nothing");
        assert_eq!((role, options.orders, options.chaos), (Role::Supervise, 830, 0));
        assert_eq!((options.db.as_str(), options.ledger.as_path()), ("sqlite:///t/orders.db", Path::new("/t/orders.db.ledger")));
    }

    #[test]
    fn the_arguments_for_a_part_read_back_as_the_same_options() {
        let words = ["--db", "sqlite://o.db", "--ledger", "/x/l.db", "--orders=10", "--nodes=4", "--chaos", "3", "--seed", "9"];
        let (_, options) = parse_words(&words).expect("all of these are allowed");
        let numbers = (options.orders, options.nodes, options.chaos, options.seed);
        assert_eq!((options.db.as_str(), numbers), ("sqlite://o.db", (10, 4, 3, 9)));
        for role in [Role::Supervise, Role::Ledger, Role::Work, Role::Report] {
            let read = parse(options.arguments(role), Path::new("/elsewhere")).expect("they were written a line ago");
            assert_eq!(read, (role, options.clone()));
        }
    }

    #[test]
    fn a_wrong_value_is_told_what_is_allowed() {
        for (words, expected) in [
            (["--orders", "0"], "--orders 0: a whole number from 1 to 830 is allowed"),
            (["--orders", "831"], "from 1 to 830"),
            (["--chaos", "-1"], "--chaos -1: a whole number from 0 to 2000 is allowed"),
            (["--nodes", "0"], "--nodes 0: a whole number from 1 to 16 is allowed"),
            (["--seed", "x"], "--seed x: a whole number"),
            (["--db", "memory:"], "a file is allowed"),
            (["--db", "sqlite:"], "a file is allowed"),
            (["--color", "red"], "try --help"),
            (["work", "work"], "try --help"),
        ] {
            let message = format!("{:#}", parse_words(&words).expect_err(expected));
            assert!(message.contains(expected), "{message} does not say: {expected}");
        }
    }
}

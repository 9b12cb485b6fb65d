//! What the command line says.
//!
//! Invariant: a figure has one name and one row in [`FIGURES`], wherever it is used.

use crate::{
    Result,
    figures::{FIGURES, Figure},
    site::Place,
};
use lexopt::prelude::*;

/// For people.
pub const HELP: &str = "benches --store sqlite|postgres|memory [option ..] [figure ..]

  figures: W1 W1L W1d W1i W2 W2i W3 W3b W5
           W6 W6b W6log W6logb W6table W6tableb W11 W12 W12rows
           on PostgreSQL: W2s W2c W2w W7 W8 W16 (default: all)
  --url postgres://..  a server that is there; without it a private one is started, which syncs what it commits
  --rows N             runs that lie in the tables in W7 and W8 (default: 10000000 and 1000000)
  --rounds N           rounds of each figure (default: 5)
  --scale N            everything N times smaller: to see that it works, not how fast (default: 1)
  One JSON line per figure on stdout, a table on stderr.";

/// The store beneath the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// A file.
    Sqlite,
    /// A schema for each store.
    Postgres,
    /// For profiles of the engine alone; nothing is synced, and there is no bare store.
    Memory,
}

impl Store {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Store::Sqlite => "sqlite",
            Store::Postgres => "postgres",
            Store::Memory => "memory",
        }
    }
}

/// What is to be measured, and how.
#[derive(Debug)]
pub struct Options {
    /// On what.
    pub store: Store,
    /// A server that is there.
    pub url: Option<String>,
    /// Runs that lie in the tables, where a figure wants many.
    pub rows: Option<u32>,
    /// Which figures, in order.
    pub figures: Vec<&'static Figure>,
    /// Divides every size: for tests, which want the lines and not the values.
    pub scale: u32,
    /// Rounds per figure.
    pub rounds: usize,
}

impl Options {
    /// A size, scaled.
    pub fn scaled(&self, size: u32) -> u32 {
        (size / self.scale).max(1)
    }
}

/// The process that is killed, and the one that goes on.
#[derive(Debug)]
pub struct Child {
    /// The store.
    pub place: Place,
    /// Steps of the run.
    pub steps: u32,
    /// Steps done in the first life.
    pub done: u32,
    /// Is it the first life?
    pub first: bool,
    /// Has the run a state?
    pub state: bool,
}

/// What this process is for.
#[derive(Debug)]
pub enum Command {
    /// To tell how it is used.
    Help,
    /// To measure.
    Measure(Options),
    /// To be killed, or to go on: a hidden subcommand.
    Child(Child),
}

/// Reads the command line.
pub fn parse() -> Result<Command> {
    let mut options = Options { store: Store::Sqlite, url: None, rows: None, figures: Vec::new(), scale: 1, rounds: 5 };
    let mut words = lexopt::Parser::from_env();
    while let Some(word) = words.next()? {
        match word {
            Long("help") | Short('h') => return Ok(Command::Help),
            Long("store") => {
                options.store = match words.value()?.string()?.as_str() {
                    "sqlite" => Store::Sqlite,
                    "postgres" => Store::Postgres,
                    "memory" => Store::Memory,
                    other => return Err(format!("`{other}` is no store: sqlite, postgres or memory").into()),
                }
            }
            Long("url") => options.url = Some(words.value()?.string()?),
            Long("rows") => options.rows = Some(words.value()?.parse::<u32>()?.max(1)),
            Long("scale") => options.scale = words.value()?.parse::<u32>()?.max(1),
            Long("rounds") => options.rounds = words.value()?.parse::<usize>()?.max(1),
            Value(value) if value == "child" && options.figures.is_empty() => return child(words),
            Value(value) => {
                let name = value.string()?;
                let figure = FIGURES.iter().find(|figure| figure.name == name);
                options.figures.push(figure.ok_or_else(|| format!("there is no figure `{name}`"))?);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if options.figures.is_empty() {
        options.figures = FIGURES.iter().filter(|figure| figure.is_on(options.store)).collect();
    }
    Ok(Command::Measure(options))
}

fn child(mut words: lexopt::Parser) -> Result<Command> {
    let mut value = || words.value();
    Ok(Command::Child(Child {
        place: Place::of_words([value()?.string()?, value()?.string()?, value()?.string()?]),
        steps: value()?.parse()?,
        done: value()?.parse()?,
        first: value()? == "first",
        state: value()? == "state",
    }))
}

//! The figures: what each is called, what it measures and in which windows.
//!
//! Invariant: a round begins with a fresh store, and its bare rate was measured immediately before it.

mod across;
mod filled;
mod many;
mod one;
pub mod restart;
mod rounds;
mod state;
mod submits;

use crate::{
    Result,
    bare::Bare,
    options::{Options, Store},
    site::{Place, Site},
};

/// A figure.
#[derive(Debug)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// What a value counts.
    pub unit: &'static str,
    /// Is a value to be set beside the rate of bare commits, or what else its round was measured beside?
    pub beside: bool,
    /// What the store promises for what is measured.
    mode: &'static str,
    /// Clients that commit to the bare store at once, where it can have several.
    clients: usize,
    what: What,
}

impl Figure {
    /// Can this store be asked for it?
    pub fn is_on(&self, store: Store) -> bool {
        match self.what {
            What::Weight(_) | What::Filled(_) | What::Across => store == Store::Postgres,
            What::Restart(..) => store != Store::Memory,
            What::Rounds(rounds::Told::Rows) => store == Store::Sqlite,
            _ => true,
        }
    }

    /// What the store promises, and how many runs lie in it, where that is what the figure is about.
    pub fn mode(&self, options: &Options) -> String {
        match self.what {
            What::Filled(with) => format!("{} {}", with.rows(options), self.mode),
            _ => self.mode.to_owned(),
        }
    }
}

#[derive(Debug)]
enum What {
    /// One run of so many steps.
    One(one::Kind, u32),
    /// Many runs of so many steps, so many at once.
    Many(many::Kind),
    /// Single submits, or one of many.
    Submits(submits::Kind),
    /// What the server counts for a step of many runs.
    Weight(many::Told),
    /// A store that many runs lie in.
    Filled(filled::With),
    /// From one node to another.
    Across,
    /// A killed process and its successor: steps done before, and whether the run has a state.
    Restart(u32, bool),
    /// One change of a large state.
    State(state::Kind, state::Told),
    /// A repeated step.
    Rounds(rounds::Told),
}

/// All of them.
pub const FIGURES: &[Figure] = &[
    figure("W1", "steps/s", "relaxed steps, synced finish", What::One(one::Kind::Ordinary, 1_000)),
    figure("W1L", "steps/s", "relaxed steps, synced finish", What::One(one::Kind::Ordinary, 100_000)),
    figure("W1d", "steps/s", "synced", What::One(one::Kind::Durable, 1_000)),
    figure("W1i", "steps/s", "synced", What::One(one::Kind::Irreversible, 1_000)),
    figure("W2", "steps/s", "relaxed steps, synced claim and finish", What::Many(many::Kind::Ordinary)),
    Figure { clients: 16, ..figure("W2i", "steps/s", "synced", What::Many(many::Kind::Irreversible)) },
    alone("W2s", "/step", "statements, from the start of the node", What::Weight(many::Told::Statements)),
    alone("W2c", "/step", "transactions, less those of a node that only starts and stops", What::Weight(many::Told::Commits)),
    alone("W2w", "B/step", "write-ahead log, from the start of the node", What::Weight(many::Told::Wal)),
    figure("W3", "runs/s", "synced", What::Submits(submits::Kind::Single)),
    figure("W3b", "runs/s", "synced", What::Submits(submits::Kind::All)),
    alone("W5", "ms", "relaxed steps", What::Restart(500, false)),
    figure("W7", "steps/s", "ended runs lie in the tables; bare: an empty store", What::Filled(filled::With::Ended)),
    alone("W8", "/s", "runs are due next month; statements of an idle node", What::Filled(filled::With::Waiting)),
    alone("W16", "ms", "synced submit; 99th percentile", What::Across),
    figure("W6", "us/step", "relaxed steps; bare: encoding the field", What::State(state::Kind::Fields, state::Told::Time)),
    figure("W6b", "B/step", "bare: the whole state", What::State(state::Kind::Fields, state::Told::Bytes)),
    figure("W6log", "us/step", "relaxed steps; bare: a tenth of the size", What::State(state::Kind::Log, state::Told::Time)),
    figure("W6logb", "B/step", "bare: a tenth of the size", What::State(state::Kind::Log, state::Told::Bytes)),
    figure("W6table", "us/step", "relaxed steps; bare: a tenth of the size", What::State(state::Kind::Table, state::Told::Time)),
    figure("W6tableb", "B/step", "bare: a tenth of the size", What::State(state::Kind::Table, state::Told::Bytes)),
    alone("W11", "ms", "relaxed steps", What::Restart(10_000, true)),
    figure("W12", "rounds/s", "relaxed rounds, synced finish", What::Rounds(rounds::Told::Rate)),
    alone("W12rows", "rows", "stored at the end", What::Rounds(rounds::Told::Rows)),
];

const fn figure(name: &'static str, unit: &'static str, mode: &'static str, what: What) -> Figure {
    Figure { name, unit, beside: true, mode, clients: 1, what }
}

/// A figure that is not set beside anything.
const fn alone(name: &'static str, unit: &'static str, mode: &'static str, what: What) -> Figure {
    Figure { beside: false, ..figure(name, unit, mode, what) }
}

/// One round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// The value, in the figure's unit.
    pub value: f64,
    /// Synced statements within its window.
    pub syncs: u64,
    /// Bare commits per second, just before; `None` on a store that syncs nothing. Or what the round was measured beside.
    pub bare: Option<f64>,
}

/// What a round took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub value: f64,
    pub syncs: u64,
    /// What it is to be set beside, if not bare commits.
    pub beside: Option<f64>,
}

impl From<(f64, u64)> for Taken {
    fn from((value, syncs): (f64, u64)) -> Self {
        Self { value, syncs, beside: None }
    }
}

/// What a figure's round is given.
pub(crate) struct Stage<'s> {
    pub site: &'s Site,
    pub options: &'s Options,
    /// Seconds of a bare synced commit; 0 on a store that syncs nothing.
    pub sync: f64,
}

/// Commits of one measurement of the bare store.
const COMMITS: u32 = 500;

/// Measures a figure; `None`: the store has no such thing.
pub async fn measure(site: &Site, options: &Options, figure: &Figure) -> Result<Option<Vec<Round>>> {
    if !figure.is_on(site.store) {
        return Ok(None);
    }
    let filled = match figure.what {
        What::Filled(with) => Some(filled::fill(site.place(), with, with.rows(options)).await?),
        _ => None,
    };
    let mut bare = Bare::open(site, figure.clients).await?;
    let mut rounds = Vec::with_capacity(options.rounds);
    for number in 0..options.rounds {
        let commits = match &mut bare {
            Some(bare) => Some(bare.measure(options.scaled(COMMITS)).await?),
            None => None,
        };
        let stage = Stage { site, options, sync: commits.map_or(0.0, |commits| commits.median) };
        let Some(taken) = round(&stage, figure, filled.as_ref(), number).await? else { return Ok(None) };
        let Taken { value, syncs, beside } = taken;
        rounds.push(Round { value, syncs, bare: beside.or(commits.map(|commits| commits.rate)) });
    }
    if let Some(bare) = bare {
        bare.close().await?;
    }
    Ok(Some(rounds))
}

async fn round(stage: &Stage<'_>, figure: &Figure, filled: Option<&Place>, number: usize) -> Result<Option<Taken>> {
    let filled = || filled.ok_or("nothing was filled");
    Ok(Some(match &figure.what {
        What::One(kind, steps) => one::round(stage, *kind, *steps).await?.into(),
        What::Many(kind) => many::round(stage, *kind).await?.into(),
        What::Weight(told) => return many::weight(stage, *told).await,
        What::Filled(filled::With::Ended) => filled::round(stage, filled()?, number).await?,
        What::Filled(filled::With::Waiting) => return filled::idle(stage, filled()?).await,
        What::Across => across::round(stage).await?.into(),
        What::Submits(kind) => submits::round(stage, *kind).await?.into(),
        What::Restart(done, state) => restart::round(stage, *done, *state).await?.into(),
        What::State(kind, told) => state::round(stage, *kind, *told).await?,
        What::Rounds(told) => return rounds::round(stage, *told).await,
    }))
}

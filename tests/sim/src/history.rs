//! What happened, in order: the events that checkers read, and a hash over these and everything finer.
//!
//! Invariant: two runs of a seed have the same hash, or the simulation is not deterministic.

use crate::book::{Books, Page};
use crate::plan::{Kind, Sight};
use crate::swarm::{Blow, Call, Moment};
use crate::world::Fault;
use lobster_core::{RunId, RunState, store::contract::Folded};
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    hash::{Hash, Hasher},
    time::Duration,
};
use uuid::Uuid;

/// A step of a run: its public id.
pub(crate) type Step = Uuid;

/// A recorded fact, as far as checkers look at it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Noted {
    Result {
        step: Step,
        token: u64,
        ok: bool,
    },
    /// `lost`: it was not followed by a call, because an earlier one may be lost.
    Intent {
        step: Step,
        key: String,
        lost: u32,
    },
    Attempt {
        step: Step,
        in_doubt: bool,
    },
    /// A round of a repeated step, or an attempt of one that failed.
    Round {
        step: Step,
        failed: bool,
    },
    Other,
}

/// An intent as the store would have it after a crash at that moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Arm {
    pub seq: u64,
    pub epoch: u64,
    pub key: String,
    /// It was sent longer than W ago.
    pub stale: bool,
}

/// One thing of a row that has to do with states.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entry {
    /// A result: of which execution, and whether it is a value.
    Result { step: Step, token: u64, ok: bool },
    /// A failed attempt of a step that is not repeated.
    Attempt { step: Step },
    /// What an execution changed of a state.
    Change { book: String, token: u64 },
    /// Rounds done, and failed attempts of the next one.
    Round { step: Step, done: u64, failed: u32 },
}

/// A run's end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Value(Vec<Sight>),
    Failure { message: String, refused: bool },
    Cancelled,
    Quarantined(String),
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A submit was acknowledged to a client.
    Submitted { key: String, run: RunId },
    /// The store gave a run to a node. `done`: steps that had a result there.
    Claimed { run: RunId, epoch: u64, node: u32, leased: bool, deaths: u32, done: Vec<Step> },
    /// The store said, with a claim, that it may have lost what happened to a run up to this epoch.
    Doubted { run: RunId, epoch: u64 },
    /// The store took rows.
    Appended { run: RunId, epoch: u64, from: u64, to: u64, facts: Vec<Noted> },
    /// A node has lost all runs that it has.
    Revoked { node: u32 },
    /// The store was offered a snapshot.
    Folded { run: RunId, epoch: u64, seq: u64, folded: Folded },
    /// What the rows that the store took have to do with states, by seq.
    Recorded { run: RunId, to: u64, entries: Vec<(u64, Entry)> },
    /// What the store has of a run's states, or what is wrong with its recording.
    Read { run: RunId, tail: u64, read: Result<Books, String> },
    /// A step's execution found states as they were before, and changed them.
    Took { run: RunId, epoch: u64, step: Step, token: u64, round: Option<u32>, durable: bool, pages: Vec<(String, Page, Page)> },
    /// It ended well.
    Gave { run: RunId, token: u64 },
    /// A state did not do what it was told.
    Misread { run: RunId, message: String },
    /// What the transactions of a run have left in the store, and which of their steps it says succeeded: by step how often it wrote and its
    /// token, as numbers of the application.
    Audited { run: RunId, recorded: Vec<(Step, u64)>, left: Vec<(Step, i64, i64)> },
    /// A step began to work in its transaction.
    Wrote { node: u32, run: RunId, epoch: u64, leased: bool, step: Step, token: u64 },
    /// The store ended a run.
    Ended { run: RunId, state: RunState },
    /// The store set a run aside for a person.
    Held { run: RunId, reason: String },
    /// The store was asked for the end of a run.
    CancelAsked { run: RunId },
    /// A node was told that a run is not its own any more, or cancelled.
    Stopped { node: u32, run: RunId, epoch: u64 },
    /// A body was polled.
    Polled { body: u32, node: u32, run: RunId, epoch: u64, poll: u64 },
    /// A body saw the result of a call.
    Delivered { body: u32, run: RunId, poll: u64, kind: Kind, label: u32, token: u64, ok: bool },
    /// The value that a body was handed belongs to another call.
    Mixed { run: RunId, asked: u32, got: u32 },
    /// The engine refused a call that is well formed.
    Refused { run: RunId, message: String },
    /// A step's body began.
    Began { node: u32, run: RunId, epoch: u64, step: Step, kind: Kind, attempt: u32 },
    /// An irreversible call began. `owner`: the run's epoch in the store at that moment.
    Called { node: u32, run: RunId, epoch: u64, owner: u64, leased: bool, step: Step, kind: Kind, key: String, arm: Option<Arm> },
    /// A call was told that it had no effect.
    Undone { step: Step, key: String },
    /// The outside world did what a call asked for.
    Executed { run: RunId, step: Step, key: String, token: u64 },
    /// The outside world closed a key.
    Closed { step: Step, key: String },
    /// A person stated what became of a step.
    Resolved { run: RunId, step: Step, happened: bool },
    /// A client was told how a run ended.
    Told { run: RunId, end: End },
    /// A step took its process with it.
    Poisoned { run: RunId, epoch: u64 },
    /// A task of an engine panicked.
    Panicked { node: u32, message: String },
    /// Something was done to a node or to the store.
    Struck { call: Call, moment: Moment, blow: Blow },
    /// The store lost what was not synced.
    Crashed,
    /// Faults end here.
    Healed,
    /// A run, after the last crash of the store: state, results in seq order, end.
    Final { run: RunId, key: Option<String>, state: RunState, results: Vec<(u64, Step, u64, bool)>, end: Option<End> },
    /// A run did not end in time.
    Stuck { run: RunId, state: RunState, reason: String },
}

/// The history of a simulation.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub events: Vec<(Duration, Event)>,
    pub coverage: BTreeMap<(Call, Moment, Blow), u32>,
    pub faults: BTreeMap<(Call, Fault), u32>,
    hash: Fnv,
    fine: u64,
    echo: bool,
}

impl History {
    pub fn new(echo: bool) -> Self {
        Self { echo, ..Self::default() }
    }
    pub fn log(&mut self, at: Duration, event: Event) {
        (at, &event).hash(&mut self.hash);
        if self.echo {
            println!("{:>9.3} {event:?}", at.as_secs_f64());
        }
        if let Event::Struck { call, moment, blow } = event {
            *self.coverage.entry((call, moment, blow)).or_default() += 1;
        }
        self.events.push((at, event));
    }
    /// Something finer, for the hash and for a reader of traces.
    pub fn note(&mut self, at: Duration, what: fmt::Arguments<'_>) {
        self.fine += 1;
        at.hash(&mut self.hash);
        // Writing to the hash cannot fail.
        let _ = self.hash.write_fmt(what);
        if self.echo {
            println!("{:>9.3}   {what}", at.as_secs_f64());
        }
    }
    pub fn hash(&self) -> u64 {
        self.hash.finish()
    }
    pub fn count(&self) -> u64 {
        self.events.len() as u64 + self.fine
    }
}

/// A hash that is the same in every process (FNV-1a).
#[derive(Clone, Copy, Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write(text.as_bytes());
        Ok(())
    }
}

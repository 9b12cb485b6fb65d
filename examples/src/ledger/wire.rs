//! What is said between the ledger and its clients: one JSON object per line, answered in any order by its number.
//! A line is bounded; a longer one ends the connection.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use tokio_util::codec::{FramedRead, LinesCodec};

/// Longest line, either way. The longest real one is a few hundred bytes.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// Longest key and step name.
pub const NAME_BYTES_MAX: usize = 200;
/// Questions that one connection may have open; then it is not read on.
pub const OPEN_ASKS_MAX: usize = 1024;

/// What can be done to an order, once each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The customer pays.
    Charge,
    /// The goods leave.
    Ship,
    /// The customer is told.
    Notify,
}

impl Kind {
    /// All kinds, in the order in which they happen to an order.
    pub const ALL: [Kind; 3] = [Kind::Charge, Kind::Ship, Kind::Notify];

    /// The word for it in the ledger's tables.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Charge => "charge",
            Kind::Ship => "ship",
            Kind::Notify => "notify",
        }
    }
}

/// A request to do something once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// The idempotency key: it is executed once, whoever sends it and how often.
    pub key: String,
    /// What to do.
    pub kind: Kind,
    /// To which order.
    pub order: u32,
    /// For how much, if money moves.
    pub amount: Option<Decimal>,
}

/// What the ledger gives for an executed key, always the same for one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The receipt's number.
    pub number: String,
    /// What was done.
    pub kind: Kind,
    /// To which order.
    pub order: u32,
    /// For how much.
    pub amount: Option<Decimal>,
    /// When, wall clock of the ledger.
    pub at_ms: u64,
}

/// The report that a step's body has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Names this one execution of the body: a report that is sent twice counts once.
    pub mark: String,
    /// The step.
    pub step: String,
    /// The order it works for.
    pub order: u32,
    /// Which attempt of the step this is, from 1.
    pub attempt: u32,
    /// The fencing token of the run's owner.
    pub epoch: u64,
    /// The process.
    pub pid: u32,
    /// When, wall clock of that process.
    pub at_ms: u64,
}

/// A start of the working process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The process.
    pub pid: u32,
    /// When it was spawned.
    pub at_ms: u64,
    /// Whether it follows a kill.
    pub after_kill: bool,
}

/// A kill of the working process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Killed {
    /// The process.
    pub pid: u32,
    /// When.
    pub at_ms: u64,
    /// The next count of executed calls to stop at, see [`Watch::hold`].
    pub hold: Option<u64>,
}

/// Answered with [`Answer::Reached`] as soon as the job has come far enough.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The count of executed calls to wait for.
    pub executed: u64,
    /// From this count on, new calls wait until the next [`Killed`], [`Ask::Release`] or the end of the watcher's connection.
    pub hold: u64,
    /// The processes of which one must have begun a body, the one that is preferred first.
    pub pids: Vec<u32>,
}

/// How far the ledger has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests received.
    pub requests: u64,
    /// Keys executed.
    pub executed: u64,
    /// Requests to act that were refused: the key had been executed before, or was closed.
    pub refused: u64,
    /// Reports of bodies begun.
    pub bodies: u64,
    /// Kills of the working process.
    pub kills: u64,
}

/// What a client may ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Who is there? The first line on every connection.
    Hello {
        /// The asking process.
        pid: u32,
    },
    /// Do this once.
    Act(Act),
    /// Did this key happen?
    DidHappen {
        /// The key.
        key: String,
    },
    /// Close this key: if it has not happened, it never will.
    Close {
        /// The key.
        key: String,
    },
    /// A body has begun.
    Begun(Begun),
    /// The working process was started.
    Started(Started),
    /// The working process was killed.
    Killed(Killed),
    /// Tell me when the job has come so far.
    Watch(Watch),
    /// No kill is due any more: nothing waits, and the watches of this connection are off.
    Release,
    /// How far is the job?
    Counts,
    /// End, as soon as nobody else is connected.
    Stop,
}

/// What the ledger answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To `Hello`.
    Here {
        /// The ledger's file, absolute.
        file: String,
    },
    /// The key has been executed: now, or before.
    Receipt {
        /// The receipt of the first time.
        receipt: Receipt,
        /// Whether it had been executed before.
        repeated: bool,
    },
    /// The key has not been seen so far.
    NotSeen,
    /// The key is closed: it has not happened and never will.
    Closed,
    /// The key was executed for something else.
    Conflict {
        /// What it was executed for.
        first: Receipt,
    },
    /// Written down.
    Noted,
    /// To `Watch`.
    Reached {
        /// The first of the watched processes that has begun a body.
        pid: u32,
    },
    /// To `Counts`.
    Counts(Counts),
    /// The question makes no sense.
    Invalid {
        /// Why not.
        message: String,
    },
}

/// A numbered question.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// Its number, unique among the open ones of its connection.
    pub id: u64,
    /// The question.
    pub ask: Ask,
}

/// The answer to the question of the same number.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reply {
    /// The question's number.
    pub id: u64,
    /// The answer.
    pub answer: Answer,
}

/// The lines that come out of one half of a connection.
pub fn lines<R: tokio::io::AsyncRead>(from: R) -> FramedRead<R, LinesCodec> {
    FramedRead::new(from, LinesCodec::new_with_max_length(LINE_BYTES_MAX))
}

/// Appends one message and its line end.
pub fn push_line<T: Serialize>(buffer: &mut Vec<u8>, message: &T) {
    serde_json::to_writer(&mut *buffer, message)
        .expect("messages hold only strings, numbers and options, and a Vec takes every byte");
    buffer.push(b'\n');
}

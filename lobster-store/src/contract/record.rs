//! The records that stores keep: protobuf messages (`proto/records.proto`), their checks, and the frame of a row.
//!
//! A run has two kinds of records under one range of seqs: [deltas](Delta), which are kept to its end, and [changes](Change), which the
//! fold that covers them replaces by [parts](Part) and a [manifest](Manifest).
//!
//! Invariant: bytes that fail a check never leave this module as a value.

use super::{
    error::Failed,
    ids::{Epoch, Mark, RunId, Seq},
    limits,
};
use bytes::Bytes;
use prost::Message;

mod state;
#[cfg(test)]
mod tests;

pub use state::{
    Change, Changed, Changes, Entries, Entry, Items, Manifest, MemberChange, MemberParts, Part, PartRef, Round, StateChange,
    StateParts, What, Whole, change_crc, digest, encode_change, open_changes, put_change,
};

/// Codec of a payload. Unknown numbers are refused at decode, not guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Codec {
    /// No codec: an empty message.
    Unspecified = 0,
    /// JSON (RFC 8259), UTF-8.
    Json = 1,
}

/// A user's value and how it is encoded.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Payload {
    /// How `data` is encoded.
    #[prost(enumeration = "Codec", tag = "1")]
    pub codec: i32,
    /// The encoded value.
    #[prost(bytes = "bytes", tag = "2")]
    pub data: Bytes,
}

/// Identity of a step within its run.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Message)]
pub struct StepName {
    /// Branch of the run; empty for the root.
    #[prost(string, tag = "1")]
    pub scope: String,
    /// Name of the step.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its key, or its occurrence.
    #[prost(oneof = "Which", tags = "3, 4")]
    pub which: Option<Which>,
}

/// What tells the calls of one step apart.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Oneof)]
pub enum Which {
    /// The n-th unkeyed call of this name in its scope, from 0.
    #[prost(uint32, tag = "3")]
    Occurrence(u32),
    /// The author's key.
    #[prost(string, tag = "4")]
    Key(String),
}

/// Why a step or a run failed, as the body sees it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Failure {
    /// See `StepFailed::kind`.
    #[prost(enumeration = "FailureKind", tag = "1")]
    pub kind: i32,
    /// The author's or the engine's code; may be empty.
    #[prost(string, tag = "2")]
    pub code: String,
    /// For people.
    #[prost(string, tag = "3")]
    pub message: String,
    /// The author's data, if any.
    #[prost(message, optional, tag = "4")]
    pub data: Option<Payload>,
    /// Display name of the step that failed; empty for a body's own failure.
    #[prost(string, tag = "5")]
    pub step: String,
    /// Attempts made.
    #[prost(uint32, tag = "6")]
    pub attempts: u32,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum FailureKind {
    /// Returned by the body of a task.
    Unspecified = 0,
    /// Marked `.fatal()` by its author.
    Fatal = 1,
    /// All attempts failed.
    Exhausted = 2,
    /// The last attempt panicked.
    Panic = 3,
    /// The last attempt took longer than its `timeout`.
    Timeout = 4,
    /// A value could not be encoded, decoded or is over its limit.
    Encoding = 5,
    /// The engine refuses the call; `code` says why.
    Refused = 6,
}

/// A step's outcome, recorded once.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StepResult {
    /// Which step.
    #[prost(message, optional, tag = "1")]
    pub step: Option<StepName>,
    /// What came of it.
    #[prost(oneof = "Came", tags = "2, 3")]
    pub came: Option<Came>,
    /// Attempts made, the last included.
    #[prost(uint32, tag = "4")]
    pub attempts: u32,
    /// When the first attempt of this process began, wall clock.
    #[prost(int64, tag = "5")]
    pub began_ms: i64,
    /// When it ended, wall clock.
    #[prost(int64, tag = "6")]
    pub ended_ms: i64,
    /// What kind of step it was.
    #[prost(enumeration = "StepKind", tag = "7")]
    pub kind: i32,
    /// Generation of the idempotency key of an irreversible step.
    #[prost(uint32, tag = "8")]
    pub generation: u32,
}

/// A step's value or failure.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Came {
    /// The value.
    #[prost(message, tag = "2")]
    Value(Payload),
    /// The failure.
    #[prost(message, tag = "3")]
    Failure(Failure),
}

/// Kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum StepKind {
    /// Result in memory, flushed behind.
    Ordinary = 0,
    /// The call returns when its record is synced.
    Durable = 1,
    /// Intent first, then the call.
    Irreversible = 2,
    /// One transaction with what the step wrote.
    Transactional = 3,
}

/// An attempt that failed and will be made again.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Attempt {
    /// Which step.
    #[prost(message, optional, tag = "1")]
    pub step: Option<StepName>,
    /// Number of the failed attempt, from 1.
    #[prost(uint32, tag = "2")]
    pub number: u32,
    /// What went wrong.
    #[prost(message, optional, tag = "3")]
    pub failure: Option<Failure>,
    /// When the next attempt is due, wall clock.
    #[prost(int64, tag = "4")]
    pub due_ms: i64,
    /// For an irreversible step: may the call have happened?
    #[prost(bool, tag = "5")]
    pub in_doubt: bool,
    /// For an irreversible step: the generation the next call uses.
    #[prost(uint32, tag = "6")]
    pub generation: u32,
    /// For an irreversible step in doubt: probes so far that could not tell.
    #[prost(uint32, tag = "7")]
    pub probes: u32,
}

/// "I am about to make this irreversible call."
#[derive(Clone, PartialEq, prost::Message)]
pub struct Intent {
    /// Which step.
    #[prost(message, optional, tag = "1")]
    pub step: Option<StepName>,
    /// The start window W, in nanoseconds.
    #[prost(uint64, tag = "2")]
    pub window_ns: u64,
    /// `max_duration` D, in nanoseconds.
    #[prost(uint64, tag = "3")]
    pub max_duration_ns: u64,
    /// The idempotency key of the call.
    #[prost(string, tag = "4")]
    pub key: String,
    /// Generation of that key.
    #[prost(uint32, tag = "5")]
    pub generation: u32,
    /// Epoch of the holder.
    #[prost(uint64, tag = "6")]
    pub epoch: u64,
    /// Boot id of the holder's host.
    #[prost(string, tag = "7")]
    pub boot_id: String,
    /// When it was sent, nanoseconds on that boot's clock.
    #[prost(uint64, tag = "8")]
    pub sent_ns: u64,
    /// Number of the attempt, from 1; attempts so far, if it is not followed by a call.
    #[prost(uint32, tag = "9")]
    pub attempt: u32,
    /// Incarnation of the holder.
    #[prost(bytes = "bytes", tag = "10")]
    pub incarnation: Bytes,
    /// When it was sent, wall clock; for people only.
    #[prost(int64, tag = "11")]
    pub sent_ms: i64,
    /// Not 0: it was not followed by a call. The store may have lost an earlier one and its intent, and this is what a word on that one
    /// can speak of; 2 if the generation before was such a one too.
    #[prost(uint32, tag = "12")]
    pub lost: u32,
}

/// End of the window of an intent of another boot, as its first successor fixed it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Window {
    /// Which step.
    #[prost(message, optional, tag = "1")]
    pub step: Option<StepName>,
    /// Seq of the intent.
    #[prost(uint64, tag = "2")]
    pub intent: u64,
    /// Boot id of the successor's host.
    #[prost(string, tag = "3")]
    pub boot_id: String,
    /// End of the window, nanoseconds on that boot's clock.
    #[prost(uint64, tag = "4")]
    pub end_ns: u64,
}

/// One recorded fact.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Delta {
    /// The fact.
    #[prost(oneof = "Fact", tags = "1, 2, 3, 4, 5, 6")]
    pub fact: Option<Fact>,
    /// Its seq.
    #[prost(uint64, tag = "15")]
    pub seq: u64,
}

/// What a delta records.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Fact {
    /// A step's outcome.
    #[prost(message, tag = "1")]
    Result(StepResult),
    /// A failed attempt.
    #[prost(message, tag = "2")]
    Attempt(Attempt),
    /// An irreversible call is about to be made.
    #[prost(message, tag = "3")]
    Intent(Intent),
    /// The window of an older boot's intent.
    #[prost(message, tag = "4")]
    Window(Window),
    /// The body dropped this irreversible call before it saw its result.
    #[prost(message, tag = "5")]
    Detached(StepName),
    /// The body asked again, by key, for a call that it had dropped, and sees its result here.
    #[prost(message, tag = "6")]
    Attached(StepName),
}

/// Body of a row of deltas: in seq order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Deltas {
    /// The deltas.
    #[prost(message, repeated, tag = "1")]
    pub deltas: Vec<Delta>,
}

/// Input of a run (the base slice), written once at submit.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Input {
    /// The task's input.
    #[prost(message, optional, tag = "1")]
    pub payload: Option<Payload>,
}

/// How a run ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Outcome {
    /// What came of it.
    #[prost(oneof = "Ending", tags = "1, 2, 3, 4")]
    pub ending: Option<Ending>,
}

/// The endings of a run.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Ending {
    /// The body returned this value.
    #[prost(message, tag = "1")]
    Value(Payload),
    /// The body failed.
    #[prost(message, tag = "2")]
    Failure(Failure),
    /// It was cancelled; the reason a person gave, if any.
    #[prost(string, tag = "3")]
    Cancelled(String),
    /// It was set aside; why.
    #[prost(string, tag = "4")]
    Quarantined(String),
}

/// A person's or a late caller's word on an irreversible call in doubt.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Fate {
    /// What happened.
    #[prost(oneof = "Happened", tags = "1, 2")]
    pub happened: Option<Happened>,
    /// Counts even before the end of the window.
    #[prost(bool, tag = "3")]
    pub forced: bool,
}

/// The fates that a verdict may state.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(clippy::large_enum_variant, reason = "a verdict is rare and short-lived; a box would only complicate its callers")]
pub enum Happened {
    /// It happened, with this outcome.
    #[prost(message, tag = "1")]
    Result(StepResult),
    /// It did not happen and never will.
    #[prost(bool, tag = "2")]
    Closed(bool),
}

/// Encoded bytes of one record and their checksum, bound to the run they belong to.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The encoded message.
    pub body: Bytes,
    /// CRC32 over the record's place and its bytes.
    pub crc: u32,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.body.len())
    }
}

/// Kind of a sealed record: part of its checksum, so one cannot stand in for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An input.
    Input,
    /// An outcome.
    Outcome,
    /// A verdict.
    Verdict,
    /// A manifest.
    Manifest,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Input => "input",
            Kind::Outcome => "outcome",
            Kind::Verdict => "verdict",
            Kind::Manifest => "manifest",
        }
    }
}

impl Sealed {
    /// Encodes `message` as the record `kind` of `run`.
    pub fn new(kind: Kind, run: RunId, message: &impl Message) -> Self {
        let body = Bytes::from(message.encode_to_vec());
        let crc = seal(kind.word(), run, [0, 0, 0], &body);
        Self { body, crc }
    }

    /// Checks size and checksum, then decodes.
    ///
    /// # Errors
    /// [`Failed::Corrupt`] naming run and record.
    pub fn open<M: Message + Default>(&self, kind: Kind, run: RunId) -> Result<M, Failed> {
        let corrupt = |why: String| Failed::Corrupt { run, seq: 0, record: kind.word(), why };
        if self.body.len() > limits::RECORD_BYTES {
            return Err(corrupt(format!("{} bytes, more than any record has", self.body.len())));
        }
        if seal(kind.word(), run, [0, 0, 0], &self.body) != self.crc {
            return Err(corrupt("checksum differs".into()));
        }
        M::decode(self.body.clone()).map_err(|error| corrupt(error.to_string()))
    }
}

/// Checksum of the deltas of a row: its place is part of it, so valid ones moved elsewhere do not pass.
pub fn delta_crc(run: RunId, epoch: Epoch, from: Seq, to: Seq, body: &[u8]) -> u32 {
    seal("delta", run, [epoch, from, to], body)
}

/// The mark of a row: of its deltas' checksum and its changes', of whichever it has.
pub fn row_mark(deltas: Option<u32>, changes: Option<u32>) -> Mark {
    match (deltas, changes) {
        (Some(deltas), Some(changes)) => digest(deltas, changes),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => 0,
    }
}

/// Checks the deltas of a row and decodes them.
///
/// # Errors
/// [`Failed::Corrupt`] naming run and seq: wrong size, checksum, encoding or order, or a delta without a fact.
pub fn open_deltas(run: RunId, epoch: Epoch, from: Seq, to: Seq, body: &Bytes, crc: u32) -> Result<Vec<(Seq, Fact)>, Failed> {
    let corrupt = |why: String| Failed::Corrupt { run, seq: from, record: "delta", why };
    checked("delta", run, [epoch, from, to], body, crc)?;
    let deltas = Deltas::decode(body.clone()).map_err(|error| corrupt(error.to_string()))?.deltas;
    let mut last = None;
    let facts = deltas.into_iter().map(|delta| {
        if !(from..=to).contains(&delta.seq) || last.is_some_and(|last| last >= delta.seq) {
            return Err(corrupt(format!("a delta of seq {} where {from}..={to} belong", delta.seq)));
        }
        last = Some(delta.seq);
        Ok((delta.seq, delta.fact.ok_or_else(|| corrupt("a delta of a kind this code does not know".into()))?))
    });
    facts.collect()
}

/// Encodes one delta as an element of [`Deltas`]: rows are these bytes put behind one another.
pub fn encode_delta(seq: Seq, fact: Fact) -> Bytes {
    element(&Delta { fact: Some(fact), seq })
}

/// A message as an element of the one repeated field of its list.
fn element(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut bytes = Vec::with_capacity(len + 1 + prost::length_delimiter_len(len));
    prost::encoding::message::encode(1, message, &mut bytes);
    Bytes::from(bytes)
}

/// Size, place and checksum of a half of a row.
fn checked(kind: &'static str, run: RunId, place: [u64; 3], body: &Bytes, crc: u32) -> Result<(), Failed> {
    let [_, from, to] = place;
    let corrupt = |why: String| Err(Failed::Corrupt { run, seq: from, record: kind, why });
    if body.len() > 2 * limits::RECORD_BYTES {
        return corrupt(format!("{} bytes, more than any row has", body.len()));
    }
    if seal(kind, run, place, body) != crc {
        return corrupt("checksum differs".into());
    }
    if from == 0 || to < from {
        return corrupt(format!("{from}..={to} are no seqs"));
    }
    Ok(())
}

fn seal(kind: &str, run: RunId, place: [u64; 3], body: &[u8]) -> u32 {
    let mut frame = [0u8; 8 + 16 + 24];
    frame[..kind.len()].copy_from_slice(kind.as_bytes());
    frame[8..24].copy_from_slice(run.0.as_bytes());
    for (slot, number) in frame[24..].chunks_exact_mut(8).zip(place) {
        slot.copy_from_slice(&number.to_le_bytes());
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(&frame);
    crc.update(body);
    crc.finalize()
}

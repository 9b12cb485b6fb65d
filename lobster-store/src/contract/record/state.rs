//! Records of state: what steps changed, and the snapshot that replaces those changes.
//!
//! Invariant: what a manifest names is found under its id with its checksum, or the whole snapshot is refused.

use super::{Attempt, StepName, checked, element, seal};
use crate::contract::{
    error::Failed,
    ids::{Epoch, RunId, Seq},
    limits,
};
use bytes::{BufMut, Bytes};
use prost::Message;

/// One thing that a fold replaces.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Change {
    /// The thing.
    #[prost(oneof = "Changed", tags = "1, 2")]
    pub changed: Option<Changed>,
    /// Its seq: that of the delta it came with, if it came with one.
    #[prost(uint64, tag = "15")]
    pub seq: u64,
}

/// What a change records.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(clippy::large_enum_variant, reason = "a change is short-lived; a box would only complicate its makers and readers")]
pub enum Changed {
    /// A step changed a state.
    #[prost(message, tag = "1")]
    State(StateChange),
    /// A round of a repeated step.
    #[prost(message, tag = "2")]
    Round(Round),
}

/// Body of a row of changes: in seq order; several may share a seq.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Changes {
    /// The changes.
    #[prost(message, repeated, tag = "1")]
    pub changes: Vec<Change>,
}

/// What one step changed of one state.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StateChange {
    /// Name of the state.
    #[prost(string, tag = "1")]
    pub state: String,
    /// Version of its schema.
    #[prost(uint32, tag = "2")]
    pub version: u32,
    /// How its values are encoded.
    #[prost(enumeration = "super::Codec", tag = "3")]
    pub codec: i32,
    /// Nothing of what was recorded before stays: the members are all there is.
    #[prost(bool, tag = "4")]
    pub whole: bool,
    /// The members that changed.
    #[prost(message, repeated, tag = "5")]
    pub members: Vec<MemberChange>,
}

/// What changed of one member.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MemberChange {
    /// Name of the member.
    #[prost(string, tag = "1")]
    pub member: String,
    /// Nothing of what was recorded of it before stays.
    #[prost(bool, tag = "2")]
    pub whole: bool,
    /// What changed.
    #[prost(oneof = "What", tags = "3, 4, 5")]
    pub what: Option<What>,
}

/// Content of a member, or what is new of it.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum What {
    /// A value takes the place of the one before.
    #[prost(bytes = "bytes", tag = "3")]
    Value(Bytes),
    /// Items follow those before.
    #[prost(message, tag = "4")]
    Items(Items),
    /// Entries take the place of those with the same keys.
    #[prost(message, tag = "5")]
    Entries(Entries),
}

/// Items of a log, in order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Items {
    /// Encoded items.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub items: Vec<Bytes>,
}

/// Entries of a table, in the order of their encoded keys.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Entries {
    /// The entries.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
}

/// One entry of a table.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entry {
    /// The encoded key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The encoded value; absent: there is no such key any more.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub value: Option<Bytes>,
}

/// How far a repeated step has come. Replaces what was recorded before of the same step.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Round {
    /// Which step.
    #[prost(message, optional, tag = "1")]
    pub step: Option<StepName>,
    /// Rounds done.
    #[prost(uint64, tag = "2")]
    pub done: u64,
    /// The last failed attempt of the next round.
    #[prost(message, optional, tag = "3")]
    pub attempt: Option<Attempt>,
}

/// A snapshot: what is current at a seq, and where it is found.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Manifest {
    /// Everything up to here is in it.
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    /// Mark of the row that ends there.
    #[prost(fixed32, tag = "2")]
    pub mark: u32,
    /// Rows of deltas up to there. They stay.
    #[prost(uint64, tag = "3")]
    pub rows: u64,
    /// [`digest`] of their checksums, in seq order.
    #[prost(fixed32, tag = "4")]
    pub digest: u32,
    /// The states, by name.
    #[prost(message, repeated, tag = "5")]
    pub states: Vec<StateParts>,
    /// Repeated steps that are under way.
    #[prost(message, repeated, tag = "6")]
    pub rounds: Vec<Round>,
    /// Id of the next part.
    #[prost(uint64, tag = "7")]
    pub next_part: u64,
}

/// Where a state is found.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StateParts {
    /// Name of the state.
    #[prost(string, tag = "1")]
    pub state: String,
    /// Version of its schema.
    #[prost(uint32, tag = "2")]
    pub version: u32,
    /// How its values are encoded.
    #[prost(enumeration = "super::Codec", tag = "3")]
    pub codec: i32,
    /// Its members, by name.
    #[prost(message, repeated, tag = "4")]
    pub members: Vec<MemberParts>,
}

/// Where a member is found: its parts, the oldest first.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MemberParts {
    /// Name of the member.
    #[prost(string, tag = "1")]
    pub member: String,
    /// Its parts.
    #[prost(message, repeated, tag = "2")]
    pub parts: Vec<PartRef>,
}

/// A part, as its manifest knows it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PartRef {
    /// Its id within the run; never used again.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its checksum.
    #[prost(fixed32, tag = "2")]
    pub crc: u32,
    /// Its encoded size.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// Parts of one segment share this: they are merged together.
    #[prost(uint64, tag = "4")]
    pub segment: u64,
}

/// A piece of a member: a value, items, or entries.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Part {
    /// Its content.
    #[prost(oneof = "Whole", tags = "1, 2, 3")]
    pub whole: Option<Whole>,
}

/// Content of a part.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Whole {
    /// The value.
    #[prost(bytes = "bytes", tag = "1")]
    Value(Bytes),
    /// Items that follow those of earlier parts.
    #[prost(message, tag = "2")]
    Items(Items),
    /// Entries that take the place of those of earlier parts.
    #[prost(message, tag = "3")]
    Entries(Entries),
}

impl Part {
    /// Encodes it as part `id` of `run`; returns its bytes and checksum.
    pub fn seal(&self, run: RunId, id: u64) -> super::Sealed {
        let body = Bytes::from(self.encode_to_vec());
        let crc = seal("part", run, [id, 0, 0], &body);
        super::Sealed { body, crc }
    }

    /// Checks size, place and checksum of part `id` of `run`, and decodes it.
    ///
    /// # Errors
    /// [`Failed::Corrupt`] naming run and record.
    pub fn open(run: RunId, id: u64, sealed: &super::Sealed) -> Result<Whole, Failed> {
        let corrupt = |why: String| Failed::Corrupt { run, seq: 0, record: "part", why: format!("part {id}: {why}") };
        if sealed.body.len() > 2 * limits::RECORD_BYTES {
            return Err(corrupt(format!("{} bytes, more than any part has", sealed.body.len())));
        }
        if seal("part", run, [id, 0, 0], &sealed.body) != sealed.crc {
            return Err(corrupt("checksum differs".into()));
        }
        let part = Part::decode(sealed.body.clone()).map_err(|error| corrupt(error.to_string()))?;
        part.whole.ok_or_else(|| corrupt("a part of a kind this code does not know".into()))
    }
}

/// Checksum of the changes of a row.
pub fn change_crc(run: RunId, epoch: Epoch, from: Seq, to: Seq, body: &[u8]) -> u32 {
    seal("change", run, [epoch, from, to], body)
}

/// Checks the changes of a row and decodes them.
///
/// # Errors
/// [`Failed::Corrupt`] naming run and seq: wrong size, checksum, encoding or order, or a change of an unknown kind.
pub fn open_changes(run: RunId, epoch: Epoch, from: Seq, to: Seq, body: &Bytes, crc: u32) -> Result<Vec<(Seq, Changed)>, Failed> {
    let corrupt = |why: String| Failed::Corrupt { run, seq: from, record: "change", why };
    checked("change", run, [epoch, from, to], body, crc)?;
    let changes = Changes::decode(body.clone()).map_err(|error| corrupt(error.to_string()))?.changes;
    let mut last = from;
    let changes = changes.into_iter().map(|change| {
        if !(last..=to).contains(&change.seq) {
            return Err(corrupt(format!("a change of seq {} where {last}..={to} belong", change.seq)));
        }
        last = change.seq;
        let known = match change.changed {
            Some(Changed::State(state)) if state.members.iter().all(|member| member.what.is_some()) => {
                Some(Changed::State(state))
            }
            Some(Changed::Round(round)) if round.step.is_some() => Some(Changed::Round(round)),
            _ => None,
        };
        Ok((change.seq, known.ok_or_else(|| corrupt("a change of a kind this code does not know".into()))?))
    });
    changes.collect()
}

/// Encodes one change as an element of [`Changes`]: rows are these bytes put behind one another.
pub fn encode_change(seq: Seq, changed: Changed) -> Bytes {
    element(&Change { changed: Some(changed), seq })
}

/// The same, behind what is there: a large value is copied once, into its row.
pub fn put_change(seq: Seq, changed: Changed, row: &mut impl BufMut) {
    prost::encoding::message::encode(1, &Change { changed: Some(changed), seq }, row);
}

/// A running digest of checksums: of those before, and the next one.
pub fn digest(before: u32, next: u32) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&before.to_le_bytes());
    crc.update(&next.to_le_bytes());
    crc.finalize()
}

//! Records and offers as an engine would make them, each true to its seq, so that what comes back can be checked.
//!
//! Invariant: every row made here passes `open_deltas` and `open_changes`, and says which seqs it was made for.

use crate::contract::{
    Batch, Epoch, Fold, Grant, Incarnation, Offer, Row, RunId, RunState, Sealed, Seq, Snapshot, StoredPart, StoredRow, Then,
    Wall,
    record::{
        Came, Changed, Codec, Ending, Fact, Fate, Happened, Input, Intent, Items, Kind, Manifest, MemberChange, MemberParts,
        Outcome, Part, PartRef, Payload, StateChange, StateParts, StepName, StepResult, What, Which, Whole, encode_change,
        encode_delta, open_changes, open_deltas,
    },
};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A JSON payload.
pub(super) fn payload(data: impl Into<Bytes>) -> Payload {
    Payload { codec: Codec::Json.into(), data: data.into() }
}

/// An input of `run`.
pub(super) fn input(run: RunId, data: impl Into<Bytes>) -> Sealed {
    Sealed::new(Kind::Input, run, &Input { payload: Some(payload(data)) })
}

/// An outcome of `run`.
pub(super) fn outcome(run: RunId, word: &str) -> Sealed {
    Sealed::new(Kind::Outcome, run, &Outcome { ending: Some(Ending::Cancelled(word.to_owned())) })
}

/// The word of an [`outcome`].
pub(super) fn word(run: RunId, outcome: &Sealed) -> String {
    match outcome.open::<Outcome>(Kind::Outcome, run).expect("an outcome comes back as it was stored").ending {
        Some(Ending::Cancelled(word)) => word,
        other => panic!("an outcome with a word was stored, not {other:?}"),
    }
}

/// A verdict on an intent of `run`.
pub(super) fn fate(run: RunId, forced: bool) -> Sealed {
    Sealed::new(Kind::Verdict, run, &Fate { happened: Some(Happened::Closed(true)), forced })
}

/// The step whose record has this seq.
pub(super) fn step(seq: Seq) -> StepName {
    StepName { scope: String::new(), name: "step".to_owned(), which: Some(Which::Key(seq.to_string())) }
}

fn result(seq: Seq, data: Bytes) -> Fact {
    let came = Some(Came::Value(payload(data)));
    Fact::Result(StepResult { step: Some(step(seq)), came, attempts: 1, ..StepResult::default() })
}

/// The state that every change here is of, and its member: a log.
const STATE: &str = "basket";
const LOG: &str = "lines";

/// An item of the log that says its seq.
fn item(seq: Seq) -> Changed {
    let what = Some(What::Items(Items { items: vec![seq.to_string().into()] }));
    let members = vec![MemberChange { member: LOG.to_owned(), whole: false, what }];
    Changed::State(StateChange { state: STATE.to_owned(), version: 1, codec: Codec::Json.into(), whole: false, members })
}

fn row(run: RunId, epoch: Epoch, from: Seq, to: Seq, facts: Vec<(Seq, Fact)>, changed: Vec<Seq>) -> Row {
    let body = |records: Vec<Bytes>| (!records.is_empty()).then(|| Bytes::from(records.concat()));
    let deltas = body(facts.into_iter().map(|(seq, fact)| encode_delta(seq, fact)).collect());
    let changes = body(changed.into_iter().map(|seq| encode_change(seq, item(seq))).collect());
    Row::new(run, epoch, from, to, deltas, changes)
}

fn results(from: Seq, count: u64) -> Vec<(Seq, Fact)> {
    (from..from + count).map(|seq| (seq, result(seq, seq.to_string().into()))).collect()
}

/// An offer by the holder of `grant`, so far without rows, at the tail of the grant.
pub(super) fn offer(grant: &Grant) -> Offer {
    Offer { run: grant.run, epoch: grant.epoch, head: grant.tail + 1, rows: Vec::new(), progress: false, then: None }
}

/// Steps to a complete offer.
pub(super) trait Build: Sized {
    /// From the seq after `tail` instead.
    fn after(self, tail: Seq) -> Self;
    /// With a row of `count` results; that is progress.
    fn results(self, count: u64) -> Self;
    /// With a row of `count` changes and nothing else.
    fn changes(self, count: u64) -> Self;
    /// With a row of `count` results, each with a change; that is progress.
    fn both(self, count: u64) -> Self;
    /// With a row of a result and, behind it, a change; that is progress.
    fn either(self) -> Self;
    /// With a row that holds one result of this value.
    fn value(self, data: impl Into<Bytes>) -> Self;
    /// With an intent in a row of its own.
    fn intent(self) -> Self;
    /// Then evicted.
    fn evict(self, due: Wall, wake: u64) -> Self;
    /// Then released.
    fn release(self) -> Self;
    /// Then held.
    fn hold(self, wake: u64) -> Self;
    /// Then ended.
    fn finish(self, state: RunState, at: Wall) -> Self;
    /// As a batch of its own, synced.
    fn synced(self, incarnation: Incarnation) -> Batch;
    /// As a batch of its own, relaxed.
    fn relaxed(self, incarnation: Incarnation) -> Batch;
}

fn next(offer: &Offer) -> Seq {
    offer.rows.last().map_or(offer.head, |row| row.to + 1)
}

impl Build for Offer {
    fn after(mut self, tail: Seq) -> Self {
        assert!(self.rows.is_empty(), "the place of an offer is chosen before its rows");
        self.head = tail + 1;
        self
    }
    fn results(mut self, count: u64) -> Self {
        let from = next(&self);
        self.rows.push(row(self.run, self.epoch, from, from + count - 1, results(from, count), Vec::new()));
        self.progress = true;
        self
    }
    fn changes(mut self, count: u64) -> Self {
        let from = next(&self);
        self.rows.push(row(self.run, self.epoch, from, from + count - 1, Vec::new(), (from..from + count).collect()));
        self
    }
    fn both(mut self, count: u64) -> Self {
        let from = next(&self);
        self.rows.push(row(self.run, self.epoch, from, from + count - 1, results(from, count), (from..from + count).collect()));
        self.progress = true;
        self
    }
    fn either(mut self) -> Self {
        let from = next(&self);
        self.rows.push(row(self.run, self.epoch, from, from + 1, results(from, 1), vec![from + 1]));
        self.progress = true;
        self
    }
    fn value(mut self, data: impl Into<Bytes>) -> Self {
        let from = next(&self);
        self.rows.push(row(self.run, self.epoch, from, from, vec![(from, result(from, data.into()))], Vec::new()));
        self.progress = true;
        self
    }
    fn intent(mut self) -> Self {
        let from = next(&self);
        let intent = Intent { step: Some(step(from)), epoch: self.epoch, attempt: 1, ..Intent::default() };
        self.rows.push(row(self.run, self.epoch, from, from, vec![(from, Fact::Intent(intent))], Vec::new()).intent());
        self
    }
    fn evict(mut self, due: Wall, wake: u64) -> Self {
        self.then = Some(Then::Evict { due, wake, reason: "waits".to_owned() });
        self
    }
    fn release(mut self) -> Self {
        self.then = Some(Then::Release);
        self
    }
    fn hold(mut self, wake: u64) -> Self {
        self.then = Some(Then::Hold { reason: "a person must look".to_owned(), wake });
        self
    }
    fn finish(mut self, state: RunState, at: Wall) -> Self {
        self.then = Some(Then::Finish { state, outcome: outcome(self.run, "finished"), at });
        self
    }
    fn synced(self, incarnation: Incarnation) -> Batch {
        Batch { incarnation, synced: true, patient: None, offers: vec![self] }
    }
    fn relaxed(self, incarnation: Incarnation) -> Batch {
        Batch { incarnation, synced: false, patient: None, offers: vec![self] }
    }
}

/// The seqs a stored row of deltas was made for, after all its checks.
pub(super) fn seqs(run: RunId, row: &StoredRow) -> Vec<Seq> {
    let facts = open_deltas(run, row.epoch, row.from, row.to, &row.sealed.body, row.sealed.crc);
    let name = |fact: Fact| match fact {
        Fact::Result(StepResult { step, .. }) => step,
        Fact::Intent(Intent { step, .. }) => step,
        other => panic!("only results and intents were stored, not {other:?}"),
    };
    let seq = |(seq, fact): (Seq, Fact)| match name(fact).and_then(|step| step.which) {
        Some(Which::Key(key)) => assert_eq!(key, seq.to_string(), "a step made here is keyed by its seq"),
        other => panic!("a step made here is keyed by its seq, not {other:?}"),
    };
    facts
        .expect("a row comes back as it was stored")
        .into_iter()
        .map(|delta| {
            let at = delta.0;
            seq(delta);
            at
        })
        .collect()
}

/// The seqs a stored row of changes was made for, after all its checks.
pub(super) fn changed(run: RunId, row: &StoredRow) -> Vec<Seq> {
    let changes = open_changes(run, row.epoch, row.from, row.to, &row.sealed.body, row.sealed.crc);
    let seq = |(seq, changed): (Seq, Changed)| {
        assert_eq!(changed, item(seq), "a change made here says its seq");
        seq
    };
    changes.expect("a row comes back as it was stored").into_iter().map(seq).collect()
}

/// Part `id` of the log of `run`.
pub(super) fn part(run: RunId, id: u64, data: impl Into<Bytes>) -> StoredPart {
    let whole = Some(Whole::Items(Items { items: vec![data.into()] }));
    StoredPart { id, sealed: Part { whole }.seal(run, id) }
}

/// A manifest that names these parts.
fn manifest<'p>(run: RunId, seq: Seq, parts: impl IntoIterator<Item = &'p StoredPart>) -> Sealed {
    let refer =
        |part: &StoredPart| PartRef { id: part.id, crc: part.sealed.crc, bytes: part.sealed.body.len() as u64, segment: part.id };
    let parts: Vec<_> = parts.into_iter().map(refer).collect();
    let next_part = parts.iter().map(|part| part.id + 1).max().unwrap_or(1);
    let members = vec![MemberParts { member: LOG.to_owned(), parts }];
    let states = vec![StateParts { state: STATE.to_owned(), version: 1, codec: Codec::Json.into(), members }];
    Sealed::new(Kind::Manifest, run, &Manifest { seq, states, next_part, ..Manifest::default() })
}

/// A fold by the holder of `grant`, from the snapshot at `base` (0: there is none) to one at `seq` of these new parts.
pub(super) fn fold(grant: &Grant, incarnation: Incarnation, base: Seq, seq: Seq, parts: Vec<StoredPart>) -> Fold {
    let (run, epoch, manifest) = (grant.run, grant.epoch, manifest(grant.run, seq, &parts));
    Fold { incarnation, run, epoch, base, seq, manifest, parts, dropped: Vec::new() }
}

/// The same with older parts that stay, and without those that go.
pub(super) fn going_on(fold: Fold, kept: &[StoredPart], dropped: &[u64]) -> Fold {
    let manifest = manifest(fold.run, fold.seq, kept.iter().chain(&fold.parts));
    Fold { manifest, dropped: dropped.to_vec(), ..fold }
}

/// Seq and part ids of a stored snapshot, after all its checks: its manifest names exactly the parts that are there.
pub(super) fn taken(run: RunId, snapshot: &Snapshot) -> (Seq, Vec<u64>) {
    let manifest: Manifest = snapshot.manifest.open(Kind::Manifest, run).expect("a manifest comes back as it was stored");
    assert_eq!(manifest.seq, snapshot.seq, "a manifest lies under its seq");
    let named = manifest.states.iter().flat_map(|state| &state.members).flat_map(|member| &member.parts);
    let named: BTreeMap<_, _> = named.map(|part| (part.id, part.crc)).collect();
    let open = |part: &StoredPart| {
        Part::open(run, part.id, &part.sealed).expect("a part comes back as it was stored");
        (part.id, part.sealed.crc)
    };
    let found: Vec<_> = snapshot.parts.iter().map(open).collect();
    assert_eq!(found, named.into_iter().collect::<Vec<_>>(), "the parts are those that the manifest names, by id");
    (snapshot.seq, found.into_iter().map(|(id, _)| id).collect())
}

//! Records and offers as an engine would make them, each true to its seq, so that what comes back can be checked.
//!
//! Invariant: every row made here passes `open_row`, and says which seq it was made for.

use crate::contract::{
    Batch, Epoch, Grant, Incarnation, Offer, Row, RunId, RunState, Sealed, Seq, StoredRow, Then, Wall,
    record::{
        Came, Codec, Ending, Fact, Fate, Happened, Input, Intent, Kind, Outcome, Payload, StepName, StepResult, Which,
        encode_delta, open_deltas,
    },
};
use bytes::Bytes;

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

fn row(run: RunId, epoch: Epoch, from: Seq, facts: Vec<Fact>, intent: bool) -> Row {
    let to = from + facts.len() as u64 - 1;
    let body: Bytes = (from..).zip(facts).flat_map(|(seq, fact)| encode_delta(seq, fact)).collect::<Vec<u8>>().into();
    Row { intent, ..Row::new(run, epoch, from, to, Some(body), None) }
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
        let facts = (from..from + count).map(|seq| result(seq, seq.to_string().into())).collect();
        self.rows.push(row(self.run, self.epoch, from, facts, false));
        self.progress = true;
        self
    }
    fn value(mut self, data: impl Into<Bytes>) -> Self {
        let from = next(&self);
        self.rows.push(row(self.run, self.epoch, from, vec![result(from, data.into())], false));
        self.progress = true;
        self
    }
    fn intent(mut self) -> Self {
        let from = next(&self);
        let intent = Intent { step: Some(step(from)), epoch: self.epoch, attempt: 1, ..Intent::default() };
        self.rows.push(row(self.run, self.epoch, from, vec![Fact::Intent(intent)], true));
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
        Batch { incarnation, synced: true, offers: vec![self] }
    }
    fn relaxed(self, incarnation: Incarnation) -> Batch {
        Batch { incarnation, synced: false, offers: vec![self] }
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

//! A recording folded into memory: what the body is to see again, what is known of each step, and the states.
//!
//! Invariant: pure; a recording that does not add up becomes a named error, never a shorter image.

use crate::state::{
    content::StateContent,
    plan::{Folding, Tally},
};
use lobster_store::contract::{
    Epoch, Failed, Mark, Recording, RunId, Sealed, Seq, Snapshot, StoredRow,
    record::{
        self, Attempt, Came, Changed, Fact, Fate, Happened, Input, Intent, Kind, Manifest, Part, Payload, Round, StepName,
        StepResult, Window,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    hash::{BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

/// Why a call is in doubt that was armed and not made.
pub(crate) const LOST: &str = "the store may have lost that it was made";

/// What a body is shown, in seq order.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub step: Arc<StepName>,
    pub came: Came,
}

/// What is known of one step without a seen result, or with a key. Rare parts are boxed: a resume makes one of these for each of ten
/// thousand results.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Its result, and the seq of it.
    pub result: Option<(Seq, Came)>,
    /// The last intent without a result, and the seq of it.
    pub intent: Option<Box<(Seq, Intent)>>,
    /// The last failed attempt, and the seq of it.
    pub attempt: Option<Box<(Seq, Attempt)>>,
    /// The windows that successors fixed for the last intent, one a boot.
    pub windows: Vec<Window>,
    /// The body dropped its call.
    pub detached: bool,
    /// The body asked for it again, by key, and was shown its result.
    pub attached: bool,
    /// Somebody's word on the last intent.
    pub verdict: Option<Box<Fate>>,
    /// In this life: its result was shown.
    pub shown: bool,
    /// In this life: its call was dropped (again).
    pub dropped_again: bool,
}

impl Known {
    /// Is it unknown whether the last call happened? The intent, if the process died in it or it ended in doubt.
    pub fn in_doubt(&self) -> Option<&(Seq, Intent)> {
        let intent = self.intent.as_deref()?;
        match self.attempt.as_deref() {
            _ if self.result.is_some() => None,
            Some((seq, attempt)) if *seq > intent.0 && !attempt.in_doubt => None,
            _ => Some(intent),
        }
    }
    /// Did nobody see how the last call ended? Its process died in it, or took an intent back that an earlier call had left in doubt.
    pub fn unseen(&self) -> bool {
        let Some((intent, _)) = self.intent.as_deref() else { return false };
        let after = self.attempt.as_deref().filter(|(attempt, _)| attempt > intent);
        self.result.is_none() && after.is_none_or(|(_, attempt)| attempt.failure.is_none())
    }
}

/// By step. Hashed, because a resume looks ten thousand steps up several times; always alike, so that a simulation repeats itself.
pub(crate) type BySteps<T> = HashMap<Arc<StepName>, T, BuildHasherDefault<DefaultHasher>>;

/// A recording in memory.
#[derive(Debug, Default)]
pub(crate) struct Image {
    pub tail: Seq,
    pub mark: Mark,
    /// Of the rows of deltas up to the tail.
    pub tally: Tally,
    pub input: Payload,
    /// What is recorded of each state.
    pub states: BTreeMap<String, StateContent>,
    /// How far repeated steps without a result have come.
    pub rounds: BTreeMap<Arc<StepName>, u64>,
    /// The snapshot, and what came after it.
    pub folding: Folding,
    /// What the body has yet to be shown again.
    pub replay: VecDeque<(Seq, Shown)>,
    /// Steps with something to know beyond their place in `replay`.
    pub known: BySteps<Known>,
}

/// Folds a recording, checking every record of it in order.
///
/// # Errors
/// [`Failed::Corrupt`], naming run, seq and record.
pub(crate) fn fold(run: RunId, recording: &Recording) -> Result<Image, Failed> {
    let input = recording.input.open::<Input>(Kind::Input, run)?.payload.unwrap_or_default();
    let mut image = Image { input, ..Image::default() };
    let mut rows = Rows::of(run, recording);
    if let Some(snapshot) = &recording.snapshot {
        image.snapshot(run, snapshot, &mut rows)?;
    }
    while let Some(row) = rows.next(image.tail)? {
        (image.tail, image.mark) = (row.to, row.mark);
        image.tally.add(row.deltas_crc);
        image.expect(row.found.len());
        for (seq, found) in row.found {
            let taken = match found {
                Found::Fact(fact) => image.take(seq, fact),
                Found::Changed(changed) => image.change(seq, changed),
            };
            taken.map_err(|why| Failed::Corrupt { run, seq, record: "delta", why })?;
        }
    }
    if (image.tail, image.mark) != (recording.tail, recording.mark) {
        let why = format!("the last row does not fit the run's tail {}", recording.tail);
        return Err(Failed::Corrupt { run, seq: image.tail, record: "delta", why });
    }
    for verdict in &recording.verdicts {
        let fate: Fate = verdict.fate.open(Kind::Verdict, run)?;
        if let Some(known) = image.spoken_of(verdict.intent, &fate) {
            known.verdict = Some(Box::new(fate));
        }
    }
    // A result that nobody was shown live must not be shown on the way back either.
    let detached = image.known.values().filter(|known| known.detached);
    let unseen: BTreeSet<Seq> = detached.filter_map(|known| Some(known.result.as_ref()?.0)).collect();
    if !unseen.is_empty() {
        image.replay.retain(|(seq, _)| !unseen.contains(seq));
    }
    Ok(image)
}

/// The facts of a recording, in seq order.
///
/// # Errors
/// [`Failed::Corrupt`], naming run and seq.
pub(crate) fn facts(run: RunId, recording: &Recording) -> Result<Vec<(Seq, Fact)>, Failed> {
    let mut facts = Vec::new();
    for row in &recording.deltas {
        facts.extend(record::open_deltas(run, row.epoch, row.from, row.to, &row.sealed.body, row.sealed.crc)?);
    }
    Ok(facts)
}

/// Rows of a recording, in seq order; what is stored of a row as deltas and as changes is put together again.
struct Rows<'r> {
    run: RunId,
    deltas: &'r [StoredRow],
    changes: &'r [StoredRow],
    epoch: Epoch,
}

/// A row that was checked.
struct Row {
    to: Seq,
    mark: Mark,
    deltas_crc: Option<u32>,
    found: Vec<(Seq, Found)>,
}

enum Found {
    Fact(Fact),
    Changed(Changed),
}

impl<'r> Rows<'r> {
    fn of(run: RunId, recording: &'r Recording) -> Self {
        Self { run, deltas: &recording.deltas, changes: &recording.changes, epoch: 0 }
    }

    /// The row that follows `tail`.
    fn next(&mut self, tail: Seq) -> Result<Option<Row>, Failed> {
        let run = self.run;
        let corrupt = |seq, why: String| Failed::Corrupt { run, seq, record: "delta", why };
        let (deltas, changes) = (self.deltas.first(), self.changes.first());
        let Some(from) = deltas.into_iter().chain(changes).map(|row| row.from).min() else { return Ok(None) };
        if from != tail + 1 {
            return Err(corrupt(tail + 1, format!("missing: the next row begins at {from}")));
        }
        let deltas = deltas.filter(|row| row.from == from);
        let changes = changes.filter(|row| row.from == from);
        self.deltas = &self.deltas[usize::from(deltas.is_some())..];
        self.changes = &self.changes[usize::from(changes.is_some())..];
        let Some(place) = deltas.or(changes) else { return Ok(None) };
        if let (Some(deltas), Some(changes)) = (deltas, changes)
            && (deltas.to, deltas.epoch) != (changes.to, changes.epoch)
        {
            return Err(corrupt(from, "the deltas and the changes of a row are of different places".into()));
        }
        let (to, epoch) = (place.to, place.epoch);
        if epoch < self.epoch {
            return Err(corrupt(from, format!("epoch {epoch} after epoch {}", self.epoch)));
        }
        self.epoch = epoch;
        let mut found: Vec<(Seq, Found)> = Vec::new();
        if let Some(Sealed { body, crc }) = changes.map(|row| &row.sealed) {
            let changes = record::open_changes(run, epoch, from, to, body, *crc)?;
            found.extend(changes.into_iter().map(|(seq, changed)| (seq, Found::Changed(changed))));
        }
        if let Some(Sealed { body, crc }) = deltas.map(|row| &row.sealed) {
            let facts = record::open_deltas(run, epoch, from, to, body, *crc)?;
            found.extend(facts.into_iter().map(|(seq, fact)| (seq, Found::Fact(fact))));
        }
        // Changes come before the fact that they were recorded with: the sort is stable.
        found.sort_by_key(|(seq, _)| *seq);
        let seqs = found.chunk_by(|(a, _), (b, _)| a == b).count() as u64;
        if seqs != to - from + 1 {
            return Err(corrupt(from, format!("{seqs} seqs with anything where {from}..={to} belong")));
        }
        let (deltas_crc, changes_crc) = (deltas.map(|row| row.sealed.crc), changes.map(|row| row.sealed.crc));
        Ok(Some(Row { to, mark: record::row_mark(deltas_crc, changes_crc), deltas_crc, found }))
    }

    /// Deltas of rows up to `seq`, whose changes a snapshot covers.
    fn covered(&mut self, seq: Seq) -> Result<(Tally, Vec<(Seq, Fact)>), Failed> {
        let run = self.run;
        let corrupt = |seq, why: String| Failed::Corrupt { run, seq, record: "delta", why };
        let (mut kept, mut facts, mut last) = (Tally::default(), Vec::new(), 0);
        while let Some((row, rest)) = self.deltas.split_first()
            && row.from <= seq
        {
            if row.from <= last || row.to > seq || row.epoch < self.epoch {
                return Err(corrupt(
                    row.from,
                    format!("a row {}..={} of epoch {} does not belong here", row.from, row.to, row.epoch),
                ));
            }
            let Sealed { body, crc } = &row.sealed;
            facts.extend(record::open_deltas(run, row.epoch, row.from, row.to, body, *crc)?);
            kept.add(Some(*crc));
            (last, self.epoch, self.deltas) = (row.to, row.epoch, rest);
        }
        if let Some(row) = self.changes.first()
            && row.from <= seq
        {
            return Err(corrupt(row.from, format!("a change that the snapshot at {seq} covers")));
        }
        Ok((kept, facts))
    }
}

impl Tally {
    /// And a row with these deltas, if it has any.
    pub fn add(&mut self, deltas: Option<u32>) {
        if let Some(crc) = deltas {
            self.rows += 1;
            self.digest = record::digest(self.digest, crc);
        }
    }
}

impl Image {
    /// Begins with a snapshot: its parts, and the deltas that it says are there.
    fn snapshot(&mut self, run: RunId, snapshot: &Snapshot, rows: &mut Rows) -> Result<(), Failed> {
        let manifest: Manifest = snapshot.manifest.open(Kind::Manifest, run)?;
        let corrupt = |why: String| Failed::Corrupt { run, seq: manifest.seq, record: "manifest", why };
        if manifest.seq != snapshot.seq || manifest.seq == 0 {
            return Err(corrupt(format!("it is of seq {}, and stored as of {}", manifest.seq, snapshot.seq)));
        }
        let (kept, facts) = rows.covered(manifest.seq)?;
        if kept != (Tally { rows: manifest.rows, digest: manifest.digest }) {
            let Tally { rows, digest } = kept;
            return Err(corrupt(format!(
                "{} rows of deltas belong to it, {rows} with digest {digest:08x} are there",
                manifest.rows
            )));
        }
        self.expect(facts.len());
        for (seq, fact) in facts {
            self.take(seq, fact).map_err(|why| Failed::Corrupt { run, seq, record: "delta", why })?;
        }
        let mut parts: BTreeMap<u64, &Sealed> = snapshot.parts.iter().map(|part| (part.id, &part.sealed)).collect();
        for state in &manifest.states {
            let content = StateContent { version: state.version, codec: state.codec, ..StateContent::default() };
            let content = self.states.entry(state.state.clone()).or_insert(content);
            for member in &state.members {
                for part in &member.parts {
                    let found = parts.remove(&part.id).filter(|sealed| sealed.crc == part.crc);
                    let sealed = found.ok_or_else(|| corrupt(format!("part {} is missing", part.id)))?;
                    content.part(&member.member, Part::open(run, part.id, sealed)?).map_err(&corrupt)?;
                }
            }
        }
        for round in &manifest.rounds {
            self.round(round).map_err(&corrupt)?;
        }
        (self.tail, self.mark, self.tally) = (manifest.seq, manifest.mark, kept);
        self.folding = Folding::of(manifest);
        Ok(())
    }

    /// What a verdict on the intent at this seq speaks of. Of nothing, if that was resolved or armed again meanwhile; but the late result of
    /// a call whose step was then armed and not called is its result all the same.
    fn spoken_of(&mut self, intent: Seq, fate: &Fate) -> Option<&mut Known> {
        let late = match &fate.happened {
            Some(Happened::Result(StepResult { step: Some(step), generation, .. })) => Some((step, *generation)),
            _ => None,
        };
        let meant = |(name, known): &(&Arc<StepName>, &mut Known)| {
            let again = |intent: &Intent| intent.lost > 0 && late == Some((&***name, intent.generation));
            known.in_doubt().is_some_and(|(seq, of)| *seq == intent || again(of))
        };
        self.known.iter_mut().find(meant).map(|(_, known)| known)
    }

    /// Makes room for so many facts: without, a long recording is moved again and again.
    fn expect(&mut self, facts: usize) {
        self.known.reserve(facts);
        self.replay.reserve(facts);
    }

    fn round(&mut self, round: &Round) -> Result<(), String> {
        let step = Arc::new(round.step.clone().ok_or("a round of no step")?);
        self.known.entry(step.clone()).or_default().attempt = round.attempt.clone().map(|attempt| Box::new((0, attempt)));
        self.rounds.insert(step, round.done);
        Ok(())
    }

    fn change(&mut self, seq: Seq, changed: Changed) -> Result<(), String> {
        match &changed {
            Changed::State(change) => self.states.entry(change.state.clone()).or_default().apply(change.clone())?,
            Changed::Round(round) => self.round(round)?,
        }
        self.folding.changed(seq, changed);
        Ok(())
    }

    fn take(&mut self, seq: Seq, fact: Fact) -> Result<(), String> {
        let named = |step: Option<StepName>| step.map(Arc::new).ok_or_else(|| "a fact about no step".to_owned());
        match fact {
            Fact::Result(result) => {
                let step = named(result.step)?;
                let came = result.came.ok_or("a result without a value")?;
                let known = self.known.entry(step.clone()).or_default();
                if known.result.is_some() {
                    return Err(format!("a second result of {}", crate::name::display(&step)));
                }
                known.result = Some((seq, came.clone()));
                if self.rounds.remove(&step).is_some() {
                    self.folding.ended(seq, step.clone());
                }
                self.replay.push_back((seq, Shown { step, came }));
            }
            Fact::Attempt(attempt) => {
                let step = named(attempt.step.clone())?;
                self.known.entry(step).or_default().attempt = Some(Box::new((seq, attempt)));
            }
            Fact::Intent(intent) => {
                let known = self.known.entry(named(intent.step.clone())?).or_default();
                if known.result.is_some() {
                    return Err("an intent after the result".into());
                }
                known.intent = Some(Box::new((seq, intent)));
                known.windows.clear();
            }
            Fact::Window(window) => {
                let known = self.known.entry(named(window.step.clone())?).or_default();
                if known.intent.as_deref().is_some_and(|(seq, _)| *seq == window.intent) {
                    known.windows.push(window);
                }
            }
            Fact::Detached(step) => self.known.entry(Arc::new(step)).or_default().detached = true,
            Fact::Attached(step) => {
                let step = Arc::new(step);
                let known = self.known.entry(step.clone()).or_default();
                known.attached = true;
                let (_, came) = known.result.clone().ok_or("attached to a call without a result")?;
                self.replay.push_back((seq, Shown { step, came }));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(attempt: Option<Attempt>) -> Known {
        let intent = Intent { attempt: 5, ..Intent::default() };
        Known { intent: Some(Box::new((9, intent))), attempt: attempt.map(|attempt| Box::new((10, attempt))), ..Known::default() }
    }

    #[test]
    fn an_intent_taken_back_is_no_failure_that_somebody_saw() {
        let back = Attempt { number: 5, in_doubt: true, ..Attempt::default() };
        assert!(known(None).unseen());
        assert!(known(Some(back.clone())).unseen(), "five deaths and an intent taken back do not exhaust the attempts");
        assert!(!known(Some(Attempt { failure: Some(record::Failure::default()), ..back })).unseen());
    }

    #[test]
    fn a_late_result_speaks_of_its_call_although_that_was_armed_and_not_called_meanwhile() {
        let step = |name: &str| Some(StepName { name: name.into(), ..StepName::default() });
        let intent = |name, lost| Fact::Intent(Intent { step: step(name), generation: 1, lost, ..Intent::default() });
        let late = |name, generation| Fate {
            happened: Some(Happened::Result(StepResult { step: step(name), generation, ..StepResult::default() })),
            forced: false,
        };
        let found = |lost, verdict: &Fate| {
            let mut image = Image::default();
            for (seq, fact) in [(1, intent("pay", 0)), (2, intent("pay", lost)), (3, intent("ship", 1))] {
                image.take(seq, fact).expect("they fit");
            }
            image.spoken_of(1, verdict).is_some()
        };
        assert!(found(1, &late("pay", 1)));
        assert!(!found(0, &late("pay", 1)), "it was called again");
        assert!(!found(1, &late("pay", 0)), "of another key");
        assert!(!found(1, &late("pray", 1)), "of another step");
        assert!(!found(1, &Fate { happened: Some(Happened::Closed(true)), forced: false }), "of that intent alone");
    }

    #[test]
    fn what_did_not_happen_is_not_in_doubt() {
        assert!(known(None).in_doubt().is_some());
        assert!(known(Some(Attempt { in_doubt: true, ..Attempt::default() })).in_doubt().is_some());
        assert!(known(Some(Attempt { in_doubt: false, ..Attempt::default() })).in_doubt().is_none());
    }
}

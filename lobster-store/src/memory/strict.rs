//! Checks on the caller, for [`Memory::strict`](super::Memory::strict).
//!
//! Invariant: a check only refuses; it never mends.

use crate::contract::{
    Batch, Failed, Fold, NewRun, Offer, Result, Row, Sealed, Seq, Then, limits,
    record::{Fact, Input, Kind, Manifest, Outcome, Part, open_changes, open_deltas, row_mark},
};
use std::collections::BTreeSet;

fn broken(rule: impl Into<String>) -> Failed {
    Failed::Internal(rule.into())
}

fn check(holds: bool, rule: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(broken(rule)) }
}

pub(super) fn runs(runs: &[NewRun]) -> Result<()> {
    check(runs.len() <= limits::SUBMIT_RUNS, "a submit is over its limit of runs")?;
    for run in runs {
        check(run.id.0.get_version_num() == 7, "a run's id is a UUIDv7")?;
        check(run.tags.is_sorted_by(|a, b| a < b), "tags are sorted and without doubles")?;
        check(run.tags.len() <= limits::TAGS, "a run is over its limit of tags")?;
        let names = run.tags.iter().chain(&run.key).chain([&run.task.task]);
        check(names.into_iter().all(|name| name.len() <= limits::NAME_BYTES), "a name is over its limit")?;
        run.input.open::<Input>(Kind::Input, run.id)?;
    }
    Ok(())
}

pub(super) fn batch(batch: &Batch) -> Result<()> {
    let mut seen = BTreeSet::new();
    check(batch.offers.len() <= limits::BATCH_RUNS, "a batch is over its limit of runs")?;
    for one in &batch.offers {
        check(seen.insert(one.run), "a batch has at most one offer per run")?;
        offer(one)?;
    }
    Ok(())
}

fn offer(offer: &Offer) -> Result<()> {
    check(offer.rows.len() <= 2, "an offer has at most two rows")?;
    check(offer.head > 0, "the first seq of a run is 1")?;
    let mut next = offer.head;
    for (at, row) in offer.rows.iter().enumerate() {
        check(row.from == next, "rows chain from the head of their offer")?;
        check(!row.intent || at + 1 == offer.rows.len(), "an intent is the last row of its offer")?;
        facts(offer, row)?;
        next = row.to.saturating_add(1);
    }
    match &offer.then {
        Some(Then::Finish { state, outcome, .. }) => {
            check(state.ended(), "a finish names an ended state")?;
            opens(outcome, offer)
        }
        Some(Then::Evict { .. } | Then::Release | Then::Hold { .. }) | None => Ok(()),
    }
}

fn opens(outcome: &Sealed, offer: &Offer) -> Result<()> {
    outcome.open::<Outcome>(Kind::Outcome, offer.run).map(|_| ())
}

fn facts(offer: &Offer, row: &Row) -> Result<()> {
    let facts = match &row.deltas {
        Some(half) => open_deltas(offer.run, offer.epoch, row.from, row.to, &half.body, half.crc)?,
        None => Vec::new(),
    };
    let changes = match &row.changes {
        Some(half) => open_changes(offer.run, offer.epoch, row.from, row.to, &half.body, half.crc)?,
        None => Vec::new(),
    };
    let mark = row_mark(row.deltas.as_ref().map(|half| half.crc), row.changes.as_ref().map(|half| half.crc));
    check(mark == row.mark, "the mark of a row is of what it holds")?;
    let seqs: BTreeSet<Seq> = facts.iter().map(|(seq, _)| *seq).chain(changes.iter().map(|(seq, _)| *seq)).collect();
    check(seqs.len() as u64 == row.to - row.from + 1, "each seq of a row has a delta or a change")?;
    check(row.deltas.is_none() || !facts.is_empty(), "a row without deltas has none at all")?;
    check(row.changes.is_none() || !changes.is_empty(), "a row without changes has none at all")?;
    let intents = facts.iter().filter(|(_, fact)| matches!(fact, Fact::Intent(_))).count();
    check(!row.intent || (intents == 1 && seqs.len() == 1), "the row of an intent holds the intent alone")?;
    check(row.intent || intents == 0, "an intent travels in a row of its own")?;
    check(offer.progress || !facts.iter().any(|(_, fact)| matches!(fact, Fact::Result(_))), "a step's result is progress")
}

pub(super) fn fold(fold: &Fold) -> Result<()> {
    let manifest: Manifest = fold.manifest.open(Kind::Manifest, fold.run)?;
    check(manifest.seq == fold.seq, "a manifest is of the seq of its fold")?;
    check(fold.seq > fold.base, "a fold goes on")?;
    let named: BTreeSet<(u64, u32)> = manifest
        .states
        .iter()
        .flat_map(|state| &state.members)
        .flat_map(|member| &member.parts)
        .map(|part| (part.id, part.crc))
        .collect();
    for part in &fold.parts {
        Part::open(fold.run, part.id, &part.sealed)?;
        check(named.contains(&(part.id, part.sealed.crc)), "a new part is named by its manifest")?;
        check(part.id < manifest.next_part, "ids of parts are not used again")?;
    }
    check(fold.dropped.iter().all(|id| !named.iter().any(|(named, _)| named == id)), "a part that is named is not dropped")
}

//! Recordings of states, read by the simulation itself: snapshot, what follows it, and whether all of it is there.
//!
//! Invariant: nothing of the engine's own reader is used here.

use super::facts::named;
use crate::{
    book::{Books, Page, Raw},
    history::{Event, Step},
};
use lobster_core::{
    RunId,
    store::contract::{
        Recording, Seq, Snapshot, StoredRow,
        record::{Changed, Fact, Kind, Manifest, Part, Round, StateChange, What, Whole, digest, open_changes, open_deltas},
    },
};
use std::collections::{BTreeMap, BTreeSet};

type Members = BTreeMap<String, BTreeMap<String, Raw>>;

/// What the store has of a run's states, as an event.
pub(crate) fn look(run: RunId, recording: &Recording) -> Event {
    Event::Read { run, tail: recording.tail, read: read(run, recording) }
}

fn add(members: &mut BTreeMap<String, Raw>, member: &str, what: What) -> Result<(), String> {
    match (members.get_mut(member), what) {
        (None | Some(Raw::Value(_)), What::Value(value)) => _ = members.insert(member.into(), Raw::Value(value.to_vec())),
        (None, What::Items(items)) => {
            members.insert(member.into(), Raw::Items(items.items.iter().map(|item| item.to_vec()).collect()));
        }
        (Some(Raw::Items(before)), What::Items(items)) => before.extend(items.items.iter().map(|item| item.to_vec())),
        (None, What::Entries(entries)) => {
            members.insert(member.into(), Raw::Entries(BTreeMap::new()));
            return add(members, member, What::Entries(entries));
        }
        (Some(Raw::Entries(before)), What::Entries(entries)) => {
            for entry in entries.entries {
                match entry.value {
                    Some(value) => _ = before.insert(entry.key.to_vec(), value.to_vec()),
                    None => _ = before.remove(&entry.key[..]),
                }
            }
        }
        (Some(before), what) => return Err(format!("member {member}: {what:?} follows {before:?}")),
    }
    Ok(())
}

fn read(run: RunId, recording: &Recording) -> Result<Books, String> {
    let mut states = Members::new();
    let mut rounds: BTreeMap<Step, (u64, u32)> = BTreeMap::new();
    let folded = recording.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq);
    if let Some(snapshot) = &recording.snapshot {
        begin(run, recording, snapshot, &mut states, &mut rounds)?;
    }
    let mut seqs = BTreeSet::new();
    let mut found: Vec<(Seq, Found)> = Vec::new();
    for row in &recording.changes {
        if row.from <= folded {
            return Err(format!("changes {}..={} are there, which the snapshot at {folded} covers", row.from, row.to));
        }
        let changes = open_changes(run, row.epoch, row.from, row.to, &row.sealed.body, row.sealed.crc);
        for (seq, changed) in changes.map_err(|error| error.to_string())? {
            seqs.insert(seq);
            found.push((seq, Found::Changed(Box::new(changed))));
        }
    }
    for row in &recording.deltas {
        for (seq, fact) in facts(run, row)? {
            if row.from > folded {
                seqs.insert(seq);
            }
            match fact {
                Fact::Result(result) => found.push((seq, Found::Ended(named(run, result.step.as_ref())))),
                Fact::Attempt(attempt) if attempt.step.as_ref().is_some_and(|step| step.name.contains("turn")) => {
                    return Err(format!("a failed round at {seq} is kept beside the steps"));
                }
                _ => {}
            }
        }
    }
    if !seqs.iter().copied().eq(folded + 1..=recording.tail) {
        return Err(format!("of {}..={} only {seqs:?} are there", folded + 1, recording.tail));
    }
    found.sort_by_key(|(seq, _)| *seq);
    for (seq, found) in found {
        match found {
            Found::Changed(changed) => match *changed {
                Changed::State(change) => {
                    let members = states.entry(change.state.clone()).or_default();
                    change_of(members, change).map_err(|why| format!("seq {seq}: {why}"))?;
                }
                Changed::Round(round) => under_way(run, &round, &mut rounds),
            },
            Found::Ended(step) if seq <= folded && rounds.contains_key(&step) => {
                return Err(format!("the snapshot at {folded} keeps rounds of step {step}, which ended at {seq}"));
            }
            Found::Ended(step) => _ = rounds.remove(&step),
        }
    }
    let pages = states.iter().map(|(name, members)| Ok((name.clone(), Page::of(members)?)));
    Ok(Books { pages: pages.collect::<Result<_, String>>()?, rounds, folded })
}

fn change_of(members: &mut BTreeMap<String, Raw>, change: StateChange) -> Result<(), String> {
    if change.whole {
        members.clear();
    }
    for member in change.members {
        if member.whole {
            members.remove(&member.member);
        }
        let what = member.what.ok_or("a change of nothing")?;
        add(members, &member.member, what).map_err(|why| format!("state {}: {why}", change.state))?;
    }
    Ok(())
}

enum Found {
    Changed(Box<Changed>),
    /// A step has its result.
    Ended(Step),
}

fn facts(run: RunId, row: &StoredRow) -> Result<Vec<(Seq, Fact)>, String> {
    open_deltas(run, row.epoch, row.from, row.to, &row.sealed.body, row.sealed.crc).map_err(|error| error.to_string())
}

fn under_way(run: RunId, round: &Round, rounds: &mut BTreeMap<Step, (u64, u32)>) {
    let failed = round.attempt.as_ref().map_or(0, |attempt| attempt.number);
    rounds.insert(named(run, round.step.as_ref()), (round.done, failed));
}

/// What a snapshot holds, if all of it is there and nothing else is.
fn begin(
    run: RunId,
    recording: &Recording,
    snapshot: &Snapshot,
    states: &mut Members,
    rounds: &mut BTreeMap<Step, (u64, u32)>,
) -> Result<(), String> {
    let manifest: Manifest = snapshot.manifest.open(Kind::Manifest, run).map_err(|error| error.to_string())?;
    if manifest.seq != snapshot.seq || manifest.seq > recording.tail {
        return Err(format!("a snapshot of {}, stored as of {}, of {} seqs", manifest.seq, snapshot.seq, recording.tail));
    }
    let covered = recording.deltas.iter().filter(|row| row.to <= manifest.seq);
    let kept = covered.fold((0, 0), |(rows, before), row| (rows + 1, digest(before, row.sealed.crc)));
    if kept != (manifest.rows, manifest.digest) {
        return Err(format!("the snapshot is of {} rows, {} are there, or others", manifest.rows, kept.0));
    }
    let mut parts: BTreeMap<u64, _> = snapshot.parts.iter().map(|part| (part.id, &part.sealed)).collect();
    for state in &manifest.states {
        let members = states.entry(state.state.clone()).or_default();
        for member in &state.members {
            for part in &member.parts {
                let sealed = parts.remove(&part.id).filter(|sealed| sealed.crc == part.crc);
                let sealed = sealed.ok_or_else(|| format!("part {} of {}.{} is missing", part.id, state.state, member.member))?;
                let what = match Part::open(run, part.id, sealed).map_err(|error| error.to_string())? {
                    Whole::Value(value) => What::Value(value),
                    Whole::Items(items) => What::Items(items),
                    Whole::Entries(entries) => What::Entries(entries),
                };
                add(members, &member.member, what)?;
            }
        }
    }
    if let Some(id) = parts.keys().next() {
        return Err(format!("part {id} is there, which the snapshot at {} does not name", manifest.seq));
    }
    manifest.rounds.iter().for_each(|round| under_way(run, round, rounds));
    Ok(())
}

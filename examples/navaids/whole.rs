//! How long the whole state of a run is, encoded: added up from the records that pass the door of the store.
//!
//! Invariant: a seq counts once, however often it is offered; what is offered anew after a restore is counted from what was restored.

use std::collections::BTreeMap;

use lobster_core::RunId;
use lobster_core::store::contract::record::{self, Changed, Kind, Manifest, MemberChange, Part, Round, StateChange, What};
use lobster_core::store::contract::{Epoch, Failed, Recording, Sealed, Seq};

/// Lengths of everything that is current of a run's states: values, items, keys.
#[derive(Debug, Default)]
pub struct Whole {
    /// Everything up to here is in it.
    seq: Seq,
    /// By state and member.
    members: BTreeMap<(String, String), Length>,
}

#[derive(Debug)]
enum Length {
    Value(usize),
    Items(usize),
    /// By key, and its own length with that of its value.
    Entries(BTreeMap<Vec<u8>, usize>),
}

impl Whole {
    /// Of what the store has.
    ///
    /// # Errors
    /// It is damaged.
    pub fn of(run: RunId, recording: &Recording) -> Result<Self, Failed> {
        let mut whole = Self::default();
        if let Some(snapshot) = &recording.snapshot {
            let manifest: Manifest = snapshot.manifest.open(Kind::Manifest, run)?;
            let parts: BTreeMap<u64, &Sealed> = snapshot.parts.iter().map(|part| (part.id, &part.sealed)).collect();
            for state in manifest.states {
                for member in state.members {
                    for part in member.parts.iter().filter_map(|part| Some((part.id, *parts.get(&part.id)?))) {
                        let what = match Part::open(run, part.0, part.1)? {
                            record::Whole::Value(value) => What::Value(value),
                            record::Whole::Items(items) => What::Items(items),
                            record::Whole::Entries(entries) => What::Entries(entries),
                        };
                        whole.member(&state.state, &member.member, what);
                    }
                }
            }
            whole.seq = manifest.seq;
        }
        for row in &recording.changes {
            whole.row(run, row.epoch, (row.from, row.to), &row.sealed)?;
        }
        Ok(whole)
    }

    /// Takes in the changes of a row. Returns the seqs of new rounds, and how long everything was at each.
    ///
    /// # Errors
    /// The row is damaged.
    pub fn row(&mut self, run: RunId, epoch: Epoch, (from, to): (Seq, Seq), changes: &Sealed) -> Result<Vec<(Seq, u64)>, Failed> {
        let mut rounds = Vec::new();
        let seen = self.seq;
        for (seq, changed) in record::open_changes(run, epoch, from, to, &changes.body, changes.crc)? {
            if seq <= seen {
                continue;
            }
            match changed {
                Changed::State(change) => self.change(change),
                Changed::Round(Round { attempt: None, .. }) => rounds.push((seq, self.bytes())),
                Changed::Round(_) => {}
            }
            self.seq = seq;
        }
        Ok(rounds)
    }

    fn change(&mut self, StateChange { state, whole, members, .. }: StateChange) {
        if whole {
            self.members.retain(|(name, _), _| *name != state);
        }
        for MemberChange { member, whole, what } in members {
            if whole {
                self.members.remove(&(state.clone(), member.clone()));
            }
            if let Some(what) = what {
                self.member(&state, &member, what);
            }
        }
    }

    fn member(&mut self, state: &str, member: &str, what: What) {
        let place = self.members.entry((state.to_owned(), member.to_owned()));
        match what {
            What::Value(value) => _ = place.insert_entry(Length::Value(value.len())),
            What::Items(new) => {
                if let Length::Items(bytes) = place.or_insert(Length::Items(0)) {
                    *bytes += new.items.iter().map(|item| item.len()).sum::<usize>();
                }
            }
            What::Entries(new) => {
                if let Length::Entries(entries) = place.or_insert_with(|| Length::Entries(BTreeMap::new())) {
                    for entry in new.entries {
                        match entry.value {
                            Some(value) => _ = entries.insert(entry.key.to_vec(), entry.key.len() + value.len()),
                            None => _ = entries.remove(&entry.key[..]),
                        }
                    }
                }
            }
        }
    }

    fn bytes(&self) -> u64 {
        let length = |length: &Length| match length {
            Length::Value(bytes) | Length::Items(bytes) => *bytes,
            Length::Entries(entries) => entries.values().sum(),
        };
        self.members.values().map(length).sum::<usize>() as u64
    }
}

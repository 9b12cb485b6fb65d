//! What the memory tier holds: runs with their indexes, nodes, and what a crash would take back.
//!
//! Invariant: a run changes only through [`State::change`], so its index entries never disagree with its row.

use crate::contract::{Beat, Digest, Incarnation, NodeState, RunId, RunRow, RunState, Sealed, Seq, StoredRow, TaskVersion, Wall};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The part of a run that changes, payloads aside. Copied when a relaxed append is about to change it.
#[derive(Clone)]
pub(super) struct Hot {
    pub(super) fence: RunRow,
    /// Wake counter at the last claim.
    pub(super) seen: u64,
    pub(super) attempts: u32,
    pub(super) deaths: u32,
    pub(super) due: Wall,
    pub(super) reason: String,
    pub(super) ended: Option<(Wall, Sealed)>,
}

/// A run with everything it has.
pub(super) struct Run {
    pub(super) key: Option<String>,
    pub(super) digest: Digest,
    pub(super) task: TaskVersion,
    pub(super) tags: Vec<String>,
    pub(super) submitted: Wall,
    pub(super) input: Sealed,
    pub(super) deltas: Vec<StoredRow>,
    pub(super) folding: Folding,
    pub(super) verdicts: BTreeMap<Seq, Sealed>,
    pub(super) hot: Hot,
}

/// What a fold replaces, and by what. Copied when a fold is about to change it.
#[derive(Clone, Default)]
pub(super) struct Folding {
    pub(super) changes: Vec<StoredRow>,
    /// Seq and manifest of the snapshot.
    pub(super) snapshot: Option<(Seq, Sealed)>,
    pub(super) parts: BTreeMap<u64, Sealed>,
}

/// The synced version of a run that was changed since without a sync.
struct Synced {
    hot: Hot,
    /// How many rows of each stay.
    deltas: usize,
    changes: usize,
    /// As it was, if it was folded since.
    folding: Option<Folding>,
}

impl Run {
    /// Gives the claim back: it was no attempt.
    pub(super) fn give_attempt_back(&mut self) {
        self.hot.attempts = self.hot.attempts.saturating_sub(1);
    }

    /// Ends the run.
    pub(super) fn end(&mut self, state: RunState, outcome: Sealed, at: Wall) {
        self.hot.fence.state = state;
        self.hot.fence.owner = None;
        self.hot.reason.clear();
        self.hot.ended = Some((at, outcome));
    }
}

/// A node's row, and what its host knows of its process.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) state: NodeState,
    pub(super) tasks: Vec<TaskVersion>,
    pub(super) slots: usize,
    pub(super) ttl: Duration,
    pub(super) beat: Beat,
    /// Its process is gone.
    pub(super) dead: bool,
    /// Which run each slot was polling.
    pub(super) notes: BTreeMap<usize, RunId>,
}

impl Node {
    /// Does a living process hold this row's name?
    pub(super) fn holds_name(&self) -> bool {
        self.state == NodeState::Active && !self.dead
    }
}

/// The synced version of everything that was changed since without a sync.
#[derive(Default)]
struct Relaxed {
    runs: BTreeMap<RunId, Synced>,
    beats: BTreeMap<Incarnation, Beat>,
}

/// Everything.
#[derive(Default)]
pub(super) struct State {
    runs: BTreeMap<RunId, Run>,
    keys: BTreeMap<String, RunId>,
    ready: BTreeSet<(Wall, RunId)>,
    owned: BTreeMap<Incarnation, BTreeSet<RunId>>,
    ended: BTreeSet<(Wall, RunId)>,
    pub(super) nodes: BTreeMap<Incarnation, Node>,
    relaxed: Relaxed,
    /// Something changed that a waiter may want to know.
    pub(super) stirred: bool,
    /// What business transactions have committed.
    pub(super) numbers: BTreeMap<String, i64>,
}

impl State {
    pub(super) fn run(&self, id: RunId) -> Option<&Run> {
        self.runs.get(&id)
    }

    /// All runs in id order, from the first one after `after`.
    pub(super) fn runs_after(&self, after: Option<RunId>) -> impl Iterator<Item = (RunId, &Run)> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.runs.range((after.map_or(Unbounded, Excluded), Unbounded)).map(|(id, run)| (*id, run))
    }

    pub(super) fn of_key(&self, key: &str) -> Option<RunId> {
        self.keys.get(key).copied()
    }

    /// Ready runs that are due, the oldest due time first.
    pub(super) fn due(&self, now: Wall) -> impl Iterator<Item = (Wall, RunId)> {
        self.ready.iter().copied().take_while(move |(due, _)| *due <= now)
    }

    /// Running runs of `incarnation`, in id order.
    pub(super) fn owned_by(&self, incarnation: Incarnation) -> impl Iterator<Item = RunId> {
        self.owned.get(&incarnation).into_iter().flatten().copied()
    }

    /// Running runs whose owner is failed, has left or is unknown.
    pub(super) fn orphans(&self) -> impl Iterator<Item = RunId> {
        self.owned.iter().filter(|(owner, _)| !self.is_active(**owner)).flat_map(|(_, runs)| runs).copied()
    }

    /// Runs that ended before `before`, the oldest first.
    pub(super) fn ended_before(&self, before: Wall) -> impl Iterator<Item = RunId> {
        self.ended.iter().take_while(move |(at, _)| *at < before).map(|(_, id)| *id)
    }

    pub(super) fn is_active(&self, incarnation: Incarnation) -> bool {
        self.nodes.get(&incarnation).is_some_and(|node| node.state == NodeState::Active)
    }

    /// Is a running run owned by this incarnation?
    pub(super) fn owns(&self, incarnation: Incarnation) -> bool {
        self.owned.contains_key(&incarnation)
    }

    pub(super) fn insert(&mut self, id: RunId, run: Run) {
        if let Some(key) = &run.key {
            self.keys.insert(key.clone(), id);
        }
        self.enlist(id, &run.hot);
        self.runs.insert(id, run);
    }

    pub(super) fn remove(&mut self, id: RunId) {
        let Some(run) = self.runs.remove(&id) else { return };
        self.delist(id, &run.hot);
        if let Some(key) = &run.key {
            self.keys.remove(key);
        }
    }

    /// The only way to change a run. `None`: no such run.
    pub(super) fn change<T>(&mut self, id: RunId, f: impl FnOnce(&mut Run) -> T) -> Option<T> {
        let mut run = self.runs.remove(&id)?;
        self.delist(id, &run.hot);
        let value = f(&mut run);
        self.enlist(id, &run.hot);
        self.runs.insert(id, run);
        Some(value)
    }

    fn enlist(&mut self, id: RunId, hot: &Hot) {
        match (hot.fence.state, hot.fence.owner, &hot.ended) {
            (RunState::Ready, ..) => _ = self.ready.insert((hot.due, id)),
            (RunState::Running, Some(owner), _) => _ = self.owned.entry(owner).or_default().insert(id),
            (_, _, Some((at, _))) => _ = self.ended.insert((*at, id)),
            _ => {}
        }
    }

    fn delist(&mut self, id: RunId, hot: &Hot) {
        self.ready.remove(&(hot.due, id));
        if let Some((at, _)) = &hot.ended {
            self.ended.remove(&(*at, id));
        }
        if let Some(owner) = hot.fence.owner
            && let Some(owned) = self.owned.get_mut(&owner)
        {
            owned.remove(&id);
            if owned.is_empty() {
                self.owned.remove(&owner);
            }
        }
    }

    /// Called before a run is changed without a sync. Only the first change since the last sync matters: a crash goes
    /// back to what was before it.
    pub(super) fn remember_run(&mut self, id: RunId) {
        if let Some(run) = self.runs.get(&id) {
            self.relaxed.runs.entry(id).or_insert_with(|| Synced {
                hot: run.hot.clone(),
                deltas: run.deltas.len(),
                changes: run.folding.changes.len(),
                folding: None,
            });
        }
    }

    /// The same before a run is folded.
    pub(super) fn remember_folding(&mut self, id: RunId) {
        self.remember_run(id);
        if let (Some(run), Some(synced)) = (self.runs.get(&id), self.relaxed.runs.get_mut(&id))
            && synced.folding.is_none()
        {
            let mut folding = run.folding.clone();
            folding.changes.truncate(synced.changes);
            synced.folding = Some(folding);
        }
    }

    /// The same for a beat.
    pub(super) fn remember_beat(&mut self, incarnation: Incarnation, synced: Beat) {
        self.relaxed.beats.entry(incarnation).or_insert(synced);
    }

    /// Makes everything durable.
    pub(super) fn sync(&mut self) {
        self.relaxed = Relaxed::default();
    }

    /// Makes the end of a run durable before somebody is told of it.
    pub(super) fn sync_end(&mut self, id: RunId) {
        if self.relaxed.runs.contains_key(&id) {
            self.sync();
        }
    }

    /// A run as a crash would leave it: the parts of it that change.
    pub(super) fn synced(&self, id: RunId) -> Option<(&Run, &Hot, Vec<StoredRow>, Folding)> {
        let run = self.runs.get(&id)?;
        let Some(synced) = self.relaxed.runs.get(&id) else {
            return Some((run, &run.hot, run.deltas.clone(), run.folding.clone()));
        };
        let mut folding = synced.folding.as_ref().unwrap_or(&run.folding).clone();
        folding.changes.truncate(synced.changes);
        Some((run, &synced.hot, run.deltas[..synced.deltas].to_vec(), folding))
    }

    pub(super) fn crash(&mut self) {
        for id in self.relaxed.runs.keys().copied().collect::<Vec<_>>() {
            let Some((_, hot, deltas, folding)) = self.synced(id) else { continue };
            let hot = hot.clone();
            self.change(id, |run| (run.hot, run.deltas, run.folding) = (hot, deltas, folding));
        }
        let relaxed = std::mem::take(&mut self.relaxed);
        for (incarnation, beat) in relaxed.beats {
            if let Some(node) = self.nodes.get_mut(&incarnation) {
                node.beat = beat;
            }
        }
    }
}

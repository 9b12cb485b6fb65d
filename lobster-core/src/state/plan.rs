//! When and how changes become a snapshot: a manifest of parts, of which only those are written that changed.
//!
//! Invariant: pure; what a plan leaves in its parts is exactly what the changes it covers add up to.
//!
//! Parts of logs and tables are merged geometrically (J. L. Bentley and J. B. Saxe, "Decomposable searching problems", 1980; P. O'Neil
//! et al., "The log-structured merge-tree", 1996): eight segments of a size become one of the next, so each byte is written again at
//! most once per power of eight.

use crate::settings::SnapshotSettings;
use bytes::Bytes;
use lobster_store::{
    contract::{
        Boot, Mark, RunId, Sealed, Seq, StoredPart,
        record::{
            Changed, Entries, Entry, Items, Kind, Manifest, MemberParts, Part, PartRef, Round, StateChange, StateParts, StepName,
            What, Whole,
        },
    },
    planted,
};
use prost::Message;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// So many segments of a size are merged into one.
const FANOUT: usize = 8;

/// Larger content is cut here.
const PART_BYTES: usize = 1 << 20;

/// Parts of a log from this size on are not merged any more: nothing in them is ever replaced.
const LOG_BYTES: usize = PART_BYTES / FANOUT;

/// Bytes of changes at which a run is folded whether it pays or not: they are kept in memory.
const UNFOLDED_BYTES: usize = 8 << 20;

/// Something that the next snapshot has to take in.
#[derive(Clone, Debug)]
enum Unfolded {
    Changed(Arc<Changed>),
    /// A repeated step has its result: nobody asks for its rounds any more.
    Ended(Arc<StepName>),
}

/// What is stored of a run's rows of deltas up to some seq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub rows: u64,
    pub digest: u32,
}

/// A run's snapshot, and what happened since.
#[derive(Debug, Default)]
pub(crate) struct Folding {
    /// The current one; without seq: none.
    manifest: Manifest,
    since: VecDeque<(Seq, Unfolded)>,
    bytes: usize,
    /// No look whether a fold pays before this seq.
    look_at: Seq,
    folded_at: Option<Boot>,
    /// Somebody wants one now.
    wanted: bool,
    /// One is at the store.
    pub busy: bool,
    /// The last one found less at the store than it builds on, which was acknowledged up to this seq.
    pub behind: Option<Seq>,
    /// It is not known which rows the store has: no fold before a restore.
    pub unsure: bool,
}

impl Folding {
    /// Of a run whose snapshot is this.
    pub fn of(manifest: Manifest) -> Self {
        Self { manifest, ..Self::default() }
    }
    /// Seq of the snapshot.
    pub fn seq(&self) -> Seq {
        self.manifest.seq
    }
    /// Takes a change in.
    pub fn changed(&mut self, seq: Seq, changed: impl Into<Arc<Changed>>) {
        if self.unsure {
            self.since.clear();
            return;
        }
        let changed = changed.into();
        self.bytes += size(&changed);
        self.since.push_back((seq, Unfolded::Changed(changed)));
    }
    /// A repeated step has its result.
    pub fn ended(&mut self, seq: Seq, step: Arc<StepName>) {
        self.since.push_back((seq, Unfolded::Ended(step)));
    }
    /// Folds as soon as it can. Returns the last seq up to `stored` that there is to fold; `None`: there is nothing.
    pub fn want(&mut self, stored: Seq) -> Option<Seq> {
        let last = self.since.iter().map(|(seq, _)| *seq).take_while(|seq| *seq <= stored).last()?;
        self.wanted = true;
        Some(last)
    }

    /// What a fold at this row end would take in, if it is time to look.
    pub fn look(&mut self, settings: &SnapshotSettings, now: Boot, at: Seq, mark: Mark, tally: Tally) -> Option<Draft> {
        let folded_at = *self.folded_at.get_or_insert(now);
        if self.busy || self.unsure || at <= self.manifest.seq || self.since.front().is_none_or(|(seq, _)| *seq > at) {
            return None;
        }
        let forced = self.wanted || now.since(folded_at) >= settings.interval || self.bytes >= UNFOLDED_BYTES;
        if !forced && at < self.look_at.max(self.manifest.seq + settings.delta_threshold) {
            return None;
        }
        self.busy = true;
        let mut since: Vec<_> =
            self.since.iter().take_while(|(seq, _)| *seq <= at).map(|(_, unfolded)| unfolded.clone()).collect();
        if planted!("plan_drops_last") {
            since.pop();
        }
        Some(Draft { base: self.manifest.clone(), since, bytes: self.bytes, at, mark, tally, forced })
    }

    /// A fold at `at` would write more than it replaces: looked at again when twice as much has come.
    pub fn later(&mut self, at: Seq, settings: &SnapshotSettings) {
        self.busy = false;
        self.look_at = at + (at - self.manifest.seq).max(settings.delta_threshold);
    }

    /// No fold any more, before a restore.
    pub fn give_up(&mut self) {
        (self.busy, self.unsure) = (false, true);
    }

    /// A fold is done.
    pub fn folded(&mut self, manifest: Manifest, now: Boot) {
        while let Some((seq, unfolded)) = self.since.front()
            && *seq <= manifest.seq
        {
            if let Unfolded::Changed(changed) = unfolded {
                self.bytes = self.bytes.saturating_sub(size(changed));
            }
            self.since.pop_front();
        }
        self.manifest = manifest;
        (self.look_at, self.folded_at, self.wanted, self.busy, self.behind) = (0, Some(now), false, false, None);
    }
}

/// Bytes of a change, as its row has them; its frame aside.
pub(crate) fn size(changed: &Changed) -> usize {
    match changed {
        Changed::State(change) => change.encoded_len(),
        Changed::Round(round) => round.encoded_len(),
    }
}

/// What changed of a member, added up.
#[derive(Clone, Debug)]
enum Delta {
    Value(Bytes),
    Items(Vec<Bytes>),
    Entries(BTreeMap<Bytes, Option<Bytes>>),
}

impl Delta {
    fn of(what: What) -> Self {
        match what {
            What::Value(value) => Delta::Value(value),
            What::Items(items) => Delta::Items(items.items),
            What::Entries(entries) => Delta::Entries(entries.entries.into_iter().map(|entry| (entry.key, entry.value)).collect()),
        }
    }
    fn add(&mut self, what: What) {
        match (&mut *self, what) {
            (Delta::Items(items), What::Items(new)) => items.extend(new.items),
            (Delta::Entries(entries), What::Entries(new)) => {
                entries.extend(new.entries.into_iter().map(|entry| (entry.key, entry.value)));
            }
            (delta, what) => *delta = Delta::of(what),
        }
    }
    fn bytes(&self) -> usize {
        match self {
            Delta::Value(value) => framed(value.len()),
            Delta::Items(items) => items.iter().map(|item| framed(item.len())).sum(),
            Delta::Entries(entries) => {
                let value = |value: &Option<Bytes>| value.as_ref().map_or(0, |value| framed(value.len()));
                entries.iter().map(|(key, of)| framed(framed(key.len()) + value(of))).sum()
            }
        }
    }
}

/// So many bytes as an element of a record. Exact: what a log saves by a fold is only what surrounds its items in the changes.
fn framed(bytes: usize) -> usize {
    1 + prost::length_delimiter_len(bytes) + bytes
}

#[derive(Clone, Debug, Default)]
struct StateDelta {
    version: u32,
    codec: i32,
    /// Nothing recorded before stays.
    whole: bool,
    members: BTreeMap<String, (bool, Delta)>,
}

impl StateDelta {
    fn add(&mut self, change: &StateChange) {
        if change.whole {
            self.whole = true;
            self.members.clear();
        }
        (self.version, self.codec) = (change.version, change.codec);
        for member in &change.members {
            let Some(what) = member.what.clone() else { continue };
            match self.members.get_mut(&member.member) {
                Some((_, delta)) if !member.whole => delta.add(what),
                _ => _ = self.members.insert(member.member.clone(), (member.whole, Delta::of(what))),
            }
        }
    }
}

/// What a fold would take in.
#[derive(Debug)]
pub(crate) struct Draft {
    base: Manifest,
    since: Vec<Unfolded>,
    bytes: usize,
    pub at: Seq,
    mark: Mark,
    tally: Tally,
    /// It is made whether it pays or not.
    forced: bool,
}

impl Draft {
    /// The plan of it; `None`: it does not pay yet.
    pub fn plan(self) -> Option<Plan> {
        let plan = Plan::new(&self.base, self.since.iter(), self.at, self.mark, self.tally);
        (self.forced || plan.writes() < self.bytes).then_some(plan)
    }
}

/// A fold to be made.
#[derive(Debug)]
pub(crate) struct Plan {
    pub base: Seq,
    pub seq: Seq,
    manifest: Manifest,
    states: BTreeMap<String, StateDelta>,
    /// Parts that are not needed any more.
    dropped: Vec<u64>,
    /// By state and member: earlier parts that its new segment takes in.
    merges: BTreeMap<(String, String), Vec<PartRef>>,
}

/// A fold, ready for the store.
pub(crate) struct Built {
    pub manifest: Manifest,
    pub sealed: Sealed,
    pub parts: Vec<StoredPart>,
    pub dropped: Vec<u64>,
}

impl Plan {
    fn new<'u>(base: &Manifest, since: impl Iterator<Item = &'u Unfolded>, at: Seq, mark: Mark, kept: Tally) -> Self {
        let mut states: BTreeMap<String, StateDelta> = BTreeMap::new();
        let mut rounds: BTreeMap<StepName, Round> = BTreeMap::new();
        rounds.extend(base.rounds.iter().filter_map(|round| Some((round.step.clone()?, round.clone()))));
        for unfolded in since {
            match unfolded {
                Unfolded::Changed(changed) => match &**changed {
                    Changed::State(change) => states.entry(change.state.clone()).or_default().add(change),
                    Changed::Round(round) => rounds.extend(round.step.clone().map(|step| (step, round.clone()))),
                },
                Unfolded::Ended(step) => _ = rounds.remove(&**step),
            }
        }
        let manifest = Manifest {
            seq: at,
            mark,
            rows: kept.rows,
            digest: kept.digest,
            states: base.states.clone(),
            rounds: rounds.into_values().collect(),
            next_part: base.next_part.max(1),
        };
        let mut plan = Self { base: base.seq, seq: at, manifest, states, dropped: Vec::new(), merges: BTreeMap::new() };
        plan.place();
        plan
    }

    /// Takes what is replaced out of the manifest, and decides what is merged.
    fn place(&mut self) {
        for (name, delta) in &self.states {
            let place = match self.manifest.states.iter().position(|state| state.state == *name) {
                Some(place) => place,
                None => {
                    self.manifest.states.push(StateParts { state: name.clone(), ..StateParts::default() });
                    self.manifest.states.len() - 1
                }
            };
            let state = &mut self.manifest.states[place];
            (state.version, state.codec) = (delta.version, delta.codec);
            if delta.whole {
                let parts = state.members.drain(..).flat_map(|member| member.parts);
                self.dropped.extend(parts.map(|part| part.id));
            }
            for (name, (whole, delta)) in &delta.members {
                let Some(member) = state.members.iter_mut().find(|member| member.member == *name) else { continue };
                if *whole || matches!(delta, Delta::Value(_)) {
                    self.dropped.extend(member.parts.drain(..).map(|part| part.id));
                    continue;
                }
                let merged = merged(&member.parts, delta);
                let from = member.parts.len() - merged;
                let taken: Vec<_> = member.parts.drain(from..).collect();
                if !taken.is_empty() {
                    self.dropped.extend(taken.iter().map(|part| part.id));
                    self.merges.insert((state.state.clone(), name.clone()), taken);
                }
            }
        }
        self.manifest.states.sort_unstable_by(|a, b| a.state.cmp(&b.state));
    }

    /// Bytes that it writes, merges aside: those are paid by the folds before.
    fn writes(&self) -> usize {
        let members = self.states.values().flat_map(|state| state.members.values());
        members.map(|(_, delta)| delta.bytes()).sum::<usize>() + self.manifest.encoded_len()
    }

    /// Ids and checksums of the parts whose content [`build`](Plan::build) needs.
    pub fn reads(&self) -> Vec<(u64, u32)> {
        self.merges.values().flatten().map(|part| (part.id, part.crc)).collect()
    }

    /// Makes the parts and the manifest. `None`: a part is missing, or not what its place says.
    pub fn build(self, run: RunId, mut read: BTreeMap<u64, Whole>) -> Option<Built> {
        let Self { mut manifest, states, mut merges, dropped, .. } = self;
        let mut parts = Vec::new();
        for (name, delta) in states {
            let state = manifest.states.iter_mut().find(|state| state.state == name)?;
            for (name, (_, delta)) in delta.members {
                let place = match state.members.iter().position(|member| member.member == name) {
                    Some(place) => place,
                    None => {
                        state.members.push(MemberParts { member: name.clone(), parts: Vec::new() });
                        state.members.len() - 1
                    }
                };
                let member = &mut state.members[place];
                let taken = merges.remove(&(state.state.clone(), name)).unwrap_or_default();
                let taken = taken.iter().map(|part| read.remove(&part.id)).collect::<Option<Vec<_>>>()?;
                // What nothing comes before needs no entry to say that it is gone.
                let first = member.parts.is_empty();
                let segment = manifest.next_part;
                for whole in cut(join(taken, delta)?, first) {
                    let id = manifest.next_part;
                    manifest.next_part += 1;
                    let log = matches!(whole, Whole::Items(_));
                    let sealed = Part { whole: Some(whole) }.seal(run, id);
                    let bytes = sealed.body.len() as u64;
                    member.parts.push(PartRef { id, crc: sealed.crc, bytes, segment: if log { id } else { segment } });
                    parts.push(StoredPart { id, sealed });
                }
            }
            state.members.sort_unstable_by(|a, b| a.member.cmp(&b.member));
        }
        let sealed = Sealed::new(Kind::Manifest, run, &manifest);
        Some(Built { manifest, sealed, parts, dropped })
    }
}

/// How many of a member's last parts its new segment takes in.
fn merged(parts: &[PartRef], delta: &Delta) -> usize {
    let log = matches!(delta, Delta::Items(_));
    // Segments, the newest first: how many parts, and their size.
    let mut segments: Vec<(usize, u64)> = Vec::new();
    let mut last = None;
    for part in parts.iter().rev() {
        if log && part.bytes >= LOG_BYTES as u64 {
            break;
        }
        match segments.last_mut() {
            Some((count, bytes)) if last == Some(part.segment) => (*count, *bytes) = (*count + 1, *bytes + part.bytes),
            _ => segments.push((1, part.bytes)),
        }
        last = Some(part.segment);
    }
    let (mut taken, mut bytes) = (0, delta.bytes() as u64);
    loop {
        let level = level(bytes);
        // The new one counts.
        let run = segments[taken..].iter().take_while(|(_, bytes)| self::level(*bytes) <= level).count();
        if run + 1 < FANOUT {
            break;
        }
        bytes += segments[taken..taken + run].iter().map(|(_, bytes)| bytes).sum::<u64>();
        taken += run;
    }
    segments[..taken].iter().map(|(count, _)| count).sum()
}

/// Powers of the fanout in a size.
fn level(bytes: u64) -> u32 {
    bytes.max(1).ilog2() / FANOUT.ilog2()
}

/// Earlier parts and what is new, as one.
fn join(mut taken: Vec<Whole>, delta: Delta) -> Option<Delta> {
    if planted!("parts_out_of_order") {
        taken.reverse();
    }
    let mut all = None;
    for whole in taken {
        let what = match whole {
            Whole::Value(value) => What::Value(value),
            Whole::Items(items) => What::Items(items),
            Whole::Entries(entries) => What::Entries(entries),
        };
        match &mut all {
            None => all = Some(Delta::of(what)),
            Some(all) => all.add(what),
        }
    }
    match (all, delta) {
        (None, delta) => Some(delta),
        (Some(Delta::Items(mut items)), Delta::Items(new)) => {
            items.extend(new);
            Some(Delta::Items(items))
        }
        (Some(Delta::Entries(mut entries)), Delta::Entries(new)) => {
            entries.extend(new);
            Some(Delta::Entries(entries))
        }
        _ => None,
    }
}

/// Content in parts of at most [`PART_BYTES`], or of one item or entry.
fn cut(delta: Delta, first: bool) -> Vec<Whole> {
    match delta {
        Delta::Value(value) => vec![Whole::Value(value)],
        Delta::Items(items) => {
            let chunks = chunks(items, Bytes::len);
            chunks.into_iter().map(|items| Whole::Items(Items { items })).collect()
        }
        Delta::Entries(entries) => {
            let entries = entries.into_iter().filter(|(_, value)| !first || value.is_some());
            let entries = entries.map(|(key, value)| Entry { key, value }).collect();
            let size = |entry: &Entry| entry.key.len() + entry.value.as_ref().map_or(0, Bytes::len);
            chunks(entries, size).into_iter().map(|entries| Whole::Entries(Entries { entries })).collect()
        }
    }
}

/// Cuts a list; an empty one is one empty piece.
fn chunks<T>(all: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let (mut pieces, mut bytes) = (vec![Vec::new()], 0);
    for one in all {
        let more = size(&one) + 8;
        if bytes + more > PART_BYTES && bytes > 0 {
            pieces.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        pieces.last_mut().expect("there is a piece from the start").push(one);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::content::StateContent;
    use lobster_store::contract::record::MemberChange;
    use std::collections::BTreeSet;
    use uuid::Uuid;

    const RUN: RunId = RunId(Uuid::from_u128(42));

    /// xorshift64*, G. Marsaglia 2003.
    struct Draw(u64);

    impl Draw {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
        }
        fn bytes(&mut self, most: u64) -> Bytes {
            let len = self.below(most) + 1;
            (0..len).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
        }
        fn change(&mut self) -> StateChange {
            let members = (0..=self.below(3)).map(|_| self.member()).collect();
            let state = format!("s{}", self.below(2));
            StateChange { state, version: 1, codec: 1, whole: self.below(40) == 0, members }
        }
        fn member(&mut self) -> MemberChange {
            let whole = self.below(12) == 0;
            match self.below(3) {
                0 => {
                    let what = Some(What::Value(self.bytes(30)));
                    MemberChange { member: format!("f{}", self.below(3)), whole, what }
                }
                1 => {
                    let items = (0..self.below(4)).map(|_| self.bytes(60)).collect();
                    MemberChange { member: "log".into(), whole, what: Some(What::Items(Items { items })) }
                }
                _ => {
                    let entries: BTreeMap<_, _> = (0..self.below(5))
                        .map(|_| (Bytes::from(self.below(40).to_string()), (self.below(3) > 0).then(|| self.bytes(40))))
                        .collect();
                    let entries = entries.into_iter().map(|(key, value)| Entry { key, value }).collect();
                    MemberChange { member: "table".into(), whole, what: Some(What::Entries(Entries { entries })) }
                }
            }
        }
    }

    /// A store of parts that checks what folds do with them.
    #[derive(Default)]
    struct Parts {
        parts: BTreeMap<u64, Sealed>,
        manifest: Manifest,
        used: BTreeSet<u64>,
        written: usize,
    }

    impl Parts {
        fn fold(&mut self, folding: &mut Folding, plan: Plan) {
            let read = plan.reads().into_iter().map(|(id, crc)| {
                let sealed = &self.parts[&id];
                assert_eq!(sealed.crc, crc);
                (id, Part::open(RUN, id, sealed).unwrap())
            });
            let read = read.collect();
            let built = plan.build(RUN, read).unwrap();
            for id in &built.dropped {
                assert!(self.parts.remove(id).is_some(), "what is dropped was there");
            }
            for part in built.parts {
                assert!(self.used.insert(part.id), "an id is used once");
                self.written += part.sealed.body.len();
                self.parts.insert(part.id, part.sealed);
            }
            self.written += built.sealed.body.len();
            let named: BTreeSet<u64> = built
                .manifest
                .states
                .iter()
                .flat_map(|state| &state.members)
                .flat_map(|member| &member.parts)
                .map(|part| part.id)
                .collect();
            assert_eq!(named, self.parts.keys().copied().collect(), "what is stored is what is named");
            self.manifest = built.manifest.clone();
            folding.folded(built.manifest, Boot::from_nanos(0));
        }
        fn read(&self) -> BTreeMap<String, StateContent> {
            let mut states: BTreeMap<String, StateContent> = BTreeMap::new();
            for state in &self.manifest.states {
                let content = states.entry(state.state.clone()).or_default();
                (content.version, content.codec) = (state.version, state.codec);
                for member in &state.members {
                    for part in &member.parts {
                        let whole = Part::open(RUN, part.id, &self.parts[&part.id]).unwrap();
                        content.part(&member.member, whole).unwrap();
                    }
                }
            }
            states
        }
    }

    fn look(folding: &mut Folding, settings: &SnapshotSettings, at: Seq) -> Option<Draft> {
        folding.look(settings, Boot::from_nanos(0), at, 0, Tally::default())
    }

    #[test]
    fn wherever_it_is_folded_the_parts_and_what_follows_add_up_to_the_changes() {
        let settings = SnapshotSettings { delta_threshold: 5, ..SnapshotSettings::default() };
        for seed in 1..=300 {
            let mut draw = Draw(seed);
            let (mut folding, mut parts) = (Folding::default(), Parts::default());
            let mut oracle: BTreeMap<String, StateContent> = BTreeMap::new();
            let mut since: Vec<(Seq, StateChange)> = Vec::new();
            for seq in 1..=200 {
                let change = draw.change();
                oracle.entry(change.state.clone()).or_default().apply(change.clone()).unwrap();
                since.push((seq, change.clone()));
                folding.changed(seq, Changed::State(change));
                if draw.below(7) == 0 {
                    folding.want(Seq::MAX);
                }
                // The store is a little behind.
                let at = seq.saturating_sub(draw.below(4));
                if let Some(draft) = look(&mut folding, &settings, at) {
                    match draft.plan() {
                        None => folding.later(at, &settings),
                        Some(plan) => {
                            parts.fold(&mut folding, plan);
                            since.retain(|(seq, _)| *seq > at);
                        }
                    }
                }
                let mut found = parts.read();
                for (_, change) in &since {
                    found.entry(change.state.clone()).or_default().apply(change.clone()).unwrap();
                }
                let empty = |content: &crate::state::content::Content| content.count() == 0;
                for content in found.values_mut().chain(oracle.values_mut()) {
                    content.members.retain(|_, member| !empty(member));
                }
                assert_eq!(found, oracle, "seed {seed}, seq {seq}");
            }
            assert!(parts.manifest.seq > 0, "seed {seed} folded");
        }
    }

    fn state(member: &str, what: What) -> Changed {
        let members = vec![MemberChange { member: member.into(), whole: false, what: Some(what) }];
        Changed::State(StateChange { state: "s".into(), version: 1, codec: 1, whole: false, members })
    }

    /// Folds whenever it pays; returns bytes of changes, bytes folded, and segments.
    fn run(count: u64, mut change: impl FnMut(u64) -> What) -> (usize, usize, usize) {
        let settings = SnapshotSettings::default();
        let (mut folding, mut parts, mut bytes) = (Folding::default(), Parts::default(), 0);
        for seq in 1..=count {
            let changed = state("m", change(seq));
            bytes += size(&changed);
            folding.changed(seq, changed);
            if seq % 1000 == 0 {
                folding.want(Seq::MAX);
            }
            if let Some(draft) = look(&mut folding, &settings, seq) {
                match draft.plan() {
                    None => folding.later(seq, &settings),
                    Some(plan) => parts.fold(&mut folding, plan),
                }
            }
        }
        let segments: BTreeSet<u64> = parts.manifest.states[0].members[0].parts.iter().map(|part| part.segment).collect();
        (bytes, parts.written, segments.len())
    }

    #[test]
    fn a_field_that_changes_all_the_time_is_folded_to_its_last_value() {
        let value = Bytes::from(vec![7; 1000]);
        let (bytes, written, segments) = run(5000, |_| What::Value(value.clone()));
        assert_eq!(segments, 1);
        assert!(written < bytes / 20, "{written} of {bytes}");
    }

    #[test]
    fn a_log_is_written_a_few_times_however_long_it_grows() {
        let item = |seq: u64| What::Items(Items { items: vec![Bytes::from(format!("{seq:0100}"))] });
        for count in [10_000, 80_000] {
            let (bytes, written, segments) = run(count, item);
            assert!(written < 4 * bytes, "{count}: {written} of {bytes}");
            assert!(segments <= bytes / LOG_BYTES + 4 * FANOUT, "{count}: {segments}");
        }
    }

    #[test]
    fn what_waits_for_a_fold_of_a_log_stays_bounded_however_it_grows() {
        let settings = SnapshotSettings::default();
        for (steps, items) in [(1_000_000, 1), (20_000, 50)] {
            let (mut folding, mut parts, mut most) = (Folding::default(), Parts::default(), 0);
            for seq in 1..=steps {
                let items = (0..items).map(|n| Bytes::from(format!("{:012}", seq * items + n))).collect();
                folding.changed(seq, state("m", What::Items(Items { items })));
                most = most.max(folding.since.len());
                if let Some(draft) = look(&mut folding, &settings, seq) {
                    match draft.plan() {
                        None => folding.later(seq, &settings),
                        Some(plan) => parts.fold(&mut folding, plan),
                    }
                }
            }
            // As long as a fold would be little more than a manifest that tells of a long log.
            assert!(most <= 1_600, "{steps} steps, {items} items each: {most} changes not folded");
        }
    }

    #[test]
    fn a_table_whose_keys_change_again_and_again_does_not_grow() {
        let entries = |seq: u64| {
            let entry = Entry { key: Bytes::from(format!("{:04}", seq % 100)), value: Some(Bytes::from(format!("{seq:0100}"))) };
            What::Entries(Entries { entries: vec![entry] })
        };
        let (bytes, written, segments) = run(80_000, entries);
        assert!(segments <= 2 * FANOUT, "{segments}");
        assert!(written < bytes / 4 * 5, "{written} of {bytes}");
    }

    #[test]
    fn rounds_are_kept_as_their_number_and_end_with_their_result() {
        let step = Arc::new(StepName { name: "next".into(), ..StepName::default() });
        let settings = SnapshotSettings::default();
        let (mut folding, mut parts) = (Folding::default(), Parts::default());
        for done in 1..=1000 {
            folding.changed(done, Changed::Round(Round { step: Some((*step).clone()), done, attempt: None }));
            if let Some(draft) = look(&mut folding, &settings, done) {
                parts.fold(&mut folding, draft.plan().expect("a thousand numbers are more than one"));
            }
        }
        assert!(parts.manifest.rounds.len() == 1 && parts.manifest.rounds[0].done >= 950);
        assert!(parts.written < 3000, "{}", parts.written);
        folding.ended(1001, step);
        folding.want(Seq::MAX);
        let plan = look(&mut folding, &settings, 1001).unwrap().plan().unwrap();
        parts.fold(&mut folding, plan);
        assert!(parts.manifest.rounds.is_empty());
    }
}

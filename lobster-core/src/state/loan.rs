//! States in memory: one step at a time has one, and gives it back with its changes recorded or undone.
//!
//! Invariant: no code of the user runs under the lock of a run: what became of a step is noted there, and applied when the next takes over.

use super::{
    State,
    content::{Content, StateContent},
    member::{Change, Lost, Origin},
    migrate::{Unfit, migrate},
};
use crate::{codec, ctx::Home, live::Interrupt};
use lobster_store::{
    contract::{
        limits,
        record::{MemberChange, StateChange},
    },
    planted,
};
use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    ops::{Deref, DerefMut},
};

/// The states of a run.
#[derive(Default)]
pub(crate) struct States(BTreeMap<String, Slot>);

/// One of them.
#[derive(Default)]
struct Slot {
    /// What is recorded, until a step wants it.
    recorded: Option<StateContent>,
    /// What the last step left; nothing while a step has it.
    held: Option<(Box<dyn Held>, Fate)>,
    busy: bool,
}

/// What became of the changes of the step that had it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Recorded,
    Undone,
}

/// What a slot gives to a step.
pub(crate) enum Found {
    Recorded(Option<StateContent>),
    Held(Box<dyn Held>, Fate),
}

impl States {
    /// Of what is recorded.
    pub fn of(recorded: BTreeMap<String, StateContent>) -> Self {
        let slot = |(name, content)| (name, Slot { recorded: Some(content), ..Slot::default() });
        Self(recorded.into_iter().map(slot).collect())
    }
    /// Is none of them in use?
    pub fn free(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.0.get(name).is_none_or(|slot| !slot.busy))
    }
    /// Gives them to a step; they were free.
    pub fn take(&mut self, names: &[String]) -> Vec<Found> {
        let take = |name: &String| {
            let slot = self.0.entry(name.clone()).or_default();
            slot.busy = true;
            match slot.held.take() {
                Some((held, fate)) => Found::Held(held, fate),
                None => Found::Recorded(slot.recorded.take()),
            }
        };
        names.iter().map(take).collect()
    }
    /// Takes one back.
    pub fn give(&mut self, name: &str, held: Option<Box<dyn Held>>, fate: Fate) {
        let slot = self.0.entry(name.to_owned()).or_default();
        slot.held = held.map(|held| (held, fate));
        slot.busy = false;
    }
}

/// A state in memory, whatever its type.
pub(crate) trait Held: Any + Send {
    /// What a step changed of it, as a record; `None`: nothing.
    fn collect(&mut self, name: &str) -> Result<Option<StateChange>, String>;
    /// Applies what became of the last step's changes.
    fn apply(&mut self, fate: Fate) -> Result<(), Lost>;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

struct Kept<S> {
    state: S,
    /// This state in memory.
    origin: u64,
    /// Which members have recorded content, by their place.
    recorded: Vec<bool>,
    /// Places of the members whose content was collected last.
    collected: Vec<usize>,
    /// It was migrated, and is recorded as a whole by the next step that changes it: with what the code has no member for.
    migrated: Option<BTreeMap<String, Content>>,
}

impl<S: State> Kept<S> {
    fn of_default() -> Self {
        let mut state = S::default();
        let mut recorded = Vec::new();
        state.members(&mut |_, _| recorded.push(false));
        Self { state, origin: Origin::state(), recorded, collected: Vec::new(), migrated: None }
    }

    fn new() -> Self {
        let mut kept = Self::of_default();
        kept.each(|_, member, origin| member.attach(origin));
        kept
    }

    fn restore(content: StateContent) -> Result<Self, Unfit> {
        let (mut content, migrated) = migrate(content, S::VERSION, S::MIGRATIONS)?;
        if migrated {
            recordable(&content)?;
        }
        let mut kept = Self::of_default();
        let mut misfit = None;
        let mut recorded = Vec::new();
        kept.each(|name, member, origin| match content.remove(name) {
            None => {
                recorded.push(false);
                member.attach(origin);
            }
            Some(content) => {
                recorded.push(true);
                if let Err(why) = member.restore(content, origin) {
                    misfit.get_or_insert(format!("member `{name}`: {why}"));
                }
            }
        });
        kept.recorded = recorded;
        kept.migrated = migrated.then_some(content);
        misfit.map_or(Ok(kept), |why| Err(Unfit::Misfit(why)))
    }

    fn each(&mut self, mut visit: impl FnMut(&'static str, &mut dyn super::Member, Origin)) {
        let (origin, mut at) = (self.origin, 0);
        self.state.members(&mut |name, member| {
            visit(name, member, Origin::of(origin, at));
            at += 1;
        });
    }
}

/// Can a state that was migrated be recorded as a whole?
fn recordable(members: &BTreeMap<String, Content>) -> Result<(), Unfit> {
    let bytes = |(member, content): (&String, &Content)| {
        let what = Some(content.clone().into_what());
        prost::Message::encoded_len(&MemberChange { member: member.clone(), whole: true, what })
    };
    let (bytes, limit) = (members.iter().map(bytes).sum::<usize>(), limits::MIGRATED_BYTES);
    if bytes > limit {
        return Err(Unfit::Misfit(format!("migrated, it has {bytes} bytes, and is recorded as a whole; the limit is {limit}")));
    }
    Ok(())
}

impl<S: State> Held for Kept<S> {
    fn collect(&mut self, name: &str) -> Result<Option<StateChange>, String> {
        // A copy: a serializer may panic, and what is recorded stays so.
        let recorded = self.recorded.clone();
        let migrated = self.migrated.is_some();
        let (mut collected, mut place) = (std::mem::take(&mut self.collected), 0);
        collected.clear();
        let (mut changed, mut whole, mut trouble) = (Vec::new(), Vec::new(), None);
        self.each(|member, tracked, origin| {
            let at = place;
            place += 1;
            match tracked.collect(origin, recorded[at]) {
                Ok(Some(Change { whole, what })) => {
                    collected.push(at);
                    changed.push(MemberChange { member: member.to_owned(), whole, what: Some(what) });
                }
                Ok(None) => {}
                Err(error) => _ = trouble.get_or_insert(format!("member `{member}`: {error}")),
            }
            if migrated {
                match tracked.whole() {
                    Ok(what) => {
                        collected.extend(what.is_some().then_some(at));
                        whole.extend(what.map(|what| MemberChange { member: member.to_owned(), whole: true, what: Some(what) }));
                    }
                    Err(error) => _ = trouble.get_or_insert(format!("member `{member}`: {error}")),
                }
            }
        });
        self.collected = collected;
        if let Some(trouble) = trouble {
            return Err(format!("state `{name}`, {trouble}"));
        }
        if changed.is_empty() {
            return Ok(None);
        }
        let mut change = StateChange {
            state: name.to_owned(),
            version: S::VERSION,
            codec: codec::STATES as i32,
            whole: false,
            members: changed,
        };
        let bytes = prost::Message::encoded_len(&change);
        if bytes > limits::PAYLOAD_BYTES {
            let limit = limits::PAYLOAD_BYTES;
            return Err(format!("what one step changed of state `{name}` has {bytes} bytes; the limit is {limit}"));
        }
        if let Some(unknown) = &self.migrated {
            let keep = |(member, content): (&String, &Content)| MemberChange {
                member: member.clone(),
                whole: true,
                what: Some(content.clone().into_what()),
            };
            change.members = whole.into_iter().chain(unknown.iter().map(keep)).collect();
            change.whole = true;
        }
        Ok(Some(change))
    }

    fn apply(&mut self, fate: Fate) -> Result<(), Lost> {
        match fate {
            Fate::Recorded => {
                self.each(|_, member, origin| member.settle(origin));
                if !self.collected.is_empty() {
                    self.collected.drain(..).for_each(|at| self.recorded[at] = true);
                    self.migrated = None;
                }
                Ok(())
            }
            // Nothing of it is recorded: it begins again.
            Fate::Undone if !self.recorded.contains(&true) => {
                *self = Self::new();
                Ok(())
            }
            Fate::Undone if planted!("attempt_not_undone") => Ok(()),
            Fate::Undone => {
                let mut lost = false;
                self.each(|_, member, origin| lost |= member.roll_back(origin).is_err());
                if lost { Err(Lost) } else { Ok(()) }
            }
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// A state that a step asks for: which type, under which name.
#[derive(Clone, Debug)]
pub struct Named<S> {
    name: String,
    state: std::marker::PhantomData<fn() -> S>,
}

impl<S: State> Named<S> {
    /// Under the name of its type.
    pub fn of_type() -> Self {
        Self::new(S::NAME)
    }
    /// Under this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), state: std::marker::PhantomData }
    }
}

/// A state while a step has it. Dropped before its changes were recorded, it undoes them.
pub struct Lease<S: State> {
    home: Home,
    name: String,
    kept: Option<Box<Kept<S>>>,
}

impl<S: State> Deref for Lease<S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.kept.as_ref().expect("a lease has its state until it is given back").state
    }
}

impl<S: State> DerefMut for Lease<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.kept.as_mut().expect("a lease has its state until it is given back").state
    }
}

impl<S: State> Drop for Lease<S> {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take() {
            let fate = if planted!("dropped_is_settled") { Fate::Recorded } else { Fate::Undone };
            self.home.give(&self.name, Some(kept), fate);
        }
    }
}

impl<S: State> fmt::Debug for Lease<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.name).finish()
    }
}

/// Why a step cannot have a state.
#[derive(Debug)]
pub struct Denied(pub(crate) Why);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// For this step, for good: code and message.
    Refused(&'static str, String),
    /// The run cannot go on here like this.
    Interrupted(Interrupt),
}

impl<S: State> Lease<S> {
    fn open(opening: &mut Opening<'_>, name: &str) -> Result<Self, Denied> {
        let home = opening.home;
        match Self::kept(name, opening.found.next().expect("one was found for each name")) {
            Ok(mut kept) => {
                kept.state.rebuild();
                Ok(Self { home: home.clone(), name: name.to_owned(), kept: Some(kept) })
            }
            Err((held, why)) => {
                home.give(name, held, Fate::Undone);
                Err(Denied(why))
            }
        }
    }

    #[allow(clippy::type_complexity, reason = "what goes back, and why")]
    fn kept(name: &str, found: Found) -> Result<Box<Kept<S>>, (Option<Box<dyn Held>>, Why)> {
        match found {
            Found::Recorded(None) => Ok(Box::new(Kept::new())),
            Found::Recorded(Some(content)) => Kept::restore(content).map(Box::new).map_err(|unfit| (None, denied(name, unfit))),
            Found::Held(mut held, fate) => {
                if held.apply(fate).is_err() {
                    // It was replaced as a whole by a step that failed: what it was is in the store.
                    return Err((None, Why::Interrupted(Interrupt::Release)));
                }
                if (held.as_ref() as &dyn Any).is::<Kept<S>>() {
                    return Ok(held.into_any().downcast().expect("it was just asked"));
                }
                let message = format!("state `{name}` is of another type elsewhere in this run: give one of them another name");
                Err((Some(held), Why::Refused("SameName", message)))
            }
        }
    }

    fn collect(&mut self) -> Result<Option<StateChange>, String> {
        self.kept.as_mut().expect("a lease has its state until it is given back").collect(&self.name)
    }

    fn into_held(mut self) -> (String, Box<dyn Held>) {
        let kept = self.kept.take().expect("a lease has its state until it is given back");
        (std::mem::take(&mut self.name), kept)
    }
}

fn denied(name: &str, unfit: Unfit) -> Why {
    Why::Interrupted(match unfit {
        Unfit::Newer(version) => {
            Interrupt::Newer(format!("state `{name}` is recorded in version {version}, which is newer than this code"))
        }
        Unfit::Misfit(why) => Interrupt::Hold(format!("the recorded state `{name}` does not fit the code: {why}")),
    })
}

/// A step's states when it completed: to go back with what becomes of its changes.
#[derive(Default)]
pub struct Loans(pub(crate) Vec<(String, Box<dyn Held>)>);

/// What was found for the states that a step asks for, in their order.
pub struct Opening<'h> {
    home: &'h Home,
    found: std::vec::IntoIter<Found>,
}

impl<'h> Opening<'h> {
    pub(crate) fn new(home: &'h Home, found: Vec<Found>) -> Self {
        Self { home, found: found.into_iter() }
    }
}

pub(crate) mod sealed {
    use super::{Denied, Loans, Opening};
    use lobster_store::contract::record::StateChange;

    pub trait Wanted {
        type Leases: Send;
        fn names(&self) -> Vec<String>;
        fn open(&self, opening: Opening<'_>) -> Result<Self::Leases, Denied>;
        fn collect(leases: &mut Self::Leases) -> Result<Vec<StateChange>, String>;
        fn loans(leases: Self::Leases) -> Loans;
    }
}

/// The states that a step asks for: a tuple of [`Named`].
pub trait Wanted: sealed::Wanted {}

impl<W: sealed::Wanted> Wanted for W {}

/// What a step gets for them: a tuple of [`Lease`].
pub type Leases<W> = <W as sealed::Wanted>::Leases;

macro_rules! wanted {
    ($($state:ident $lease:ident),*) => {
        #[allow(non_snake_case, unused_variables, unused_mut, clippy::unused_unit, reason = "the empty tuple is one of them")]
        impl<$($state: State),*> sealed::Wanted for ($(Named<$state>,)*) {
            type Leases = ($(Lease<$state>,)*);
            fn names(&self) -> Vec<String> {
                let ($($state,)*) = self;
                vec![$($state.name.clone()),*]
            }
            fn open(&self, mut opening: Opening<'_>) -> Result<Self::Leases, Denied> {
                let ($($state,)*) = self;
                // All of them, before the first that fails: each goes back if one does.
                $(let $lease = Lease::open(&mut opening, &$state.name);)*
                Ok(($($lease?,)*))
            }
            fn collect(leases: &mut Self::Leases) -> Result<Vec<StateChange>, String> {
                let ($($lease,)*) = leases;
                let mut changes = Vec::new();
                $(changes.extend($lease.collect()?);)*
                Ok(changes)
            }
            fn loans(leases: Self::Leases) -> Loans {
                let ($($lease,)*) = leases;
                Loans(vec![$($lease.into_held()),*])
            }
        }
    };
}
wanted!();
wanted!(A a);
wanted!(A a, B b);
wanted!(A a, B b, C c);
wanted!(A a, B b, C c, D d);

/// A type of state that a step asks for, as a task's list of steps knows it.
#[derive(Clone, Copy, Debug)]
pub struct StateType {
    /// Under which name; `None`: that is known at the call.
    pub name: Option<&'static str>,
    /// Version of its schema.
    pub version: u32,
    pub(crate) fits: fn(StateContent) -> Result<(), Unfit>,
}

impl StateType {
    /// Of this type, under its own name.
    pub const fn of<S: State>() -> Self {
        Self { name: Some(S::NAME), version: S::VERSION, fits: |content| Kept::<S>::restore(content).map(|_| ()) }
    }
    /// Under this name.
    #[must_use]
    pub const fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }
    /// Under a name that is known when the step is called.
    #[must_use]
    pub const fn named_at_the_call(self) -> Self {
        Self { name: None, ..self }
    }
}

/// Reads recorded content as a state.
pub(crate) fn read<S: State>(content: StateContent) -> Result<S, Unfit> {
    let mut kept = Kept::<S>::restore(content)?;
    kept.state.rebuild();
    Ok(kept.state)
}

/// What a step records that leaves this behind as the first of all.
#[cfg(test)]
pub(crate) fn first_change<S: State>(state: S) -> StateChange {
    let mut kept = Kept::<S>::new();
    kept.state = state;
    kept.collect(S::NAME).expect("it can be encoded").expect("there is something")
}

/// What a step records that finds this and changes it so.
#[cfg(test)]
pub(crate) fn change_of<S: State>(content: StateContent, change: impl FnOnce(&mut S)) -> Result<StateChange, String> {
    let mut kept = Kept::<S>::restore(content).map_err(|unfit| format!("{unfit:?}"))?;
    change(&mut kept.state);
    Ok(kept.collect(S::NAME)?.expect("there is something"))
}

#[cfg(test)]
mod tests {
    //! What a commit costs: encoded bytes and touched elements, whatever the size of the state.

    use super::{super::*, *};
    use prost::Message;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::cell::Cell;

    thread_local! {
        static ENCODED: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts how often one of them is encoded.
    #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    struct Counted(String);

    impl Serialize for Counted {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            ENCODED.set(ENCODED.get() + 1);
            self.0.serialize(serializer)
        }
    }

    impl<'de> Deserialize<'de> for Counted {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            String::deserialize(deserializer).map(Self)
        }
    }

    #[derive(Default)]
    struct Large {
        fields: [Field<Counted>; 10],
        log: Log<Counted>,
        table: Table<u32, Counted>,
    }

    impl State for Large {
        const NAME: &'static str = "Large";
        fn members(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn Member)) {
            const NAMES: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
            for (name, field) in NAMES.into_iter().zip(&mut self.fields) {
                visit(name, field);
            }
            visit("log", &mut self.log);
            visit("table", &mut self.table);
        }
    }

    /// A step's work: what it did recorded or undone; returns encoded bytes and how many values were encoded.
    fn step(kept: &mut Kept<Large>, fate: Fate, change: impl FnOnce(&mut Large)) -> (usize, usize) {
        ENCODED.set(0);
        change(&mut kept.state);
        let change = kept.collect("Large").unwrap();
        kept.apply(fate).unwrap();
        (change.map_or(0, |change| change.encoded_len()), ENCODED.get())
    }

    fn large(items: u32, keys: u32) -> Kept<Large> {
        let mut kept = Kept::<Large>::new();
        step(&mut kept, Fate::Recorded, |large| {
            large.fields.iter_mut().for_each(|field| **field = Counted("x".repeat(10_000)));
        });
        // More than one step may change: as if it had come bit by bit.
        kept.state.log.extend((0..items).map(|n| Counted(n.to_string())));
        kept.state.table = (0..keys).map(|n| (n, Counted(n.to_string()))).collect();
        kept.each(|_, member, origin| member.settle(origin));
        kept
    }

    #[test]
    fn a_commit_costs_what_changed_and_not_what_there_is() {
        // Debug builds encode once more, to compare.
        let most = |count| if cfg!(debug_assertions) { 2 * count } else { count };
        let (mut small, mut big) = (large(10, 10), large(1_000_000, 100_000));
        for fate in [Fate::Recorded, Fate::Undone] {
            for kept in [&mut small, &mut big] {
                assert_eq!(step(kept, fate, |_| {}), (0, 0), "nothing changed");
                let (bytes, encoded) = step(kept, fate, |large| large.log.push(Counted("new".into())));
                assert!(bytes < 40 && encoded <= most(1), "{bytes} {encoded}");
                let (bytes, encoded) = step(kept, fate, |large| *large.table.get_mut(&7).unwrap() = Counted("seven".into()));
                assert!(bytes < 50 && encoded <= most(1) + 1, "{bytes} {encoded}");
                let (bytes, encoded) = step(kept, fate, |large| large.table.remove(&8).map_or((), drop));
                assert!(bytes < 50 && encoded <= most(1) + 1, "{bytes} {encoded}");
                let (bytes, encoded) = step(kept, fate, |large| large.fields[3].0.push('y'));
                assert!((10_000..10_060).contains(&bytes) && encoded <= most(1) + 1, "{bytes} {encoded}");
                let (bytes, encoded) = step(kept, fate, |large| _ = large.fields[4].0.as_mut_str());
                assert!(bytes == 0 && encoded <= 2, "borrowed and left as it was: {bytes} {encoded}");
            }
        }
    }

    #[test]
    fn the_encoded_image_is_what_the_changes_add_up_to() {
        let mut kept = Kept::<Large>::new();
        let mut content = StateContent::default();
        for n in 0..200_u32 {
            let fate = if n % 7 == 3 { Fate::Undone } else { Fate::Recorded };
            kept.state.log.push(Counted(n.to_string()));
            kept.state.table.insert(n % 11, Counted(n.to_string()));
            kept.state.fields[(n % 10) as usize].0 = n.to_string();
            match n % 29 {
                5 => kept.state.log.clear(),
                11 => kept.state.table.clear(),
                17 => _ = kept.state.table.remove(&(n % 5)),
                23 => {
                    let [a, b, ..] = &mut kept.state.fields;
                    std::mem::swap(a, b);
                }
                _ => {}
            }
            let change = kept.collect("Large").unwrap();
            match fate {
                Fate::Recorded => content.apply(change.expect("it changed")).unwrap(),
                // Swapped members cannot be taken back: the run would be restored.
                Fate::Undone if n % 29 == 23 => continue,
                Fate::Undone => {}
            }
            kept.apply(fate).unwrap();
            let again = Kept::<Large>::restore(content.clone()).map_err(|_| "unfit").unwrap();
            assert_eq!(again.state.log, kept.state.log, "{n}");
            assert_eq!(again.state.table, kept.state.table, "{n}");
            assert_eq!(again.state.fields, kept.state.fields, "{n}");
        }
    }
}

//! The state of simulated steps: one member of each kind, beside a page that says in plain words what it must hold.
//!
//! Invariant: a page is computed without the code that keeps states, so that the two can be compared.

use crate::{history::Step, rng::Rng};
use lobster_core::{
    Base, Field, Log, Scratch, State, Table,
    store::contract::record::{StateChange, What},
};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// A state. Whoever changes it enters its token.
#[derive(State, Default)]
pub(crate) struct Book {
    /// Token of the first execution.
    first: Base<u64>,
    /// How many there were.
    pub count: Field<u64>,
    /// All of them.
    all: Log<u64>,
    /// Those since somebody cleared it.
    some: Log<u64>,
    table: Table<u32, u64>,
    /// Rounds done, by label.
    rounds: Field<BTreeMap<u32, u32>>,
    /// What `count` is, unless it is left over from an execution that was undone.
    #[state(rebuild = counted)]
    pub mark: Scratch<u64>,
}

fn counted(book: &Book) -> u64 {
    *book.count
}

/// What a book holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Page {
    pub first: Option<u64>,
    pub count: u64,
    pub all: Vec<u64>,
    pub some: Vec<u64>,
    pub table: BTreeMap<u32, u64>,
    pub rounds: BTreeMap<u32, u32>,
}

/// What a recording holds of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Books {
    pub pages: BTreeMap<String, Page>,
    /// Repeated steps that are under way: rounds done, and failed attempts of the next one.
    pub rounds: BTreeMap<Step, (u64, u32)>,
    /// Seq of the snapshot.
    pub folded: u64,
}

impl Book {
    pub fn page(&self) -> Page {
        Page {
            first: self.first.get().copied(),
            count: *self.count,
            all: self.all.to_vec(),
            some: self.some.to_vec(),
            table: self.table.iter().map(|(key, value)| (*key, *value)).collect(),
            rounds: BTreeMap::clone(&self.rounds),
        }
    }
    /// Rounds done of a call.
    pub fn round(&self, label: u32) -> u32 {
        self.rounds.get(&label).copied().unwrap_or(0)
    }
    /// Enters an execution; `round`: the call whose next round it is. Returns what it must hold then.
    pub fn enter(&mut self, rng: &mut Rng, token: u64, round: Option<u32>) -> Page {
        let mut page = self.page();
        match rng.below(16) {
            0 => {
                self.some.clear();
                page.some.clear();
            }
            1 => {
                self.table.clear();
                page.table.clear();
            }
            2 => self.some = page.some.iter().copied().collect(),
            3 => self.table = page.table.clone().into(),
            4 => self.count = Field::new(page.count),
            5 => {
                // As a whole, but for what was written once and what is never lost.
                let (first, all) = (std::mem::take(&mut self.first), std::mem::take(&mut self.all));
                let (count, rounds) = (Field::new(page.count), Field::new(page.rounds.clone()));
                let mark = std::mem::take(&mut self.mark);
                *self = Self { first, all, count, rounds, mark, ..Self::default() };
                page.some.clear();
                page.table.clear();
            }
            _ => {}
        }
        if page.first.is_none() {
            page.first = Some(token);
            self.first.set(token).expect("it is not set");
        }
        self.count += 1;
        page.count += 1;
        for _ in 0..rng.within(1, 3) {
            self.change(&mut page, rng, token);
        }
        self.all.push(token);
        page.all.push(token);
        self.some.push(token);
        page.some.push(token);
        if let Some(label) = round {
            *self.rounds.entry(label).or_default() += 1;
            *page.rounds.entry(label).or_default() += 1;
        }
        *self.mark = page.count;
        page
    }

    fn change(&mut self, page: &mut Page, rng: &mut Rng, token: u64) {
        let key = u32::try_from(rng.below(6)).unwrap_or(0);
        match rng.below(5) {
            0 => {
                self.table.remove(&key);
                page.table.remove(&key);
            }
            1 => {
                *self.table.entry(key).or_default() += 1;
                *page.table.entry(key).or_default() += 1;
            }
            2 => {
                if let (Some(mine), Some(its)) = (self.table.get_mut(&key), page.table.get_mut(&key)) {
                    (*mine, *its) = (*mine * 2, *its * 2);
                }
            }
            _ => {
                self.table.insert(key, token);
                page.table.insert(key, token);
            }
        }
    }
}

/// Token that a change entered; 0: none.
pub(crate) fn entered(change: &StateChange) -> u64 {
    let all = change.members.iter().find(|member| member.member == "all");
    match all.and_then(|all| all.what.as_ref()) {
        Some(What::Items(items)) => items.items.last().and_then(|item| serde_json::from_slice(item).ok()).unwrap_or(0),
        _ => 0,
    }
}

/// Everything recorded of one member, as it is stored.
#[derive(Clone, Debug)]
pub(crate) enum Raw {
    Value(Vec<u8>),
    Items(Vec<Vec<u8>>),
    Entries(BTreeMap<Vec<u8>, Vec<u8>>),
}

fn value<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

impl Page {
    /// Of the members of a book.
    pub fn of(members: &BTreeMap<String, Raw>) -> Result<Self, String> {
        let mut page = Self::default();
        for (member, raw) in members {
            match (member.as_str(), raw) {
                ("first", Raw::Value(bytes)) => page.first = Some(value(bytes)?),
                ("count", Raw::Value(bytes)) => page.count = value(bytes)?,
                ("rounds", Raw::Value(bytes)) => page.rounds = value(bytes)?,
                ("all", Raw::Items(items)) => page.all = items.iter().map(|item| value(item)).collect::<Result<_, _>>()?,
                ("some", Raw::Items(items)) => page.some = items.iter().map(|item| value(item)).collect::<Result<_, _>>()?,
                ("table", Raw::Entries(entries)) => {
                    for (key, of_key) in entries {
                        page.table.insert(value(key)?, value(of_key)?);
                    }
                }
                (member, raw) => return Err(format!("member {member} is recorded as {raw:?}")),
            }
        }
        Ok(page)
    }
}

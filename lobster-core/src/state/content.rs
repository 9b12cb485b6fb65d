//! Encoded content of states: what recorded changes add up to.
//!
//! Invariant: pure; a change that does not fit what it changes is an error, never a guess.

use bytes::Bytes;
use lobster_store::contract::record::{Entries, Entry, Items, MemberChange, StateChange, What, Whole};
use std::collections::BTreeMap;

/// Everything recorded of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A value.
    Value(Bytes),
    /// Items in order.
    Items(Vec<Bytes>),
    /// Values by encoded key.
    Entries(BTreeMap<Bytes, Bytes>),
}

impl Content {
    /// What kind it is of, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Content::Value(_) => "a value",
            Content::Items(_) => "a log",
            Content::Entries(_) => "a table",
        }
    }
    /// Encoded bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Content::Value(value) => value.len(),
            Content::Items(items) => items.iter().map(Bytes::len).sum(),
            Content::Entries(entries) => entries.iter().map(|(key, value)| key.len() + value.len()).sum(),
        }
    }
    /// Values, items or entries.
    pub(crate) fn count(&self) -> usize {
        match self {
            Content::Value(_) => 1,
            Content::Items(items) => items.len(),
            Content::Entries(entries) => entries.len(),
        }
    }
    /// As a change that replaces everything.
    pub(crate) fn into_what(self) -> What {
        match self {
            Content::Value(value) => What::Value(value),
            Content::Items(items) => What::Items(Items { items }),
            Content::Entries(entries) => {
                let entries = entries.into_iter().map(|(key, value)| Entry { key, value: Some(value) }).collect();
                What::Entries(Entries { entries })
            }
        }
    }
    fn empty(what: &What) -> Self {
        match what {
            What::Value(_) => Content::Value(Bytes::new()),
            What::Items(_) => Content::Items(Vec::new()),
            What::Entries(_) => Content::Entries(BTreeMap::new()),
        }
    }
    fn add(&mut self, what: What) -> Result<(), String> {
        match (self, what) {
            (Content::Value(value), What::Value(new)) => *value = new,
            (Content::Items(items), What::Items(new)) => items.extend(new.items),
            (Content::Entries(entries), What::Entries(new)) => {
                for Entry { key, value } in new.entries {
                    match value {
                        Some(value) => _ = entries.insert(key, value),
                        None => _ = entries.remove(&key),
                    }
                }
            }
            (content, _) => return Err(format!("what is recorded is {}, and the change is of another kind", content.kind())),
        }
        Ok(())
    }
}

/// Everything recorded of one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateContent {
    pub version: u32,
    pub codec: i32,
    pub members: BTreeMap<String, Content>,
}

impl StateContent {
    /// Applies a recorded change.
    pub fn apply(&mut self, change: StateChange) -> Result<(), String> {
        if change.whole {
            self.members.clear();
        }
        (self.version, self.codec) = (change.version, change.codec);
        change.members.into_iter().try_for_each(|member| self.change(member))
    }

    fn change(&mut self, MemberChange { member, whole, what }: MemberChange) -> Result<(), String> {
        let what = what.ok_or("a change of nothing")?;
        if whole {
            self.members.remove(&member);
        }
        let content = self.members.entry(member.clone()).or_insert_with(|| Content::empty(&what));
        content.add(what).map_err(|why| format!("member `{member}`: {why}"))
    }

    /// Applies a part of a snapshot.
    pub fn part(&mut self, member: &str, whole: Whole) -> Result<(), String> {
        let what = match whole {
            Whole::Value(value) => What::Value(value),
            Whole::Items(items) => What::Items(items),
            Whole::Entries(entries) => What::Entries(entries),
        };
        self.change(MemberChange { member: member.to_owned(), whole: false, what: Some(what) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(member: &str, whole: bool, what: What) -> StateChange {
        let members = vec![MemberChange { member: member.into(), whole, what: Some(what) }];
        StateChange { state: "s".into(), version: 2, codec: 1, whole: false, members }
    }

    fn items(all: &[&'static str]) -> What {
        What::Items(Items { items: all.iter().map(|item| Bytes::from_static(item.as_bytes())).collect() })
    }

    fn entry(key: &'static str, value: Option<&'static str>) -> Entry {
        Entry { key: Bytes::from_static(key.as_bytes()), value: value.map(|value| Bytes::from_static(value.as_bytes())) }
    }

    #[test]
    fn changes_add_up() {
        let mut state = StateContent::default();
        state.apply(change("log", false, items(&["1", "2"]))).unwrap();
        state.apply(change("log", false, items(&["3"]))).unwrap();
        let entries = |entries: &[Entry]| What::Entries(Entries { entries: entries.to_vec() });
        state.apply(change("table", false, entries(&[entry("a", Some("1")), entry("b", Some("2"))]))).unwrap();
        state.apply(change("table", false, entries(&[entry("a", None), entry("b", Some("3"))]))).unwrap();
        assert_eq!((state.version, state.members["log"].count(), state.members["table"].count()), (2, 3, 1));
        state.apply(change("log", true, items(&["9"]))).unwrap();
        assert_eq!(state.members["log"], Content::Items(vec![Bytes::from_static(b"9")]));
        let whole = StateChange { whole: true, ..change("field", false, What::Value(Bytes::from_static(b"1"))) };
        state.apply(whole).unwrap();
        assert_eq!(state.members.keys().collect::<Vec<_>>(), ["field"]);
    }

    #[test]
    fn a_change_of_another_kind_is_refused() {
        let mut state = StateContent::default();
        state.apply(change("m", false, items(&["1"]))).unwrap();
        let error = state.apply(change("m", false, What::Value(Bytes::new()))).unwrap_err();
        assert!(error.contains("`m`") && error.contains("a log"), "{error}");
        state.apply(change("m", true, What::Value(Bytes::new()))).unwrap();
    }
}

//! Items that are only appended.
//!
//! Invariant: what was recorded is a prefix of what there is, unless everything was cleared.

use super::{
    content::Content,
    member::{Change, Lost, Member, Origin, Tracked, Trouble},
};
use crate::codec;
use lobster_store::contract::record::{Items, What};
use serde::{Serialize, Serializer, de::DeserializeOwned};
use std::{fmt, ops::Deref};

/// Items of a state, in order, that are only appended: a delta holds the new ones. Reads like a slice.
///
/// An item cannot be changed or taken out; [`clear`](Log::clear) drops all of them.
///
/// ```
/// use lobster_core::Log;
/// let mut accepted = Log::default();
/// accepted.push("10248");
/// accepted.extend(["10249", "10250"]);
/// assert_eq!((accepted.len(), accepted[0], accepted.last()), (3, "10248", Some(&"10250")));
/// ```
pub struct Log<T> {
    items: Vec<T>,
    /// So many are settled.
    settled: usize,
    /// What was settled, if it was cleared since.
    cleared: Option<Vec<T>>,
    origin: Origin,
}

impl<T> Log<T> {
    /// Appends an item.
    pub fn push(&mut self, item: T) {
        self.items.push(item);
    }
    /// Drops all items. What follows is recorded as all there is.
    pub fn clear(&mut self) {
        if self.cleared.is_none() {
            self.items.truncate(self.settled);
            self.cleared = Some(std::mem::take(&mut self.items));
        }
        self.items.clear();
    }
    fn of(items: Vec<T>, settled: usize, origin: Origin) -> Self {
        Self { items, settled, cleared: None, origin }
    }
}

impl<T: Serialize> Log<T> {
    fn encode(items: &[T]) -> Result<What, Trouble> {
        let items = items.iter().map(codec::raw).collect::<Result<_, _>>()?;
        Ok(What::Items(Items { items }))
    }
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self::of(Vec::new(), 0, Origin::default())
    }
}

impl<T> Deref for Log<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> Extend<T> for Log<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        self.items.extend(items);
    }
}

impl<T> FromIterator<T> for Log<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::of(items.into_iter().collect(), 0, Origin::default())
    }
}

impl<'l, T> IntoIterator for &'l Log<T> {
    type Item = &'l T;
    type IntoIter = std::slice::Iter<'l, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<T: Serialize + DeserializeOwned + Send> Member for Log<T> {}

impl<T: Serialize + DeserializeOwned> Tracked for Log<T> {
    fn restore(&mut self, content: Content, origin: Origin) -> Result<(), String> {
        let Content::Items(items) = content else { return Err(format!("{} is recorded, the code has a log", content.kind())) };
        let items: Result<Vec<T>, _> = items.iter().map(|item| codec::decode_raw(item)).collect();
        let items = items.map_err(|error| error.to_string())?;
        let settled = items.len();
        *self = Self::of(items, settled, origin);
        Ok(())
    }
    fn attach(&mut self, origin: Origin) {
        // What the default of the state put here is new as a whole.
        let origin = if self.items.is_empty() { origin } else { Origin::default() };
        (self.settled, self.cleared, self.origin) = (0, None, origin);
    }
    fn collect(&mut self, origin: Origin, recorded: bool) -> Result<Option<Change>, Trouble> {
        let whole = self.origin != origin || self.cleared.is_some();
        let new = if whole { &self.items[..] } else { &self.items[self.settled..] };
        if new.is_empty() && !(whole && recorded) {
            return Ok(None);
        }
        let what = Self::encode(new)?;
        if let What::Items(items) = &what {
            items.items.iter().try_for_each(|item| codec::stable::<T>(item))?;
        }
        Ok(Some(Change { whole, what }))
    }
    fn settle(&mut self, origin: Origin) {
        (self.settled, self.cleared, self.origin) = (self.items.len(), None, origin);
    }
    fn roll_back(&mut self, origin: Origin) -> Result<(), Lost> {
        if self.origin != origin {
            return Err(Lost);
        }
        if let Some(items) = self.cleared.take() {
            self.items = items;
        }
        self.items.truncate(self.settled);
        Ok(())
    }
    fn whole(&self) -> Result<Option<What>, Trouble> {
        Ok(Some(Self::encode(&self.items)?))
    }
}

/// A copy belongs to nobody yet: put into a state, it is recorded as a whole.
impl<T: Clone> Clone for Log<T> {
    fn clone(&self) -> Self {
        self.items.iter().cloned().collect()
    }
}

impl<T> From<Vec<T>> for Log<T> {
    fn from(items: Vec<T>) -> Self {
        Self::of(items, 0, Origin::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Log<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Log<T> {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

impl<T: Serialize> Serialize for Log<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.items.serialize(serializer)
    }
}

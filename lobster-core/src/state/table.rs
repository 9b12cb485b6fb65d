//! Entries by key.
//!
//! Invariant: what a key had when it was last recorded is kept, encoded, from the moment somebody may change it.

use super::{
    content::Content,
    member::{Change, Lost, Member, Origin, Tracked, Trouble},
};
use crate::codec;
use bytes::Bytes;
use lobster_store::contract::record::{Entries, Entry as Recorded, What};
use serde::{Serialize, Serializer, de::DeserializeOwned};
use std::{borrow::Borrow, collections::BTreeMap, fmt, ops::Deref};

/// Entries of a state by key: a delta holds only those that changed. Reads like a [`BTreeMap`].
///
/// ```
/// use lobster_core::Table;
/// let mut totals: Table<String, u64> = Table::default();
/// *totals.entry("US".into()).or_default() += 2804;
/// totals.insert("CA".into(), 622);
/// totals.remove("CA");
/// assert_eq!((totals.len(), totals.get("US")), (1, Some(&2804)));
/// ```
pub struct Table<K, V> {
    entries: BTreeMap<K, V>,
    /// What the keys that were touched had when they were last settled.
    before: BTreeMap<K, Before>,
    /// Everything that was settled, if it was cleared since: the entries, and what those touched before had.
    cleared: Option<(BTreeMap<K, V>, BTreeMap<K, Before>)>,
    origin: Origin,
}

/// What a key had.
enum Before {
    Nothing,
    Value(Bytes),
    /// A value without an encoding.
    Lost,
}

impl<K: Ord, V> Table<K, V> {
    fn of(entries: BTreeMap<K, V>, origin: Origin) -> Self {
        Self { entries, before: BTreeMap::new(), cleared: None, origin }
    }
    /// Removes all entries. What follows is recorded as all there is.
    pub fn clear(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        let before = std::mem::take(&mut self.before);
        self.cleared.get_or_insert((entries, before));
    }
}

impl<K: Ord + Clone, V: Serialize> Table<K, V> {
    /// Keeps what the key has now, before somebody changes it.
    fn touch(before: &mut BTreeMap<K, Before>, key: &K, value: Option<&V>) {
        if !before.contains_key(key) {
            let has = match value {
                None => Before::Nothing,
                Some(value) => codec::raw(value).map_or(Before::Lost, Before::Value),
            };
            before.insert(key.clone(), has);
        }
    }

    /// Sets the value of a key; returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        Self::touch(&mut self.before, &key, self.entries.get(&key));
        self.entries.insert(key, value)
    }
    /// Removes a key; returns its value.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (key, value) = self.entries.remove_entry(key)?;
        Self::touch(&mut self.before, &key, Some(&value));
        Some(value)
    }
    /// Borrows the value of a key, to change it.
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (known, value) = self.entries.get_key_value(key)?;
        Self::touch(&mut self.before, known, Some(value));
        self.entries.get_mut(key)
    }
    /// The entry of a key, to look at it and to change it.
    pub fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        Self::touch(&mut self.before, &key, self.entries.get(&key));
        Entry { entry: self.entries.entry(key) }
    }
}

/// An entry of a [`Table`], present or not.
pub struct Entry<'t, K, V> {
    entry: std::collections::btree_map::Entry<'t, K, V>,
}

impl<'t, K: Ord, V> Entry<'t, K, V> {
    /// Its value, after this one was put there if there was none.
    pub fn or_insert(self, value: V) -> &'t mut V {
        self.entry.or_insert(value)
    }
    /// Its value, after what `make` returns was put there if there was none.
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> &'t mut V {
        self.entry.or_insert_with(make)
    }
    /// Its value, after the default was put there if there was none.
    pub fn or_default(self) -> &'t mut V
    where
        V: Default,
    {
        self.entry.or_default()
    }
    /// Changes its value, if there is one.
    #[must_use = "the entry can be filled if it has no value"]
    pub fn and_modify(self, change: impl FnOnce(&mut V)) -> Self {
        Self { entry: self.entry.and_modify(change) }
    }
    /// Its key.
    pub fn key(&self) -> &K {
        self.entry.key()
    }
}

impl<K: fmt::Debug + Ord, V: fmt::Debug> fmt::Debug for Entry<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entry.fmt(f)
    }
}

impl<K: Ord, V> Default for Table<K, V> {
    fn default() -> Self {
        Self::of(BTreeMap::new(), Origin::default())
    }
}

impl<K, V> Deref for Table<K, V> {
    type Target = BTreeMap<K, V>;
    fn deref(&self) -> &BTreeMap<K, V> {
        &self.entries
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Table<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self::of(entries.into_iter().collect(), Origin::default())
    }
}

impl<'t, K, V> IntoIterator for &'t Table<K, V> {
    type Item = (&'t K, &'t V);
    type IntoIter = std::collections::btree_map::Iter<'t, K, V>;
    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

impl<K, V> Member for Table<K, V>
where
    K: Ord + Clone + Serialize + DeserializeOwned + Send,
    V: Serialize + DeserializeOwned + Send,
{
}

impl<K, V> Tracked for Table<K, V>
where
    K: Ord + Clone + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    fn restore(&mut self, content: Content, origin: Origin) -> Result<(), String> {
        let Content::Entries(entries) = content else {
            return Err(format!("{} is recorded, the code has a table", content.kind()));
        };
        let decode = |(key, value): (Bytes, Bytes)| Ok((codec::decode_raw(&key)?, codec::decode_raw(&value)?));
        let entries: Result<_, codec::CodecError> = entries.into_iter().map(decode).collect();
        *self = Self::of(entries.map_err(|error| error.to_string())?, origin);
        Ok(())
    }
    fn attach(&mut self, origin: Origin) {
        // What the default of the state put here is new as a whole.
        let origin = if self.entries.is_empty() { origin } else { Origin::default() };
        self.settle(origin);
    }
    fn collect(&mut self, origin: Origin, recorded: bool) -> Result<Option<Change>, Trouble> {
        let whole = self.origin != origin || self.cleared.is_some();
        if whole {
            return match self.whole()? {
                Some(What::Entries(all)) if all.entries.is_empty() && !recorded => Ok(None),
                what => Ok(what.map(|what| Change { whole, what })),
            };
        }
        let mut entries = Vec::new();
        for (key, before) in &self.before {
            let value = self.entries.get(key).map(codec::raw).transpose()?;
            let same = match (before, &value) {
                (Before::Nothing, None) => true,
                (Before::Value(before), Some(value)) => before == value,
                _ => false,
            };
            if !same {
                let key = codec::raw(key)?;
                codec::stable::<K>(&key)?;
                value.iter().try_for_each(|value| codec::stable::<V>(value))?;
                entries.push(Recorded { key, value });
            }
        }
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let what = What::Entries(Entries { entries });
        Ok((what != What::Entries(Entries::default())).then_some(Change { whole, what }))
    }
    fn settle(&mut self, origin: Origin) {
        self.before.clear();
        (self.cleared, self.origin) = (None, origin);
    }
    fn roll_back(&mut self, origin: Origin) -> Result<(), Lost> {
        if self.origin != origin {
            return Err(Lost);
        }
        if let Some((entries, before)) = self.cleared.take() {
            (self.entries, self.before) = (entries, before);
        }
        for (key, before) in std::mem::take(&mut self.before) {
            match before {
                Before::Nothing => _ = self.entries.remove(&key),
                Before::Value(bytes) => _ = self.entries.insert(key, codec::decode_raw(&bytes).map_err(|_| Lost)?),
                Before::Lost => return Err(Lost),
            }
        }
        Ok(())
    }
    fn whole(&self) -> Result<Option<What>, Trouble> {
        let encode = |(key, value): (&K, &V)| Ok(Recorded { key: codec::raw(key)?, value: Some(codec::raw(value)?) });
        let entries: Result<Vec<_>, codec::CodecError> = self.entries.iter().map(encode).collect();
        let mut entries = entries?;
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(Some(What::Entries(Entries { entries })))
    }
}

/// A copy belongs to nobody yet: put into a state, it is recorded as a whole.
impl<K: Ord + Clone, V: Clone> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Self::of(self.entries.clone(), Origin::default())
    }
}

impl<K: Ord, V> From<BTreeMap<K, V>> for Table<K, V> {
    fn from(entries: BTreeMap<K, V>) -> Self {
        Self::of(entries, Origin::default())
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.fmt(f)
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Table<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl<K: Serialize, V: Serialize> Serialize for Table<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.entries.serialize(serializer)
    }
}

//! A value that is written once.
//!
//! Invariant: once recorded it never changes.

use super::{
    content::Content,
    member::{Change, Lost, Member, Origin, Tracked, Trouble},
};
use crate::codec;
use lobster_store::contract::record::What;
use serde::{Serialize, Serializer, de::DeserializeOwned};
use std::{fmt, ops::Deref};

/// A value of a state that is written once, by the first step that sets it, and only read from then on.
///
/// # Panics
/// Using it as its value (`s.source.url`) panics while it is not set: [`get`](Base::get) asks.
///
/// ```
/// use lobster_core::Base;
/// let mut source = Base::<String>::default();
/// assert!(source.get().is_none());
/// source.set("navaids.csv".to_owned())?;
/// assert_eq!(source.len(), 11);
/// assert!(source.set("another".to_owned()).is_err());
/// # Ok::<(), lobster_core::AlreadySet>(())
/// ```
pub struct Base<T> {
    value: Option<T>,
    since: Since,
    origin: Origin,
}

/// Since when a base has what it has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// It was recorded, or is empty.
    Settled,
    /// It came with the default of its state, or from elsewhere.
    Made,
    /// A step set it.
    Set,
}

/// A [`Base`] was set already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a base is written once, and was")]
pub struct AlreadySet;

impl<T> Base<T> {
    /// A base with this value: recorded by the first step that records anything of its state.
    pub fn new(value: T) -> Self {
        Self { value: Some(value), since: Since::Made, origin: Origin::default() }
    }
    /// Sets the value.
    ///
    /// # Errors
    /// [`AlreadySet`]: it has one, recorded or not.
    pub fn set(&mut self, value: T) -> Result<(), AlreadySet> {
        if self.value.is_some() {
            return Err(AlreadySet);
        }
        (self.value, self.since) = (Some(value), Since::Set);
        Ok(())
    }
    /// The value, if it was set.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }
}

impl<T> Default for Base<T> {
    fn default() -> Self {
        Self { value: None, since: Since::Settled, origin: Origin::default() }
    }
}

impl<T> Deref for Base<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("this base was not set yet: `get()` tells")
    }
}

impl<T: Serialize + DeserializeOwned + Send> Member for Base<T> {}

impl<T: Serialize + DeserializeOwned> Tracked for Base<T> {
    fn restore(&mut self, content: Content, origin: Origin) -> Result<(), String> {
        let Content::Value(bytes) = content else { return Err(format!("{} is recorded, the code has a base", content.kind())) };
        let value = codec::decode_raw(&bytes).map_err(|error| error.to_string())?;
        *self = Self { value: Some(value), since: Since::Settled, origin };
        Ok(())
    }
    fn attach(&mut self, origin: Origin) {
        self.since = if self.value.is_some() { Since::Made } else { Since::Settled };
        self.origin = origin;
    }
    fn collect(&mut self, origin: Origin, recorded: bool) -> Result<Option<Change>, Trouble> {
        let new = self.origin != origin || self.since != Since::Settled;
        if recorded && new {
            return Err(Trouble::WrittenOnce);
        }
        match &self.value {
            Some(value) if new => {
                let bytes = codec::raw(value)?;
                codec::stable::<T>(&bytes)?;
                Ok(Some(Change { whole: true, what: What::Value(bytes) }))
            }
            _ => Ok(None),
        }
    }
    fn settle(&mut self, origin: Origin) {
        (self.since, self.origin) = (Since::Settled, origin);
    }
    fn roll_back(&mut self, origin: Origin) -> Result<(), Lost> {
        if self.origin != origin {
            return Err(Lost);
        }
        if self.since == Since::Set {
            (self.value, self.since) = (None, Since::Settled);
        }
        Ok(())
    }
    fn whole(&self) -> Result<Option<What>, Trouble> {
        self.value.as_ref().map(|value| Ok(What::Value(codec::raw(value)?))).transpose()
    }
}

/// A copy belongs to nobody yet.
impl<T: Clone> Clone for Base<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), since: Since::Made, origin: Origin::default() }
    }
}

impl<T> From<T> for Base<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: fmt::Debug> fmt::Debug for Base<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Base<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Serialize> Serialize for Base<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

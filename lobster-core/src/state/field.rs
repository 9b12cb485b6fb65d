//! A value that changes.
//!
//! Invariant: what it was when it was last recorded is kept encoded, so a change can be told, and taken back, without a copy.

use super::{
    content::Content,
    member::{Change, Lost, Member, Origin, Tracked, Trouble},
};
use crate::codec;
use bytes::Bytes;
use lobster_store::contract::record::What;
use serde::{Serialize, Serializer, de::DeserializeOwned};
use std::{
    fmt,
    ops::{self, Deref, DerefMut},
};

/// A value of a state that is recorded as a whole when it changed.
///
/// It is used like the value itself (`*s.cursor`, `s.cursor += 100`, methods of `T`). Borrowing it mutably makes it a candidate; it is
/// recorded only if its encoding differs then.
///
/// ```
/// use lobster_core::Field;
/// let mut cursor = Field::new(5_u64);
/// cursor += 100;
/// assert_eq!(*cursor, 105);
/// *cursor = 7;
/// assert_eq!(cursor, 7);
/// ```
#[derive(Default)]
pub struct Field<T> {
    value: T,
    /// It was borrowed mutably since it was settled.
    touched: bool,
    /// Its encoding when it was last settled, once somebody may have changed it or it was recorded.
    settled: Option<Bytes>,
    /// Its encoding as collected.
    collected: Option<Bytes>,
    origin: Origin,
}

impl<T> Field<T> {
    /// A field with this value.
    pub fn new(value: T) -> Self {
        Self { value, touched: false, settled: None, collected: None, origin: Origin::default() }
    }
    /// The value.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T: Serialize> Field<T> {
    /// Puts another value in its place.
    pub fn set(&mut self, value: T) {
        **self = value;
    }
    fn touch(&mut self) {
        if !self.touched {
            self.touched = true;
            if self.settled.is_none() {
                // A value without an encoding is told of when it is collected.
                self.settled = codec::raw(&self.value).ok();
            }
        }
    }
}

impl<T> Deref for Field<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Serialize> DerefMut for Field<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.touch();
        &mut self.value
    }
}

impl<T: Serialize + DeserializeOwned + Send> Member for Field<T> {}

impl<T: Serialize + DeserializeOwned> Tracked for Field<T> {
    fn restore(&mut self, content: Content, origin: Origin) -> Result<(), String> {
        let Content::Value(bytes) = content else { return Err(format!("{} is recorded, the code has a field", content.kind())) };
        let value = codec::decode_raw(&bytes).map_err(|error| error.to_string())?;
        *self = Self { value, touched: false, settled: Some(bytes), collected: None, origin };
        Ok(())
    }
    fn attach(&mut self, origin: Origin) {
        (self.touched, self.settled, self.collected, self.origin) = (false, None, None, origin);
    }
    fn collect(&mut self, origin: Origin, _recorded: bool) -> Result<Option<Change>, Trouble> {
        let foreign = self.origin != origin;
        if !self.touched && !foreign {
            return Ok(None);
        }
        let bytes = codec::raw_again(&self.value, self.settled.as_ref().map_or(0, Bytes::len))?;
        // A foreign one that nobody recorded before may be the default all the same: it is written.
        if !foreign && self.settled.as_ref() == Some(&bytes) {
            return Ok(None);
        }
        codec::stable::<T>(&bytes)?;
        self.collected = Some(bytes.clone());
        Ok(Some(Change { whole: true, what: What::Value(bytes) }))
    }
    fn settle(&mut self, origin: Origin) {
        if let Some(bytes) = self.collected.take() {
            self.settled = Some(bytes);
        }
        self.touched = false;
        self.origin = origin;
    }
    fn roll_back(&mut self, origin: Origin) -> Result<(), Lost> {
        self.collected = None;
        if self.origin != origin {
            return Err(Lost);
        }
        if self.touched {
            let settled = self.settled.as_ref().ok_or(Lost)?;
            self.value = codec::decode_raw(settled).map_err(|_| Lost)?;
            self.touched = false;
        }
        Ok(())
    }
    fn whole(&self) -> Result<Option<What>, Trouble> {
        Ok(Some(What::Value(codec::raw(&self.value)?)))
    }
}

/// A copy belongs to nobody yet: put into a state, it is recorded as a whole.
impl<T: Clone> Clone for Field<T> {
    fn clone(&self) -> Self {
        Self::new(self.value.clone())
    }
}

impl<T> From<T> for Field<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: fmt::Debug> fmt::Debug for Field<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: fmt::Display> fmt::Display for Field<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Field<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: PartialEq> PartialEq<T> for Field<T> {
    fn eq(&self, other: &T) -> bool {
        self.value == *other
    }
}

impl<T: PartialOrd> PartialOrd<T> for Field<T> {
    fn partial_cmp(&self, other: &T) -> Option<std::cmp::Ordering> {
        self.value.partial_cmp(other)
    }
}

impl<T: Serialize> Serialize for Field<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

macro_rules! assigning {
    ($($operator:ident $method:ident),*) => {$(
        impl<T: ops::$operator<R> + Serialize, R> ops::$operator<R> for Field<T> {
            fn $method(&mut self, right: R) {
                ops::$operator::$method(&mut **self, right);
            }
        }
    )*};
}
assigning!(
    AddAssign add_assign, SubAssign sub_assign, MulAssign mul_assign, DivAssign div_assign, RemAssign rem_assign,
    BitAndAssign bitand_assign, BitOrAssign bitor_assign, BitXorAssign bitxor_assign, ShlAssign shl_assign, ShrAssign shr_assign
);

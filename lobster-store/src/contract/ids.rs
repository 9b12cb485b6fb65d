//! Identities and positions, each a type of its own.
//!
//! Invariant: ids come from the engine; a store never makes one up.

use std::fmt;
use uuid::Uuid;

/// A run: always a UUIDv7, made at submit and never changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub Uuid);

/// One start of a host process: a fresh UUID each time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub Uuid);

macro_rules! uuid_words {
    ($($name:ident),*) => {$(
        impl $name {
            /// The sixteen bytes, as stored.
            pub fn bytes(&self) -> [u8; 16] { *self.0.as_bytes() }
            /// From sixteen stored bytes; `None` for any other length.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> { Uuid::from_slice(bytes).ok().map(Self) }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
        impl std::str::FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, uuid::Error> { text.parse().map(Self) }
        }
    )*};
}
uuid_words!(RunId, Incarnation);

/// Number of owners a run has had: grows by one per claim. The fencing token.
pub type Epoch = u64;

/// Position of a delta in a run: gapless, the first is 1. A tail of 0 means that nothing is recorded.
pub type Seq = u64;

/// CRC32 of the last appended row of a run; 0 while nothing is recorded. With the tail it tells one lineage from another.
pub type Mark = u32;

/// SHA-256 of the canonical encoding of an input: tells "the same key again" from "the same key, other input".
pub type Digest = [u8; 32];

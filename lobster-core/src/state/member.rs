//! What the engine asks of a member of a state.
//!
//! Invariant: a member says of itself what changed since it was last recorded, and a member of foreign origin is new as a whole.

use super::content::Content;
use crate::codec::CodecError;
use lobster_store::contract::record::What;
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// A member of a state: [`Base`](super::Base), [`Field`](super::Field), [`Log`](super::Log), [`Table`](super::Table) or
/// [`Scratch`](super::Scratch). Nothing to implement or to call by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a member of a state",
    label = "not a member of a state",
    note = "wrap it: `Field<T>` for a value that changes, `Base<T>` for one that is written once, `Log<T>` for items that are only \
            appended, `Table<K, V>` for entries by key, `Scratch<T>` for what is never recorded"
)]
pub trait Member: Tracked + Send {}

/// Where a member belongs: which state in memory, and which member of it. A member that was made elsewhere (`*s = ..`, `mem::swap`)
/// has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Origin {
    state: u64,
    member: u32,
}

impl Origin {
    /// A state in memory that no other is like.
    pub(crate) fn state() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
    /// The member at this place in it.
    pub(crate) fn of(state: u64, member: usize) -> Self {
        Self { state, member: u32::try_from(member).expect("a struct has fewer fields") }
    }
}

/// What changed of a member.
#[derive(Debug, PartialEq)]
pub struct Change {
    /// Nothing of what was recorded before stays.
    pub whole: bool,
    /// What is new.
    pub what: What,
}

/// Why a member has nothing to record although it changed.
#[derive(Debug)]
pub enum Trouble {
    /// Its value has no encoding.
    Codec(String),
    /// It is written once, and was.
    WrittenOnce,
    /// What it would be read back as is not what it is.
    Unstable,
}

impl From<CodecError> for Trouble {
    fn from(error: CodecError) -> Self {
        Trouble::Codec(error.to_string())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Codec(error) => error.fmt(f),
            Trouble::WrittenOnce => f.write_str("it is written once, and was"),
            Trouble::Unstable => f.write_str("its value does not come back from its encoding as it was"),
        }
    }
}

/// What it was cannot be had back from memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Lost;

/// The engine's side of a member.
pub trait Tracked {
    /// Takes recorded content, and its place.
    ///
    /// # Errors
    /// The content is of another kind, or does not decode.
    fn restore(&mut self, content: Content, origin: Origin) -> Result<(), String>;
    /// Takes its place, with the value it has: nothing of it is recorded.
    fn attach(&mut self, origin: Origin);
    /// What changed since it was last settled; `None`: nothing, or nothing to record. `recorded`: there is content of it.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn collect(&mut self, origin: Origin, recorded: bool) -> Result<Option<Change>, Trouble>;
    /// What was collected is recorded.
    fn settle(&mut self, origin: Origin);
    /// Back to what it was when it was last settled.
    ///
    /// # Errors
    /// [`Lost`].
    fn roll_back(&mut self, origin: Origin) -> Result<(), Lost>;
    /// Everything, as it would be recorded; `None`: nothing is ever recorded of it, or there is nothing yet.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn whole(&self) -> Result<Option<What>, Trouble>;
}

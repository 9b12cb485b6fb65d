//! What is never recorded.
//!
//! Invariant: a step sees it filled, and never filled by an attempt that failed.

use super::{
    content::Content,
    member::{Change, Lost, Member, Origin, Tracked, Trouble},
};
use lobster_store::contract::record::What;
use std::{
    fmt,
    ops::{Deref, DerefMut},
};

/// A value of a state that is never recorded: a parser, a connection, a cache. It lives as long as the run stays where it is, and is
/// made anew after a move or a failed attempt: by `#[state(rebuild = path)]`, a function of the state (`fn(&S) -> T`), or by its default.
///
/// ```
/// use lobster_core::{Field, Scratch, State};
///
/// #[derive(State, Default)]
/// struct Words {
///     text: Field<String>,
///     #[state(rebuild = count)]
///     count: Scratch<usize>,
/// }
///
/// fn count(words: &Words) -> usize {
///     words.text.split(' ').count()
/// }
/// ```
pub struct Scratch<T>(Option<T>);

/// Functions, not methods: a method of this name is one of the value.
impl<T> Scratch<T> {
    /// Is it to be made anew?
    pub fn is_empty(this: &Self) -> bool {
        this.0.is_none()
    }
    /// Puts a value there.
    pub fn fill(this: &mut Self, value: T) {
        this.0 = Some(value);
    }
    /// Puts the default there, if it is to be made anew. `#[derive(State)]` calls it, by [`expand::Recorded`](crate::expand::Recorded).
    pub fn fill_by_default(&mut self)
    where
        T: Default,
    {
        self.0.get_or_insert_default();
    }
}

impl<T> Default for Scratch<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Deref for Scratch<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("the engine fills a scratch before a step sees it")
    }
}

impl<T> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("the engine fills a scratch before a step sees it")
    }
}

impl<T: Send> Member for Scratch<T> {}

impl<T> Tracked for Scratch<T> {
    fn restore(&mut self, content: Content, _: Origin) -> Result<(), String> {
        Err(format!("{} is recorded, the code has a scratch", content.kind()))
    }
    fn attach(&mut self, _: Origin) {}
    fn collect(&mut self, _: Origin, _: bool) -> Result<Option<Change>, Trouble> {
        Ok(None)
    }
    fn settle(&mut self, _: Origin) {}
    fn roll_back(&mut self, _: Origin) -> Result<(), Lost> {
        self.0 = None;
        Ok(())
    }
    fn whole(&self) -> Result<Option<What>, Trouble> {
        Ok(None)
    }
}

impl<T: fmt::Debug> fmt::Debug for Scratch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

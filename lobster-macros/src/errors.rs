//! Collects what is wrong with one item, so that an author sees all of it at once.
//!
//! Invariant: a mistake is pushed exactly once, at the token that has to change.

use std::fmt::Display;

use quote::ToTokens;

/// The mistakes found so far.
#[derive(Default)]
pub struct Errors(Option<syn::Error>);

impl Errors {
    /// Adds a mistake.
    pub fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            none => *none = Some(error),
        }
    }

    /// Adds a mistake that lies in `at`.
    pub fn at(&mut self, at: impl ToTokens, message: impl Display) {
        self.push(syn::Error::new_spanned(at, message));
    }

    /// The value, or its mistake is added.
    pub fn keep<T>(&mut self, value: syn::Result<T>) -> Option<T> {
        value.map_err(|error| self.push(error)).ok()
    }

    /// All mistakes as one error, if there are any.
    pub fn into_error(self) -> Option<syn::Error> {
        self.0
    }
}

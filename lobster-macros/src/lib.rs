//! `#[step]`, `#[task]` and `#[derive(State)]`: what turns plain async functions into recorded steps and registered tasks, and plain
//! structs into what steps change.
//!
//! The one invariant: everything written here a person could write by hand against `lobster_core::expand`, and nothing of
//! it depends on where in a function something stands. A name, or an explicit key, is the only identity.
//!
//! Use the macros through `lobster_core`, which re-exports them.

use proc_macro::TokenStream;

mod emit;
mod errors;
mod fallback;
mod model;
mod parse;

/// `#[step]`: documented, with compiled examples, where `lobster_core` re-exports it.
#[proc_macro_attribute]
pub fn step(options: TokenStream, item: TokenStream) -> TokenStream {
    match parse::step(options.into(), item.into()) {
        Ok(step) => emit::step(&step).into(),
        Err(broken) => fallback::step(*broken).into(),
    }
}

/// `#[derive(State)]`: documented, with compiled examples, where `lobster_core` re-exports it.
#[proc_macro_derive(State, attributes(state))]
pub fn state(item: TokenStream) -> TokenStream {
    match parse::state(item.into()) {
        Ok(state) => emit::state(&state).into(),
        Err(broken) => fallback::state(&broken.0, broken.1.as_ref()).into(),
    }
}

/// `#[task]`: documented, with compiled examples, where `lobster_core` re-exports it.
#[proc_macro_attribute]
pub fn task(options: TokenStream, item: TokenStream) -> TokenStream {
    match parse::task(options.into(), item.into()) {
        Ok(task) => emit::task(&task).into(),
        Err(broken) => fallback::task(*broken).into(),
    }
}

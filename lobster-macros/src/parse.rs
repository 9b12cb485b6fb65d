//! From an attribute and an item to a model. The only place that reads attributes.
//!
//! Invariant: a mistake in one option hides no mistake elsewhere, and what could be understood is handed on.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, DeriveInput, Path, Signature, Visibility};

use crate::errors::Errors;
use crate::model::{Broken, Function, Rest, Shape, State, Step, Task};

mod options;
mod signature;
mod state;
mod state_argument;
mod step;
mod task;
mod values;

/// Reads a function under `#[step]`.
pub fn step(options: TokenStream, item: TokenStream) -> Result<Step, Box<Broken<Step>>> {
    let mut errors = Errors::default();
    let function = function(item, "step")?;
    let options = step::options(options, &mut errors);
    values::check_default_name(options.name.as_ref(), &function.sig.ident, &mut errors);
    let shape = signature::of_step(&function, &options.kind, &mut errors);
    let root = options.root.clone();
    settle(errors, function, shape, root, |function, shape| Step { function, shape, options })
}

/// Reads a function under `#[task]`.
pub fn task(options: TokenStream, item: TokenStream) -> Result<Task, Box<Broken<Task>>> {
    let mut errors = Errors::default();
    let function = function(item, "task")?;
    let options = task::options(options, &mut errors);
    values::check_default_name(options.name.as_ref(), &function.sig.ident, &mut errors);
    let shape = signature::of_task(&function, &mut errors);
    let root = options.root.clone();
    settle(errors, function, shape, root, |function, shape| Task { function, shape, options })
}

/// Reads a struct under `#[derive(State)]`; with mistakes, what could be understood of it.
pub fn state(item: TokenStream) -> Result<State, Box<(syn::Error, Option<State>)>> {
    let mut errors = Errors::default();
    let item: DeriveInput = syn::parse2(item).map_err(|error| Box::new((error, None)))?;
    let state = state::read(item, &mut errors);
    match (errors.into_error(), state) {
        (None, Some(state)) => Ok(state),
        (Some(error), state) => Err(Box::new((error, state))),
        (None, None) => Err(Box::new((syn::Error::new(Span::call_site(), "this item is not supported"), None))),
    }
}

/// Whether this is the helper attribute of states, on a parameter, a struct or a field.
pub fn is_state(attr: &Attribute) -> bool {
    attr.path().is_ident("state")
}

/// A model is good only without mistakes; with mistakes in the options alone it is still worth writing out.
fn settle<M>(
    errors: Errors,
    function: Function,
    shape: Option<Shape>,
    root: Path,
    model: impl FnOnce(Function, Shape) -> M,
) -> Result<M, Box<Broken<M>>> {
    match (errors.into_error(), shape) {
        (None, Some(shape)) => Ok(model(function, shape)),
        (Some(error), Some(shape)) => Err(Box::new(Broken { error, rest: Rest::Model(model(function, shape)) })),
        (error, None) => {
            let error = error.unwrap_or_else(|| syn::Error::new_spanned(&function.sig, "this signature is not supported"));
            Err(Box::new(Broken { error, rest: Rest::Function { function: Box::new(function), root } }))
        }
    }
}

fn function<M>(item: TokenStream, attribute: &str) -> Result<Function, Box<Broken<M>>> {
    read_function.parse2(item.clone()).map_err(|_| {
        let message = format!("`#[{attribute}]` goes on a free `async fn` with a body");
        // The first tokens name the item; the whole of it would underline a page.
        let head: TokenStream = item.clone().into_iter().take_while(|token| !matches!(token, TokenTree::Group(_))).collect();
        let error = syn::Error::new_spanned(if head.is_empty() { &item } else { &head }, message);
        Box::new(Broken { error, rest: Rest::Item(item) })
    })
}

/// Reads up to the body and takes that as it is, so that half-written code still gets its completions and its own errors.
fn read_function(input: ParseStream) -> syn::Result<Function> {
    let attrs = input.call(Attribute::parse_outer)?;
    let vis: Visibility = input.parse()?;
    let sig: Signature = input.parse()?;
    let block: Group = input.parse()?;
    Ok(Function { attrs, vis, sig, block })
}

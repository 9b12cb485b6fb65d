//! Reads `#[task(..)]`.
//!
//! Invariant: a task without options is version 1 under its function's name.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Ident, Path, Token, bracketed};

use super::options::{Allowed, each};
use super::{step, values};
use crate::errors::Errors;
use crate::model::TaskOptions;

const TASK: Allowed = Allowed {
    whose: "a task",
    options: &[
        ("name", "name = \"checkout\""),
        ("version", "version = 2"),
        ("max_attempts", "max_attempts = 10"),
        ("steps", "steps = [quote, charge]"),
        ("crate", "crate = \"::lobster_core\""),
    ],
    later: &["class", "needs", "requires"],
};

/// Reads the options of a task; wrong ones count as not given.
pub fn options(tokens: TokenStream, errors: &mut Errors) -> TaskOptions {
    let mut options = TaskOptions { root: step::default_root(), name: None, version: 1, max_attempts: None, steps: None };
    each(tokens, &TASK, errors, |name, usage, input, errors| {
        match name.to_string().as_str() {
            "name" => options.name = Some(values::name(input, usage)?),
            "version" => options.version = values::count(input, usage)?,
            "max_attempts" => options.max_attempts = Some(values::count(input, usage)?),
            "steps" => options.steps = Some(steps(input, usage, errors)?),
            _ => options.root = values::path(input, usage)?,
        }
        Ok(())
    });
    options
}

/// The durable name is the function's unless it was given.
pub fn check_name(options: &TaskOptions, function: &Ident, errors: &mut Errors) {
    if options.name.is_none() {
        errors.keep(values::check_name(&function.unraw().to_string(), function.span()));
    }
}

fn steps(input: ParseStream, usage: &str, errors: &mut Errors) -> syn::Result<Vec<Path>> {
    values::equals(input, usage)?;
    if !input.peek(syn::token::Bracket) {
        return Err(input.error(format!("expected a list of steps: write `{usage}`")));
    }
    let list;
    bracketed!(list in input);
    let listed = Punctuated::<Path, Token![,]>::parse_terminated(&list)
        .map_err(|error| syn::Error::new(error.span(), format!("expected the path of a step: write `{usage}`")))?;
    let mut seen: Vec<String> = Vec::new();
    let mut steps = Vec::new();
    for step in listed {
        let text = step.to_token_stream().to_string();
        if seen.contains(&text) {
            errors.at(&step, format!("`{text}` is listed twice"));
        } else {
            seen.push(text);
            steps.push(step);
        }
    }
    Ok(steps)
}

//! Reads `#[task(..)]`.
//!
//! Invariant: a task without options is version 1 under its function's name.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Path, Token, bracketed};

use super::options::{Allowed, Given, default_root, each};
use super::values;
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
    let mut options = TaskOptions { root: default_root(), name: None, version: 1, max_attempts: None, steps: None };
    each(tokens, &TASK, errors, |option| {
        match option.name.to_string().as_str() {
            "name" => options.name = Some(values::name(&option)?),
            "version" => options.version = values::count(&option)?,
            "max_attempts" => options.max_attempts = Some(values::count(&option)?),
            "steps" => options.steps = Some(steps(option)?),
            _ => options.root = values::path(&option)?,
        }
        Ok(())
    });
    options
}

fn steps(option: Given) -> syn::Result<Vec<Path>> {
    option.equals()?;
    if !option.input.peek(syn::token::Bracket) {
        return Err(option.error(format!("expected a list of steps: write `{}`", option.usage)));
    }
    let (list, input) = (Punctuated::<Path, Token![,]>::parse_terminated, option.input);
    let content;
    bracketed!(content in input);
    let listed = list
        .parse2(content.parse()?)
        .map_err(|error| syn::Error::new(error.span(), format!("expected the path of a step: write `{}`", option.usage)))?;
    let mut seen: Vec<String> = Vec::new();
    let mut steps = Vec::new();
    for step in listed {
        let text = step.to_token_stream().to_string();
        if seen.contains(&text) {
            option.errors.at(&step, format!("`{text}` is listed twice"));
        } else {
            seen.push(text);
            steps.push(step);
        }
    }
    Ok(steps)
}

//! Reads `#[step(..)]`.
//!
//! Invariant: an option that would be ignored for this kind of step is refused.

use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::{Expr, Ident, parenthesized};

use super::options::{Allowed, Given, closest, default_root, did_you_mean, each};
use super::values;
use crate::errors::Errors;
use crate::model::{InDoubt, Irreversible, Kind, OnExhausted, Retry, StepOptions};

const STEP: Allowed = Allowed {
    whose: "a step",
    options: &[
        ("durable", "durable"),
        ("irreversible", "irreversible"),
        ("transactional", "transactional"),
        ("name", "name = \"quote\""),
        ("key", "key = order.id"),
        ("retry", "retry(attempts = 5, first = 200ms, factor = 2, cap = 30s, jitter = full)"),
        ("timeout", "timeout = 5s"),
        ("in_doubt", "in_doubt = hold"),
        ("max_duration", "max_duration = 10s"),
        ("on_exhausted", "on_exhausted = hold"),
        ("crate", "crate = \"::lobster_core\""),
    ],
    later: &["check"],
};

const RETRY: Allowed = Allowed {
    whose: "`retry`",
    options: &[
        ("attempts", "attempts = 5"),
        ("first", "first = 200ms"),
        ("factor", "factor = 2"),
        ("cap", "cap = 30s"),
        ("jitter", "jitter = full"),
    ],
    later: &[],
};

const THE_THREE: &str = "\
    `in_doubt = retry`: call again with the same idempotency key, because the other side does one key once\n  \
    `in_doubt = probe(find_charge)`: ask it with a function of yours, `async fn(&StepCtx, &args..) -> Result<Fate<T>>`\n  \
    `in_doubt = hold`: leave it to a person; the run waits until somebody resolves it";

/// What was written, each with where, before it is known whether it fits together. A wrong value still counts as an option
/// that was written, so that it is not reported as missing too.
#[derive(Default)]
struct Written {
    durable: Option<Ident>,
    irreversible: Option<Ident>,
    transactional: Option<Ident>,
    timeout: Option<(Ident, Option<u64>)>,
    in_doubt: Option<(Ident, Option<InDoubt>)>,
    max_duration: Option<(Ident, Option<u64>)>,
    on_exhausted: Option<(Ident, Option<OnExhausted>)>,
}

/// Reads the options of a step; wrong ones count as not given.
pub fn options(tokens: TokenStream, errors: &mut Errors) -> StepOptions {
    let mut options =
        StepOptions { root: default_root(), name: None, kind: Kind::Ordinary, key: None, retry: None, timeout_ms: None };
    let mut written = Written::default();
    each(tokens, &STEP, errors, |option| {
        let name = option.name.clone();
        match name.to_string().as_str() {
            "durable" => written.durable = Some(flag(&option)?),
            "irreversible" => written.irreversible = Some(flag(&option)?),
            "transactional" => written.transactional = Some(flag(&option)?),
            "name" => options.name = Some(values::name(&option)?),
            "key" => options.key = Some(key(&option)?),
            "retry" => options.retry = Some(retry(option)?),
            "timeout" => written.timeout = Some((name, option.keep(values::duration_ms))),
            "in_doubt" => written.in_doubt = Some((name, option.keep(in_doubt))),
            "max_duration" => written.max_duration = Some((name, option.keep(values::duration_ms))),
            "on_exhausted" => written.on_exhausted = Some((name, option.keep(on_exhausted))),
            _ => options.root = values::path(&option)?,
        }
        Ok(())
    });
    options.timeout_ms = written.timeout.as_ref().and_then(|(_, ms)| *ms);
    options.kind = kind(written, errors);
    options
}

fn flag(option: &Given) -> syn::Result<Ident> {
    if option.at_end() { Ok(option.name.clone()) } else { Err(option.error(format!("`{}` takes no value", option.name))) }
}

fn key(option: &Given) -> syn::Result<Expr> {
    option.equals()?;
    option.input.parse()
}

fn retry(option: Given) -> syn::Result<Retry> {
    if !option.input.peek(syn::token::Paren) {
        return Err(syn::Error::new(option.name.span(), format!("expected a list: write `{}`", option.usage)));
    }
    let input = option.input;
    let content;
    parenthesized!(content in input);
    let mut retry = Retry::default();
    let mut cap_at = None;
    each(content.parse()?, &RETRY, option.errors, |option| {
        match option.name.to_string().as_str() {
            "attempts" => retry.attempts = Some(values::count(&option)?),
            "first" => retry.first_ms = Some(values::duration_ms(&option)?),
            "factor" => retry.factor = Some(values::count(&option)?),
            "cap" => (retry.cap_ms, cap_at) = (Some(values::duration_ms(&option)?), Some(option.name)),
            _ => retry.jitter = Some(values::word(&option, &[("full", true), ("none", false)])?),
        }
        Ok(())
    });
    if retry.first_ms.zip(retry.cap_ms).is_some_and(|(first, cap)| first > cap) {
        option.errors.at(cap_at, "`cap` is the longest pause, it cannot be shorter than `first`");
    }
    Ok(retry)
}

fn in_doubt(option: &Given) -> syn::Result<InDoubt> {
    option.equals()?;
    let input = option.input;
    let Ok(word) = input.call(Ident::parse_any) else {
        return Err(option.error(format!("expected one of\n  {THE_THREE}")));
    };
    match word.to_string().as_str() {
        "retry" => Ok(InDoubt::Retry),
        "hold" => Ok(InDoubt::Hold),
        "probe" => {
            let wanted = "`probe` takes the path of a function: write `in_doubt = probe(find_charge)`";
            if !input.peek(syn::token::Paren) {
                return Err(syn::Error::new(word.span(), wanted));
            }
            let content;
            let parens = parenthesized!(content in input);
            let path = syn::parse2(content.parse()?).map_err(|_| syn::Error::new(parens.span.join(), wanted))?;
            Ok(InDoubt::Probe(path))
        }
        other => {
            let guess = did_you_mean(closest(other, ["retry", "probe", "hold"].into_iter()));
            Err(syn::Error::new(word.span(), format!("unknown value `{other}`{guess}\n  {THE_THREE}")))
        }
    }
}

fn on_exhausted(option: &Given) -> syn::Result<OnExhausted> {
    let fail = values::word(option, &[("hold", false), ("fail", true)])?;
    Ok(if fail { OnExhausted::Fail } else { OnExhausted::Hold })
}

/// Puts together what belongs together, and refuses what does not.
fn kind(written: Written, errors: &mut Errors) -> Kind {
    if let Some(transactional) = written.transactional.clone() {
        return self::transactional(&transactional, written, errors);
    }
    let Some(irreversible) = written.irreversible else {
        let only = [
            written.in_doubt.map(|(name, _)| name),
            written.max_duration.map(|(name, _)| name),
            written.on_exhausted.map(|(name, _)| name),
        ];
        for option in only.into_iter().flatten() {
            let whose = if option == "max_duration" { "an `irreversible` or `transactional`" } else { "an `irreversible`" };
            errors.at(&option, format!("`{option}` is only for {whose} step"));
        }
        return if written.durable.is_some() { Kind::Durable } else { Kind::Ordinary };
    };
    if let Some(durable) = written.durable {
        errors.at(durable, "an `irreversible` step is durable already: leave `durable` out");
    }
    if let Some((timeout, _)) = written.timeout {
        let message = "an `irreversible` step cannot be given up half-way: \
                       `max_duration = 10s` bounds the call, and what it did is then in doubt";
        errors.at(timeout, message);
    }
    let in_doubt = match written.in_doubt {
        Some((_, in_doubt)) => in_doubt,
        None => {
            let message = format!(
                "an `irreversible` step must say what to do when nobody knows whether the call happened; one of\n  {THE_THREE}"
            );
            errors.at(&irreversible, message);
            None
        }
    };
    if let (Some((option, Some(OnExhausted::Fail))), Some(InDoubt::Probe(_) | InDoubt::Hold)) = (&written.on_exhausted, &in_doubt)
    {
        errors.at(option, "`on_exhausted = fail` is only for `in_doubt = retry`: the others hold the step for a person");
    }
    Kind::Irreversible(Irreversible {
        in_doubt: in_doubt.unwrap_or(InDoubt::Hold),
        on_exhausted: written.on_exhausted.and_then(|(_, value)| value),
        max_duration_ms: written.max_duration.and_then(|(_, ms)| ms),
    })
}

/// A step in a transaction of the store: that bounds it, and leaves nothing in doubt.
fn transactional(transactional: &Ident, written: Written, errors: &mut Errors) -> Kind {
    if let Some(irreversible) = &written.irreversible {
        let message = "a step is `irreversible` or `transactional`: what a transaction writes is undone or recorded with it, \
                       a call to somebody else is not";
        errors.at(irreversible, message);
    }
    if let Some(durable) = &written.durable {
        errors.at(durable, format!("a `{transactional}` step is durable already: leave `durable` out"));
    }
    if let Some((timeout, _)) = &written.timeout {
        errors.at(timeout, format!("`max_duration = 500ms` bounds the transaction of a `{transactional}` step"));
    }
    let never = [written.in_doubt.map(|(name, _)| name), written.on_exhausted.map(|(name, _)| name)];
    for option in never.into_iter().flatten() {
        errors.at(&option, format!("a `{transactional}` step is never in doubt: leave `{option}` out"));
    }
    Kind::Transactional { max_duration_ms: written.max_duration.and_then(|(_, ms)| ms) }
}

//! Reads `#[step(..)]`.
//!
//! Invariant: an option that would be ignored for this kind of step is refused.

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Expr, Ident, parenthesized};

use super::options::{Allowed, closest, did_you_mean, each};
use super::values;
use crate::errors::Errors;
use crate::model::{InDoubt, Irreversible, Kind, OnExhausted, Retry, StepOptions};

const STEP: Allowed = Allowed {
    whose: "a step",
    options: &[
        ("durable", "durable"),
        ("irreversible", "irreversible"),
        ("name", "name = \"quote\""),
        ("key", "key = order.id"),
        ("retry", "retry(attempts = 5, first = 200ms, factor = 2, cap = 30s, jitter = full)"),
        ("timeout", "timeout = 5s"),
        ("in_doubt", "in_doubt = hold"),
        ("max_duration", "max_duration = 10s"),
        ("on_exhausted", "on_exhausted = hold"),
        ("crate", "crate = \"::lobster_core\""),
    ],
    later: &["transactional", "check"],
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

/// What was written, each with where, before it is known whether it fits together.
#[derive(Default)]
struct Given {
    durable: Option<Ident>,
    irreversible: Option<Ident>,
    timeout: Option<(Ident, Option<u64>)>,
    in_doubt: Option<(Ident, Option<InDoubt>)>,
    max_duration: Option<(Ident, Option<u64>)>,
    on_exhausted: Option<(Ident, Option<OnExhausted>)>,
}

/// Reads the options of a step; wrong ones count as not given.
pub fn options(tokens: TokenStream, errors: &mut Errors) -> StepOptions {
    let mut options =
        StepOptions { root: default_root(), name: None, kind: Kind::Ordinary, key: None, retry: None, timeout_ms: None };
    let mut given = Given::default();
    each(tokens, &STEP, errors, |name, usage, input, errors| {
        let here = name.clone();
        // A wrong value still counts as an option that was written, so that it is not reported as missing too.
        match name.to_string().as_str() {
            "durable" => given.durable = Some(flag(here, input)?),
            "irreversible" => given.irreversible = Some(flag(here, input)?),
            "name" => options.name = Some(values::name(input, usage)?),
            "key" => options.key = Some(key(input, usage)?),
            "retry" => options.retry = Some(retry(here, usage, input, errors)?),
            "timeout" => given.timeout = Some((here, errors_kept(values::duration_ms(input, usage), input, errors))),
            "in_doubt" => given.in_doubt = Some((here, errors_kept(in_doubt(input, usage), input, errors))),
            "max_duration" => given.max_duration = Some((here, errors_kept(values::duration_ms(input, usage), input, errors))),
            "on_exhausted" => given.on_exhausted = Some((here, errors_kept(on_exhausted(input, usage), input, errors))),
            _ => options.root = values::path(input, usage)?,
        }
        Ok(())
    });
    options.timeout_ms = given.timeout.as_ref().and_then(|(_, ms)| *ms);
    options.kind = kind(given, errors);
    options
}

/// The durable name is the function's unless it was given.
pub fn check_name(options: &StepOptions, function: &Ident, errors: &mut Errors) {
    if options.name.is_none() {
        errors.keep(values::check_name(&function.unraw().to_string(), function.span()));
    }
}

/// Where `expand` is found unless `crate = ".."` says otherwise.
pub fn default_root() -> syn::Path {
    syn::parse_quote!(::lobster_core)
}

/// The value, or its mistake is added and the rest of the option is left for the walker to see the next comma.
fn errors_kept<T>(value: syn::Result<T>, input: ParseStream, errors: &mut Errors) -> Option<T> {
    let kept = errors.keep(value);
    if kept.is_none() {
        super::options::skip(input);
    }
    kept
}

fn flag(name: Ident, input: ParseStream) -> syn::Result<Ident> {
    if input.is_empty() || input.peek(syn::Token![,]) {
        return Ok(name);
    }
    Err(input.error(format!("`{name}` takes no value")))
}

fn key(input: ParseStream, usage: &str) -> syn::Result<Expr> {
    values::equals(input, usage)?;
    if input.is_empty() || input.peek(syn::Token![,]) {
        return Err(input.error(format!("expected an expression: write `{usage}`")));
    }
    input.parse()
}

fn retry(name: Ident, usage: &str, input: ParseStream, errors: &mut Errors) -> syn::Result<Retry> {
    if !input.peek(syn::token::Paren) {
        return Err(syn::Error::new(name.span(), format!("expected a list: write `{usage}`")));
    }
    let list;
    parenthesized!(list in input);
    let mut retry = Retry::default();
    let (mut first_at, mut cap_at) = (None::<Span>, None::<Span>);
    each(list.parse()?, &RETRY, errors, |name, usage, input, _| {
        match name.to_string().as_str() {
            "attempts" => retry.attempts = Some(values::count(input, usage)?),
            "first" => (retry.first_ms, first_at) = (Some(values::duration_ms(input, usage)?), Some(name.span())),
            "factor" => retry.factor = Some(values::count(input, usage)?),
            "cap" => (retry.cap_ms, cap_at) = (Some(values::duration_ms(input, usage)?), Some(name.span())),
            _ => retry.jitter = Some(values::word(input, usage, &[("full", true), ("none", false)])?),
        }
        Ok(())
    });
    if let (Some(first), Some(cap), Some(at)) = (retry.first_ms, retry.cap_ms, first_at.and(cap_at))
        && first > cap
    {
        errors.push(syn::Error::new(at, "`cap` is the longest pause, it cannot be shorter than `first`"));
    }
    Ok(retry)
}

fn in_doubt(input: ParseStream, usage: &str) -> syn::Result<InDoubt> {
    values::equals(input, usage)?;
    let at = input.span();
    let Ok(word) = input.call(Ident::parse_any) else {
        return Err(syn::Error::new(at, format!("expected one of\n  {THE_THREE}")));
    };
    match word.to_string().as_str() {
        "retry" => Ok(InDoubt::Retry),
        "hold" => Ok(InDoubt::Hold),
        "probe" => {
            let path_wanted = "`probe` takes the path of a function: write `in_doubt = probe(find_charge)`";
            if !input.peek(syn::token::Paren) {
                return Err(syn::Error::new(word.span(), path_wanted));
            }
            let list;
            let parens = parenthesized!(list in input);
            let path = list.parse::<syn::Path>();
            match path {
                Ok(path) if list.is_empty() => Ok(InDoubt::Probe(path)),
                _ => Err(syn::Error::new(parens.span.join(), path_wanted)),
            }
        }
        other => {
            let guess = closest(other, ["retry", "probe", "hold"].into_iter());
            Err(syn::Error::new(word.span(), format!("unknown value `{other}`{}; one of\n  {THE_THREE}", did_you_mean(guess))))
        }
    }
}

fn on_exhausted(input: ParseStream, usage: &str) -> syn::Result<OnExhausted> {
    let fail = values::word(input, usage, &[("hold", false), ("fail", true)])?;
    Ok(if fail { OnExhausted::Fail } else { OnExhausted::Hold })
}

fn kind(given: Given, errors: &mut Errors) -> Kind {
    let Some(irreversible) = given.irreversible else {
        for (option, _) in [
            given.in_doubt.map(|(name, _)| (name, ())),
            given.max_duration.map(|(name, _)| (name, ())),
            given.on_exhausted.map(|(name, _)| (name, ())),
        ]
        .into_iter()
        .flatten()
        {
            errors.at(&option, format!("`{option}` is only for an `irreversible` step"));
        }
        return if given.durable.is_some() { Kind::Durable } else { Kind::Ordinary };
    };
    if let Some(durable) = given.durable {
        errors.at(durable, "an `irreversible` step is durable already: leave `durable` out");
    }
    if let Some((timeout, _)) = given.timeout {
        let message = "an `irreversible` step cannot be given up half-way: \
                       `max_duration = 10s` bounds the call, and what it did is then in doubt";
        errors.at(timeout, message);
    }
    let in_doubt = match given.in_doubt {
        Some((_, in_doubt)) => in_doubt,
        None => {
            let message = format!(
                "an `irreversible` step must say what to do when nobody knows whether the call happened; one of\n  {THE_THREE}"
            );
            errors.at(&irreversible, message);
            None
        }
    };
    if let (Some((option, Some(OnExhausted::Fail))), Some(InDoubt::Probe(_) | InDoubt::Hold)) = (&given.on_exhausted, &in_doubt) {
        errors.at(option, "`on_exhausted = fail` is only for `in_doubt = retry`: the others hold the step for a person");
    }
    Kind::Irreversible(Irreversible {
        in_doubt: in_doubt.unwrap_or(InDoubt::Hold),
        on_exhausted: given.on_exhausted.and_then(|(_, value)| value),
        max_duration_ms: given.max_duration.and_then(|(_, ms)| ms),
    })
}

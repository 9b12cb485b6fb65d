//! Reads the values of options.
//!
//! Invariant: a value that would mean nothing (zero, empty, too long) is refused here, at its token.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::{Ident, Lit, LitInt, LitStr, Path};

use super::options::{Given, closest, did_you_mean};
use crate::errors::Errors;

/// The longest durable name, as for every key and name that is stored.
const NAME_BYTES_MAX: usize = 200;

/// The unit and how many nanoseconds it has.
const UNITS: [(&str, u128); 6] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000)];

/// A string.
pub fn string(option: &Given) -> syn::Result<LitStr> {
    option.equals()?;
    if !option.input.peek(LitStr) {
        return Err(option.error(format!("expected a string: write `{}`", option.usage)));
    }
    option.input.parse()
}

/// A path in a string.
pub fn path(option: &Given) -> syn::Result<Path> {
    let text = string(option)?;
    let expected = || format!("expected a path in a string: write `{}`", option.usage);
    text.parse().map_err(|_| syn::Error::new(text.span(), expected()))
}

/// A durable name.
pub fn name(option: &Given) -> syn::Result<String> {
    let text = string(option)?;
    check_name(&text.value(), text.span())?;
    Ok(text.value())
}

/// The durable name that an item gives when no other is given.
pub fn check_default_name(given: Option<&String>, item: &Ident, errors: &mut Errors) {
    if given.is_none() {
        errors.keep(check_name(&item.unraw().to_string(), item.span()));
    }
}

/// What is true of every durable name, chosen or taken from the item.
pub fn check_name(name: &str, at: Span) -> syn::Result<()> {
    if name.is_empty() {
        return Err(syn::Error::new(at, "a durable name cannot be empty"));
    }
    if name.len() > NAME_BYTES_MAX {
        let message = format!("a durable name has at most {NAME_BYTES_MAX} bytes, this one has {}", name.len());
        return Err(syn::Error::new(at, message));
    }
    if let Some(control) = name.chars().find(|c| c.is_control()) {
        let message = format!("a durable name cannot contain the control character {control:?}");
        return Err(syn::Error::new(at, message));
    }
    Ok(())
}

/// A number from 1.
pub fn count(option: &Given) -> syn::Result<u32> {
    option.equals()?;
    let usage = option.usage;
    if !option.input.peek(LitInt) {
        return Err(option.error(format!("expected a number: write `{usage}`")));
    }
    number_from_1(&option.input.parse()?, usage)
}

/// What a number from 1 is.
pub fn number_from_1(number: &LitInt, usage: &str) -> syn::Result<u32> {
    if !number.suffix().is_empty() {
        return Err(syn::Error::new(number.span(), format!("expected a number without a suffix: write `{usage}`")));
    }
    match number.base10_parse() {
        Ok(0) => Err(syn::Error::new(number.span(), format!("must be at least 1: write `{usage}`"))),
        Ok(count) => Ok(count),
        Err(_) => Err(syn::Error::new(number.span(), format!("must be at most {}", u32::MAX))),
    }
}

/// A duration in whole milliseconds: `200ms`, or the same in a string.
pub fn duration_ms(option: &Given) -> syn::Result<u64> {
    option.equals()?;
    let units: Vec<&str> = UNITS.iter().map(|(unit, _)| *unit).collect();
    let expected = format!("expected a whole number with a unit ({}): write `{}`", units.join(", "), option.usage);
    let literal: Lit = option.input.parse().map_err(|_| option.error(&expected))?;
    let at = literal.span();
    let expected = || syn::Error::new(at, &expected);
    let number = match literal {
        Lit::Int(number) => number,
        Lit::Str(text) => text.parse().map_err(|_| expected())?,
        _ => return Err(expected()),
    };
    let (_, unit_ns) = UNITS.iter().find(|(unit, _)| *unit == number.suffix()).ok_or_else(expected)?;
    let amount: u64 = number.base10_parse().map_err(|_| syn::Error::new(at, "this duration is too long"))?;
    let ns = u128::from(amount) * unit_ns;
    if ns == 0 {
        return Err(syn::Error::new(at, format!("a duration of zero: write `{}`, or leave the option out", option.usage)));
    }
    if ns % 1_000_000 != 0 {
        return Err(syn::Error::new(at, "durations are kept in whole milliseconds"));
    }
    u64::try_from(ns / 1_000_000).map_err(|_| syn::Error::new(at, "this duration is too long"))
}

/// One of a few words, with what stands for each.
pub fn word<T: Copy>(option: &Given, words: &[(&str, T)]) -> syn::Result<T> {
    option.equals()?;
    let list: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
    let list = list.join(" or ");
    let given =
        option.input.call(Ident::parse_any).map_err(|_| option.error(format!("expected {list}: write `{}`", option.usage)))?;
    let text = given.to_string();
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let guess = closest(&text, words.iter().map(|(word, _)| *word));
        syn::Error::new(given.span(), format!("unknown value `{text}`{}\n  expected {list}", did_you_mean(guess)))
    })
}

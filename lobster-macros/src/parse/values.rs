//! Reads the values of options.
//!
//! Invariant: a value that would mean nothing (zero, empty, too long) is refused here, at its token.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Ident, Lit, LitInt, LitStr, Path, Token};

use super::options::{closest, did_you_mean};

/// The longest durable name, as for every key and name that is stored.
const NAME_BYTES_MAX: usize = 200;

/// The unit and how many nanoseconds it has.
const UNITS: [(&str, u128); 6] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000)];

/// The `=` before a value.
pub fn equals(input: ParseStream, usage: &str) -> syn::Result<()> {
    match input.parse::<Token![=]>() {
        Ok(_) => Ok(()),
        Err(error) => Err(syn::Error::new(error.span(), format!("expected a value: write `{usage}`"))),
    }
}

/// A string.
pub fn string(input: ParseStream, usage: &str) -> syn::Result<LitStr> {
    equals(input, usage)?;
    input.parse().map_err(|error: syn::Error| syn::Error::new(error.span(), format!("expected a string: write `{usage}`")))
}

/// A path in a string.
pub fn path(input: ParseStream, usage: &str) -> syn::Result<Path> {
    let text = string(input, usage)?;
    text.parse().map_err(|_| syn::Error::new(text.span(), format!("expected a path in a string: write `{usage}`")))
}

/// A durable name.
pub fn name(input: ParseStream, usage: &str) -> syn::Result<String> {
    let text = string(input, usage)?;
    check_name(&text.value(), text.span())?;
    Ok(text.value())
}

/// What is true of every durable name, chosen or taken from the function.
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
pub fn count(input: ParseStream, usage: &str) -> syn::Result<u32> {
    equals(input, usage)?;
    let number: LitInt = input
        .parse()
        .map_err(|error: syn::Error| syn::Error::new(error.span(), format!("expected a number: write `{usage}`")))?;
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
pub fn duration_ms(input: ParseStream, usage: &str) -> syn::Result<u64> {
    equals(input, usage)?;
    let expected = |at: Span| {
        let units: Vec<&str> = UNITS.iter().map(|(unit, _)| *unit).collect();
        syn::Error::new(at, format!("expected a whole number with a unit ({}): write `{usage}`", units.join(", ")))
    };
    let literal: Lit = input.parse().map_err(|error: syn::Error| expected(error.span()))?;
    let at = literal.span();
    let number = match literal {
        Lit::Int(number) => number,
        // `1 s` in a string is as clear as `1s`, but it is another spelling; one is enough.
        Lit::Str(text) => text.parse().map_err(|_| expected(at))?,
        _ => return Err(expected(at)),
    };
    let (_, unit_ns) = UNITS.iter().find(|(unit, _)| *unit == number.suffix()).ok_or_else(|| expected(at))?;
    let amount: u64 = number.base10_parse().map_err(|_| syn::Error::new(at, "this duration is too long"))?;
    let ns = u128::from(amount) * unit_ns;
    if ns == 0 {
        return Err(syn::Error::new(at, format!("a duration of zero: write `{usage}`, or leave the option out")));
    }
    if ns % 1_000_000 != 0 {
        return Err(syn::Error::new(at, "durations are kept in whole milliseconds"));
    }
    u64::try_from(ns / 1_000_000).map_err(|_| syn::Error::new(at, "this duration is too long"))
}

/// One of a few words, with what stands for each.
pub fn word<T: Copy>(input: ParseStream, usage: &str, words: &[(&str, T)]) -> syn::Result<T> {
    equals(input, usage)?;
    let expected = || {
        let list: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        list.join(" or ")
    };
    let given = input
        .call(Ident::parse_any)
        .map_err(|error| syn::Error::new(error.span(), format!("expected {}: write `{usage}`", expected())))?;
    let text = given.to_string();
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let guess = closest(&text, words.iter().map(|(word, _)| *word));
        syn::Error::new(given.span(), format!("unknown value `{text}`{}; expected {}", did_you_mean(guess), expected()))
    })
}

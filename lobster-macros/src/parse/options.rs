//! Walks the options of an attribute, for every list of options alike.
//!
//! Invariant: every option is known, available and given once before its value is read.

use std::fmt::Display;

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Ident, Path, Token};

use crate::errors::Errors;

/// The options a list knows.
pub struct Allowed {
    /// Whose options they are: "a step".
    pub whose: &'static str,
    /// Name and how to write it.
    pub options: &'static [(&'static str, &'static str)],
    /// Names that a later version will know.
    pub later: &'static [&'static str],
}

impl Allowed {
    fn list(&self) -> String {
        let names: Vec<String> = self.options.iter().map(|(name, _)| format!("`{name}`")).collect();
        format!("{} takes {}", self.whose, names.join(", "))
    }

    fn unknown(&self, name: &Ident) -> syn::Error {
        let guess = closest(&name.to_string(), self.options.iter().map(|(name, _)| *name));
        syn::Error::new(name.span(), format!("unknown option `{name}`{}\n  {}", did_you_mean(guess), self.list()))
    }

    fn usage(&self, name: &str) -> Option<&'static str> {
        self.options.iter().find(|(known, _)| *known == name).map(|(_, usage)| *usage)
    }
}

/// An option whose name was read and whose value was not.
pub struct Given<'a, 'b> {
    pub name: Ident,
    /// How to write it.
    pub usage: &'static str,
    /// What follows the name.
    pub input: ParseStream<'b>,
    pub errors: &'a mut Errors,
}

impl Given<'_, '_> {
    /// Whether nothing more belongs to this option.
    pub fn at_end(&self) -> bool {
        self.input.is_empty() || self.input.peek(Token![,])
    }

    /// A mistake in what follows, or in the name if nothing does.
    pub fn error(&self, message: impl Display) -> syn::Error {
        let at = if self.at_end() { self.name.span() } else { self.input.span() };
        syn::Error::new(at, message)
    }

    /// The `=` before a value, and that there is one.
    pub fn equals(&self) -> syn::Result<()> {
        let found = self.input.parse::<Token![=]>().is_ok();
        if found && !self.at_end() { Ok(()) } else { Err(self.error(format!("expected a value: write `{}`", self.usage))) }
    }

    /// The value; or its mistake is added, the rest of the option is left, and the option still counts as given.
    pub fn keep<T>(self, read: impl FnOnce(&Self) -> syn::Result<T>) -> Option<T> {
        match read(&self) {
            Ok(value) => Some(value),
            Err(error) => {
                self.errors.push(error);
                skip(self.input);
                None
            }
        }
    }
}

/// Calls `take` for each option of `tokens`; it reads what follows the name.
pub fn each(tokens: TokenStream, allowed: &Allowed, errors: &mut Errors, mut take: impl FnMut(Given) -> syn::Result<()>) {
    let walk = |input: ParseStream| {
        let mut seen: Vec<Ident> = Vec::new();
        while !input.is_empty() {
            if let Err(error) = one(input, allowed, &mut seen, errors, &mut take) {
                errors.push(error);
                skip(input);
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(())
    };
    if let Err(error) = walk.parse2(tokens) {
        errors.push(error);
    }
}

fn one(
    input: ParseStream,
    allowed: &Allowed,
    seen: &mut Vec<Ident>,
    errors: &mut Errors,
    take: &mut impl FnMut(Given) -> syn::Result<()>,
) -> syn::Result<()> {
    let Ok(name) = input.call(Ident::parse_any) else {
        return Err(input.error(format!("expected an option\n  {}", allowed.list())));
    };
    let text = name.to_string();
    if allowed.later.contains(&text.as_str()) {
        return Err(syn::Error::new(name.span(), format!("`{text}` is not available in this version")));
    }
    let Some(usage) = allowed.usage(&text) else { return Err(allowed.unknown(&name)) };
    if seen.contains(&name) {
        return Err(syn::Error::new(name.span(), format!("`{text}` is given twice")));
    }
    seen.push(name.clone());
    take(Given { name, usage, input, errors })?;
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(());
    }
    Err(input.error(format!("expected `,` after `{text}`: write `{usage}`")))
}

/// Where `expand` is found unless `crate = ".."` says otherwise.
pub fn default_root() -> Path {
    syn::parse_quote!(::lobster_core)
}

/// Leaves the rest of an option that was not understood.
fn skip(input: ParseStream) {
    while !input.is_empty() && !input.peek(Token![,]) && input.parse::<TokenTree>().is_ok() {}
}

/// `, did you mean ..?`, or nothing.
pub fn did_you_mean(guess: Option<&str>) -> String {
    guess.map(|guess| format!(", did you mean `{guess}`?")).unwrap_or_default()
}

/// The one of `known` that `word` is most likely a typing error of.
pub fn closest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let near = known.map(|name| (distance(word, name), name)).min_by_key(|(distance, _)| *distance);
    // A third of the word wrong is a typing error, more is another word.
    near.filter(|(distance, name)| *distance <= (name.len() / 3).max(1)).map(|(_, name)| name)
}

/// How many letters must be inserted, removed, replaced or swapped with a neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_finds_its_word_and_another_word_finds_none() {
        let known = ["durable", "irreversible", "name", "key", "retry", "timeout"];
        let cases = [
            ("timout", Some("timeout")),
            ("retyr", Some("retry")),
            ("nam", Some("name")),
            ("ireversable", Some("irreversible")),
            ("keys", Some("key")),
            ("queue", None),
            ("priority", None),
        ];
        for (word, expected) in cases {
            assert_eq!(closest(word, known.iter().copied()), expected, "{word}");
        }
    }
}

//! Reads `#[derive(State)]`.
//!
//! Invariant: members have different names, and there is one migration from each version below the struct's.

use std::collections::BTreeMap;

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Field, Fields, GenericParam, LitInt, Meta, Path, Token, parenthesized};

use super::is_state;
use super::options::{Allowed, Given, default_root, each};
use super::values;
use crate::errors::Errors;
use crate::model::{Member, State, StateOptions};

const STATE: Allowed = Allowed {
    whose: "`#[state]` on a struct",
    options: &[
        ("name", "name = \"shop.import\""),
        ("version", "version = 2"),
        ("migrate", "migrate(1 = in_cents)"),
        ("crate", "crate = \"::lobster_core\""),
    ],
    later: &[],
};

const MEMBER: Allowed = Allowed {
    whose: "`#[state]` on a member",
    options: &[("rename", "rename = \"total\""), ("rebuild", "rebuild = open_parser")],
    later: &[],
};

/// Reads a struct; nothing if it cannot be a state.
pub fn read(item: DeriveInput, errors: &mut Errors) -> Option<State> {
    let options = options(&item.attrs, errors);
    values::check_default_name(options.name.as_ref(), &item.ident, errors);
    let expected = "`#[derive(State)]` goes on a struct with named fields: each of them is a member of the state";
    let fields = match item.data {
        Data::Struct(data) => match data.fields {
            Fields::Named(fields) => fields.named,
            Fields::Unnamed(fields) => {
                errors.at(fields, expected);
                return None;
            }
            Fields::Unit => {
                errors.at(&item.ident, expected);
                return None;
            }
        },
        Data::Enum(data) => {
            errors.at(data.enum_token, expected);
            return None;
        }
        Data::Union(data) => {
            errors.at(data.union_token, expected);
            return None;
        }
    };
    let lifetimes = item.generics.params.iter().filter(|param| matches!(param, GenericParam::Lifetime(_)));
    let borrows = lifetimes.fold(false, |_, lifetime| {
        errors.at(lifetime, "a state outlives the step that changes it, so it cannot borrow: hold owned values");
        true
    });
    let members = members(fields, errors);
    (!borrows).then_some(State { ident: item.ident, generics: item.generics, members, options })
}

/// The tokens of the one `#[state(..)]` that may stand here.
fn list(attrs: &[Attribute], usage: &str, errors: &mut Errors) -> TokenStream {
    let mut attrs = attrs.iter().filter(|attr| is_state(attr));
    let tokens = match attrs.next().map(|attr| &attr.meta) {
        None => TokenStream::new(),
        Some(Meta::List(list)) => list.tokens.clone(),
        Some(other) => {
            errors.at(other, format!("expected a list of options: write `#[state({usage})]`"));
            TokenStream::new()
        }
    };
    for second in attrs {
        errors.at(second, "`#[state(..)]` is given twice: put all options into one");
    }
    tokens
}

/// Reads the options of the struct; wrong ones count as not given.
fn options(attrs: &[Attribute], errors: &mut Errors) -> StateOptions {
    let mut options = StateOptions { root: default_root(), name: None, version: 1, migrations: Vec::new() };
    // A wrong value is still a value that was written, so that it is not reported as missing too.
    let (mut version, mut migrations) = (None, None);
    each(list(attrs, "version = 2, migrate(1 = in_cents)", errors), &STATE, errors, |option| {
        match option.name.to_string().as_str() {
            "name" => options.name = Some(values::name(&option)?),
            "version" => version = Some(option.keep(self::version)),
            "migrate" => migrations = Some((option.name.clone(), option.keep(migrate))),
            _ => options.root = values::path(&option)?,
        }
        Ok(())
    });
    let (version, at) = match (version, &migrations) {
        (Some(Some(given)), _) => given,
        (None, Some((migrate, _))) => (1, migrate.span()),
        (Some(None), _) | (None, None) => return options,
    };
    options.version = version;
    match migrations {
        Some((_, Some(given))) => options.migrations = chain(given, version, at, errors),
        Some((_, None)) => {}
        None => options.migrations = chain(Vec::new(), version, at, errors),
    }
    options
}

/// The version, and where it stands.
fn version(option: &Given) -> syn::Result<(u32, Span)> {
    let ahead = option.input.fork();
    let version = values::count(option)?;
    ahead.parse::<Token![=]>()?;
    Ok((version, ahead.span()))
}

/// A migration as it was written.
struct Written {
    from: LitInt,
    number: u32,
    path: Path,
}

fn migrate(option: &Given) -> syn::Result<Vec<Written>> {
    let (usage, input) = (option.usage, option.input);
    if !input.peek(syn::token::Paren) {
        return Err(option.error(format!("expected a list of migrations: write `{usage}`")));
    }
    let content;
    parenthesized!(content in input);
    let all = chained(&content, usage);
    // What was not understood is left, so that it is not reported as unexpected too.
    content.parse::<TokenStream>()?;
    all
}

fn chained(content: ParseStream, usage: &str) -> syn::Result<Vec<Written>> {
    let expected =
        |error: syn::Error| syn::Error::new(error.span(), format!("expected a version and a function: write `{usage}`"));
    let mut all = Vec::new();
    while !content.is_empty() {
        let from: LitInt = content.parse().map_err(expected)?;
        let number = values::number_from_1(&from, usage)?;
        content.parse::<Token![=]>().map_err(expected)?;
        all.push(Written { from, number, path: content.parse().map_err(expected)? });
        if !content.is_empty() {
            content.parse::<Token![,]>().map_err(expected)?;
        }
    }
    Ok(all)
}

/// One migration from each version below `version`, in order.
fn chain(given: Vec<Written>, version: u32, at: Span, errors: &mut Errors) -> Vec<(u32, Path)> {
    let mut chain = BTreeMap::new();
    for Written { from, number, path } in given {
        if number >= version {
            let message = format!("a migration starts below the struct's version, which is {version}: it leads to the next one");
            errors.at(from, message);
        } else if chain.insert(number, path).is_some() {
            errors.at(from, format!("the migration from version {number} is given twice"));
        }
    }
    // A run of many versions is named by its ends, and not walked.
    let mut expected = 1;
    for end in chain.keys().copied().chain([version]) {
        if expected < end {
            errors.push(missing(at, version, expected, end - 1));
        }
        expected = end + 1;
    }
    chain.into_iter().collect()
}

fn missing(at: Span, version: u32, first: u32, last: u32) -> syn::Error {
    let from = if first == last { format!("version {first}") } else { format!("the versions {first} to {last}") };
    let message = format!(
        "version {version} needs a migration from every version below it, and none from {from} is given: \
         write `migrate({first} = path)` with a `fn(&mut Members) -> Result<(), BoxError>`"
    );
    syn::Error::new(at, message)
}

fn members(fields: Punctuated<Field, Token![,]>, errors: &mut Errors) -> Vec<Member> {
    let mut names: Vec<String> = Vec::new();
    let mut members = Vec::new();
    for Field { attrs, ident, ty, .. } in fields {
        let ident = ident.expect("the fields of a struct with named fields have names");
        let (mut rename, mut rebuild) = (None, None);
        each(list(&attrs, "rename = \"total\"", errors), &MEMBER, errors, |option| {
            match option.name.to_string().as_str() {
                "rename" => rename = Some((option.name.clone(), option.keep(self::rename))),
                _ => rebuild = Some(self::rebuild(&option)?),
            }
            Ok(())
        });
        if let (Some((option, _)), Some(_)) = (&rename, &rebuild) {
            errors.at(option, "what is made anew is never recorded, so it has no recorded name");
        }
        let (rename, at) = match rename {
            Some((_, Some((rename, at)))) => (Some(rename), at),
            Some((_, None)) => (None, ident.span()),
            None => {
                values::check_default_name(None, &ident, errors);
                (None, ident.span())
            }
        };
        let name = rename.clone().unwrap_or_else(|| ident.unraw().to_string());
        if names.contains(&name) {
            errors.push(syn::Error::new(at, format!("two members are recorded under the name `{name}`")));
        }
        names.push(name);
        members.push(Member { ident, ty, rename, rebuild });
    }
    members
}

/// The name a member is recorded under, and where it stands.
fn rename(option: &Given) -> syn::Result<(String, Span)> {
    let text = values::string(option)?;
    values::check_name(&text.value(), text.span())?;
    Ok((text.value(), text.span()))
}

fn rebuild(option: &Given) -> syn::Result<Path> {
    option.equals()?;
    let expected = |_| option.error(format!("expected the path of a function: write `{}`", option.usage));
    option.input.parse().map_err(expected)
}

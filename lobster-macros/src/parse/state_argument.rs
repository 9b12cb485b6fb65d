//! Reads a `#[state]` parameter of a step.
//!
//! Invariant: what is accepted here is an exclusive borrow of an owned type, which a lease can give to every attempt.

use quote::ToTokens;
use syn::{Attribute, Expr, FnArg, Lit, Meta, PatType, Type};

use super::options::{Allowed, Given, each};
use super::signature::{Found, argument};
use super::values;
use crate::errors::Errors;
use crate::model::{Kind, StateArgument, bare};

pub use super::is_state;

/// How many states one step may take: as many as the engine has tuples for.
pub const STATES_MAX: usize = 4;

const STATE: Allowed =
    Allowed { whose: "`#[state]` on a parameter", options: &[("name", "name = format!(\"totals.{region}\")")], later: &[] };

/// The attribute that makes a parameter a state.
pub fn of(input: &FnArg) -> Option<&Attribute> {
    match input {
        FnArg::Typed(typed) => typed.attrs.iter().find(|attr| is_state(attr)),
        FnArg::Receiver(_) => None,
    }
}

/// Reads one; `before` are those that stand before it.
pub fn read(typed: &PatType, place: usize, before: &[StateArgument], kind: &Kind, errors: &mut Errors) -> Option<StateArgument> {
    let mut attrs = typed.attrs.iter().filter(|attr| is_state(attr));
    let attr = attrs.next()?;
    if let Kind::Irreversible(_) = kind {
        let message = "an `irreversible` step has no state: what its call did may be recorded by another holder of the run, and \
                       what it changed here would be lost; return a value, and change state in a step of its own";
        errors.at(attr, message);
        return None;
    }
    if let Kind::Transactional { .. } = kind {
        let message = "a `transactional` step has no state: what it changes is in its transaction; return a value, and change state in \
                       a step of its own";
        errors.at(attr, message);
        return None;
    }
    if let Some(second) = attrs.next() {
        errors.at(second, "`#[state]` is given twice");
        return None;
    }
    let (name, named, ty) = (name(attr, errors), argument(typed, errors), referent(&typed.ty, errors));
    let (name, _, ty) = (name?, named?, ty?);
    if name.is_none() && before.iter().any(|other| other.name.is_none() && same(&other.ty, &ty)) {
        let message = "this state is asked for twice under one name: give one of them another, `#[state(name = \"..\")]`";
        errors.at(&typed.ty, message);
        return None;
    }
    Some(StateArgument { place, ty, name })
}

/// Whether two types are written alike.
fn same(a: &Type, b: &Type) -> bool {
    a.to_token_stream().to_string() == b.to_token_stream().to_string()
}

/// The name that the attribute gives, if it gives one; nothing if it is wrong.
fn name(attr: &Attribute, errors: &mut Errors) -> Option<Option<Expr>> {
    let list = match &attr.meta {
        Meta::Path(_) => return Some(None),
        Meta::List(list) => list,
        Meta::NameValue(meta) => {
            errors.at(meta, "write `#[state]`, or `#[state(name = ..)]` for another name than its type's");
            return None;
        }
    };
    let (mut name, mut wrong) = (None, Errors::default());
    each(list.tokens.clone(), &STATE, &mut wrong, |option| {
        name = Some(expression(&option)?);
        Ok(())
    });
    match wrong.into_error() {
        Some(error) => {
            errors.push(error);
            None
        }
        None => Some(name),
    }
}

fn expression(option: &Given) -> syn::Result<Expr> {
    option.equals()?;
    let name: Expr = option.input.parse()?;
    if let Expr::Lit(syn::ExprLit { lit: Lit::Str(text), .. }) = &name {
        values::check_name(&text.value(), text.span())?;
    }
    Ok(name)
}

/// What an elided `&mut` is to.
fn referent(ty: &Type, errors: &mut Errors) -> Option<Type> {
    let to = match bare(ty) {
        Type::Reference(to) if to.mutability.is_some() => to,
        other => {
            errors.at(other, "a state is borrowed to change it: take it as `&mut Import`, where `Import` derives `State`");
            return None;
        }
    };
    if let Some(lifetime) = to.lifetime.as_ref().filter(|lifetime| lifetime.ident != "_") {
        errors.at(lifetime, "a step has its state only while it runs: leave the lifetime out, `&mut Import`");
        return None;
    }
    let found = Found::in_type(&to.elem);
    if let Some(impl_trait) = found.impl_trait {
        errors.at(impl_trait, "a state needs a type with a name: it is recorded");
        return None;
    }
    if let Some(borrow) = found.borrow {
        errors.at(borrow, "a state outlives the step, so it cannot borrow: take a type that owns what it holds");
        return None;
    }
    Some((*to.elem).clone())
}

//! Reads the signature of a step or a task.
//!
//! Invariant: what is accepted here can be called any number of times with arguments that outlive one attempt.

use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Attribute, FnArg, Lifetime, Pat, PatType, ReturnType, Signature, Type, TypeImplTrait, TypeReference};

use super::state_argument::{self, STATES_MAX, is_state};
use crate::errors::Errors;
use crate::model::{Argument, Function, Kind, Shape, bare};

const LINTS: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];

/// The signature of a step, or nothing if there is no way to call it.
pub fn of_step(function: &Function, kind: &Kind, errors: &mut Errors) -> Option<Shape> {
    let sig = &function.sig;
    let plain = plain(sig, "step", errors);
    let output = output(sig, "step", errors);
    let mut inputs = sig.inputs.iter();
    let ctx = ctx(
        inputs.next(),
        sig,
        errors,
        "a step takes its context first: `ctx: &StepCtx`",
        |ty| matches!(ty, Type::Reference(to) if to.mutability.is_none() && names(&to.elem, "StepCtx")),
    );
    let (mut args, mut states, mut good) = (Vec::new(), Vec::new(), true);
    let transaction = match kind {
        Kind::Transactional { .. } => {
            let transaction = transaction(inputs.next(), sig, errors);
            good &= transaction.is_some();
            transaction
        }
        Kind::Ordinary | Kind::Durable | Kind::Irreversible(_) => None,
    };
    for (place, input) in inputs.enumerate() {
        let FnArg::Typed(typed) = input else { continue };
        if typed.attrs.iter().any(is_state) {
            match state_argument::read(typed, place, &states, kind, errors) {
                Some(state) => states.push(state),
                None => good = false,
            }
        } else {
            match step_argument(typed, kind, errors) {
                Some(arg) => args.push(arg),
                None => good = false,
            }
        }
    }
    if let Some(fifth) = states.get(STATES_MAX) {
        let message = format!("a step takes at most {STATES_MAX} states: put what changes together into one");
        errors.at(&fifth.ty, message);
        good = false;
    }
    Some(Shape { ctx: ctx?, args, states, transaction, output: output? }).filter(|_| plain && good)
}

/// The signature of a task, or nothing if there is no way to call it.
pub fn of_task(function: &Function, errors: &mut Errors) -> Option<Shape> {
    let sig = &function.sig;
    let mut plain = plain(sig, "task", errors);
    if !sig.generics.params.is_empty() || sig.generics.where_clause.is_some() {
        let message = "a task cannot be generic: it is found by its name, and one name is one input and one output; \
                       write a generic function and a task for each type that calls it";
        match sig.generics.params.is_empty() {
            true => errors.at(&sig.generics.where_clause, message),
            false => errors.at(&sig.generics.params, message),
        }
        plain = false;
    }
    let output = output(sig, "task", errors);
    for state in sig.inputs.iter().filter_map(state_argument::of) {
        errors.at(state, "a body cannot touch state: state belongs to steps; give it to the step that changes it");
        plain = false;
    }
    let mut inputs = sig.inputs.iter().filter(|input| state_argument::of(input).is_none());
    if sig.inputs.first().is_some_and(|first| state_argument::of(first).is_some()) {
        return None;
    }
    let ctx = ctx(inputs.next(), sig, errors, "a task takes its context first, by value: `ctx: Ctx`", |ty| names(ty, "Ctx"));
    let input = inputs.next().map(|input| task_argument(input, errors));
    if let Some(second) = inputs.next() {
        let message = "a task has one input: put the values into a struct, or take a tuple and take it apart in the body";
        errors.at(second, message);
        return None;
    }
    let args = match input {
        Some(input) => vec![input?],
        None => Vec::new(),
    };
    Some(Shape { ctx: ctx?, args, states: Vec::new(), transaction: None, output: output? }).filter(|_| plain)
}

/// An `async fn` without anything that would change how it is called.
fn plain(sig: &Signature, what: &str, errors: &mut Errors) -> bool {
    let mut plain = true;
    let mut refuse = |refused: Option<(&dyn ToTokens, String)>| {
        if let Some((at, message)) = refused {
            errors.at(at, message);
            plain = false;
        }
    };
    refuse(sig.constness.as_ref().map(|at| (at as &dyn ToTokens, format!("a {what} cannot be `const`"))));
    refuse(sig.unsafety.as_ref().map(|at| (at as _, format!("a {what} cannot be `unsafe`: the engine calls it"))));
    refuse(sig.abi.as_ref().map(|at| (at as _, format!("a {what} cannot be `extern`"))));
    refuse(sig.variadic.as_ref().map(|at| (at as _, format!("a {what} takes a fixed number of arguments"))));
    if sig.asyncness.is_none() {
        refuse(Some((&sig.fn_token, format!("a {what} is an `async fn`"))));
    }
    if let Some(receiver) = sig.receiver() {
        refuse(Some((receiver, format!("a {what} is a free function: take what it needs as arguments instead of `self`"))));
    }
    plain
}

/// The return type, which is recorded and so must stand on its own.
fn output(sig: &Signature, what: &str, errors: &mut Errors) -> Option<Type> {
    let ReturnType::Type(_, ty) = &sig.output else {
        errors.at(&sig.ident, format!("a {what} returns a `Result`: what it returns is recorded"));
        return None;
    };
    if let Some(impl_trait) = Found::in_type(ty).impl_trait {
        errors.at(impl_trait, format!("a {what} returns a type with a name: what it returns is recorded"));
        return None;
    }
    if let Some(borrow) = Found::in_type(ty).elided {
        errors.at(borrow, format!("what a {what} returns is recorded, so it cannot borrow: return an owned value"));
        return None;
    }
    Some((**ty).clone())
}

fn ctx(
    first: Option<&FnArg>,
    sig: &Signature,
    errors: &mut Errors,
    message: &str,
    fits: impl Fn(&Type) -> bool,
) -> Option<Argument> {
    match first {
        Some(FnArg::Typed(typed)) if fits(bare(&typed.ty)) => match typed.attrs.iter().find(|attr| is_state(attr)) {
            Some(state) => {
                errors.at(state, "the context is no state: a state is a parameter after it, `#[state] import: &mut Import`");
                None
            }
            None => argument(typed, errors),
        },
        Some(FnArg::Typed(typed)) => {
            errors.at(typed, message);
            None
        }
        // Reported already.
        Some(FnArg::Receiver(_)) => None,
        None => {
            errors.push(syn::Error::new(sig.paren_token.span.join(), message));
            None
        }
    }
}

/// The transaction of a transactional step: its type, without the `&mut`.
fn transaction(second: Option<&FnArg>, sig: &Signature, errors: &mut Errors) -> Option<Type> {
    let message =
        "a `transactional` step takes the store's transaction after its context: `tx: &mut PgTx` or `tx: &mut SqliteTx`";
    let Some(FnArg::Typed(typed)) = second else {
        errors.push(syn::Error::new(sig.paren_token.span.join(), message));
        return None;
    };
    match bare(&typed.ty) {
        Type::Reference(to) if to.mutability.is_some() && !is_state_argument(typed) => {
            argument(typed, errors)?;
            let found = Found::in_type(&to.elem);
            match found.borrow {
                None => Some((*to.elem).clone()),
                Some(borrow) => {
                    errors.at(borrow, message);
                    None
                }
            }
        }
        _ => {
            errors.at(typed, message);
            None
        }
    }
}

fn is_state_argument(typed: &PatType) -> bool {
    typed.attrs.iter().any(is_state)
}

fn step_argument(typed: &PatType, kind: &Kind, errors: &mut Errors) -> Option<Argument> {
    let argument = argument(typed, errors)?;
    let ty = bare(&argument.ty);
    let inner = match ty {
        Type::Reference(to) if to.mutability.is_some() => {
            let message = "a step may run again: a change made through `&mut` would be made again, or lost; \
                           return the new value instead, or take a state: `#[state] import: &mut Import`";
            errors.at(ty, message);
            return None;
        }
        Type::Reference(to) => &to.elem,
        _ => ty,
    };
    let found = Found::in_type(inner);
    if let Some(impl_trait) = found.impl_trait {
        errors.at(impl_trait, "an argument needs a type with a name: use a type parameter, `fn step<T: Trait>(.., value: T)`");
        return None;
    }
    if let Some(exclusive) = found.exclusive {
        errors.at(exclusive, "a step may run again, so it cannot be given a `&mut`: return the new value instead");
        return None;
    }
    let spawned = match kind {
        Kind::Ordinary | Kind::Durable => None,
        Kind::Irreversible(_) => Some("an `irreversible`"),
        Kind::Transactional { .. } => Some("a `transactional`"),
    };
    if let (Some(spawned), Some(borrow)) = (spawned, found.borrow) {
        let message = format!(
            "{spawned} step runs on a task of the engine and owns its arguments: \
             take `&T` of an owned `T`, which is cloned at the call, or take it by value"
        );
        errors.at(borrow, message);
        return None;
    }
    Some(argument)
}

fn task_argument(input: &FnArg, errors: &mut Errors) -> Option<Argument> {
    let FnArg::Typed(typed) = input else { return None };
    let argument = argument(typed, errors)?;
    let found = Found::in_type(&argument.ty);
    if let Some(impl_trait) = found.impl_trait {
        errors.at(impl_trait, "the input of a task needs a type with a name: it is read from the store");
        return None;
    }
    if let Some(borrow) = found.borrow.or(found.exclusive.map(ToTokens::into_token_stream)) {
        errors.at(borrow, "the input of a task is read from the store, so it cannot borrow: take an owned value");
        return None;
    }
    Some(argument)
}

/// A parameter with a plain name.
pub fn argument(typed: &PatType, errors: &mut Errors) -> Option<Argument> {
    if let Some(attr) = typed.attrs.iter().find(|attr| !is_lint(attr) && !is_state(attr)) {
        errors.at(attr, "only lint levels (`allow`, `expect`, ..) and, in a step, `#[state]` can stand on an argument");
        return None;
    }
    match &*typed.pat {
        Pat::Ident(pat) if pat.by_ref.is_none() && pat.subpat.is_none() => {
            Some(Argument { ident: pat.ident.clone(), ty: (*typed.ty).clone() })
        }
        Pat::Wild(pat) => {
            errors.at(pat, "an argument needs a name: write `_order` for one that is not used");
            None
        }
        pat => {
            errors.at(pat, "an argument needs a plain name: take it apart in the body");
            None
        }
    }
}

fn is_lint(attr: &Attribute) -> bool {
    LINTS.iter().any(|lint| attr.path().is_ident(lint))
}

/// Whether a path ends in `name`: an import may have put anything in front.
fn names(ty: &Type, name: &str) -> bool {
    let Type::Path(path) = bare(ty) else { return false };
    path.qself.is_none() && path.path.segments.last().is_some_and(|last| last.ident == name && last.arguments.is_none())
}

/// What a type mentions that matters to whoever has to keep a value of it.
#[derive(Default)]
pub struct Found {
    pub impl_trait: Option<TypeImplTrait>,
    exclusive: Option<TypeReference>,
    /// A reference or a lifetime other than `'static`.
    pub borrow: Option<proc_macro2::TokenStream>,
    /// A reference without a lifetime, or `'_`.
    elided: Option<proc_macro2::TokenStream>,
}

impl Found {
    pub fn in_type(ty: &Type) -> Self {
        let mut found = Self::default();
        found.visit_type(ty);
        found
    }

    fn lifetime(&mut self, lifetime: Option<&Lifetime>, at: &impl ToTokens) {
        if lifetime.is_some_and(|lifetime| lifetime.ident == "static") {
            return;
        }
        self.borrow.get_or_insert_with(|| at.to_token_stream());
        if lifetime.is_none_or(|lifetime| lifetime.ident == "_") {
            self.elided.get_or_insert_with(|| at.to_token_stream());
        }
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_type_impl_trait(&mut self, ty: &'ast TypeImplTrait) {
        self.impl_trait.get_or_insert_with(|| ty.clone());
    }

    fn visit_type_reference(&mut self, ty: &'ast TypeReference) {
        if ty.mutability.is_some() {
            self.exclusive.get_or_insert_with(|| ty.clone());
        }
        self.lifetime(ty.lifetime.as_ref(), ty);
        visit::visit_type(self, &ty.elem);
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        self.lifetime(Some(lifetime), lifetime);
    }

    // The lifetimes of `fn(&T)` and `Fn(&T)` are bound there and say nothing about the value.
    fn visit_type_bare_fn(&mut self, _: &'ast syn::TypeBareFn) {}
    fn visit_parenthesized_generic_arguments(&mut self, _: &'ast syn::ParenthesizedGenericArguments) {}
    fn visit_bound_lifetimes(&mut self, _: &'ast syn::BoundLifetimes) {}
    fn visit_expr(&mut self, _: &'ast syn::Expr) {}
}

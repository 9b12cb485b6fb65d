//! What the macros understood: plain values between `parse`, which fills them, and `emit`, which writes them out.
//!
//! Invariant: a model that `parse` calls good can be written out without looking at the attribute again.

use proc_macro2::{Group, TokenStream};
use syn::{Attribute, Expr, Generics, Ident, Path, Signature, Type, Visibility};

/// The author's function. The body stays as tokens: the macros have no business in it.
pub struct Function {
    pub attrs: Vec<Attribute>,
    pub vis: Visibility,
    pub sig: Signature,
    pub block: Group,
}

/// One parameter.
pub struct Argument {
    pub ident: Ident,
    pub ty: Type,
}

/// A `#[state]` parameter of a step: nothing that a caller gives.
pub struct StateArgument {
    /// Its place among the parameters after the context.
    pub place: usize,
    /// What the `&mut` is to.
    pub ty: Type,
    /// The name of the state, if it is not its type's.
    pub name: Option<Expr>,
}

/// The signature, taken apart.
pub struct Shape {
    pub ctx: Argument,
    pub args: Vec<Argument>,
    pub states: Vec<StateArgument>,
    /// What the `&mut` of a transactional step's second parameter is to.
    pub transaction: Option<Type>,
    pub output: Type,
}

/// A function under `#[step]`.
pub struct Step {
    pub function: Function,
    pub shape: Shape,
    pub options: StepOptions,
}

/// What stands in `#[step(..)]`.
pub struct StepOptions {
    /// Where `expand` is found.
    pub root: Path,
    /// The durable name, if it is not the function's.
    pub name: Option<String>,
    pub kind: Kind,
    pub key: Option<Expr>,
    pub retry: Option<Retry>,
    pub timeout_ms: Option<u64>,
}

/// What a step promises.
pub enum Kind {
    Ordinary,
    Durable,
    Irreversible(Irreversible),
    Transactional { max_duration_ms: Option<u64> },
}

/// What only an irreversible step has.
pub struct Irreversible {
    pub in_doubt: InDoubt,
    pub on_exhausted: Option<OnExhausted>,
    pub max_duration_ms: Option<u64>,
}

/// What to do when nobody knows whether the call happened.
pub enum InDoubt {
    Retry,
    Probe(Path),
    Hold,
}

/// What to do when the retry policy is used up while in doubt.
pub enum OnExhausted {
    Hold,
    Fail,
}

/// The numbers of a retry policy that the author set.
#[derive(Default)]
pub struct Retry {
    pub attempts: Option<u32>,
    pub first_ms: Option<u64>,
    pub factor: Option<u32>,
    pub cap_ms: Option<u64>,
    pub jitter: Option<bool>,
}

/// A function under `#[task]`.
pub struct Task {
    pub function: Function,
    pub shape: Shape,
    pub options: TaskOptions,
}

/// What stands in `#[task(..)]`.
pub struct TaskOptions {
    /// Where `Task` is found.
    pub root: Path,
    /// The durable name, if it is not the function's.
    pub name: Option<String>,
    pub version: u32,
    pub max_attempts: Option<u32>,
    pub steps: Option<Vec<Path>>,
}

/// A struct under `#[derive(State)]`.
pub struct State {
    pub ident: Ident,
    pub generics: Generics,
    pub members: Vec<Member>,
    pub options: StateOptions,
}

/// What stands in `#[state(..)]` on the struct.
pub struct StateOptions {
    /// Where `State` is found.
    pub root: Path,
    /// The name, if it is not the struct's.
    pub name: Option<String>,
    pub version: u32,
    /// From each version below, in order.
    pub migrations: Vec<(u32, Path)>,
}

/// One of its fields.
pub struct Member {
    pub ident: Ident,
    pub ty: Type,
    /// The name it is recorded under, if it is not the field's.
    pub rename: Option<String>,
    /// The function that makes it anew.
    pub rebuild: Option<Path>,
}

/// An item with mistakes, and as much of it as was understood.
pub struct Broken<M> {
    pub error: syn::Error,
    pub rest: Rest<M>,
}

/// What is left of an item with mistakes.
pub enum Rest<M> {
    /// Only options were wrong; the model holds defaults in their place.
    Model(M),
    /// The signature is not one a step or task can have.
    Function { function: Box<Function>, root: Path },
    /// Not a function.
    Item(TokenStream),
}

/// The type without what a `macro_rules!` wrapped around it.
pub fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        ty => ty,
    }
}

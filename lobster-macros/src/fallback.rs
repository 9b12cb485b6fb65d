//! What is written when an item has mistakes: the mistakes, and an item that others can still name and call.
//!
//! Invariant: an author sees his mistake, and not what follows from it.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::visit::Visit;
use syn::{FnArg, Path, ReturnType, Signature, Type};

use crate::emit::{self, Frame, ours};
use crate::model::{Broken, Function, Rest, State, Step, Task, TaskOptions, bare};
use crate::parse::is_state;

/// A step with mistakes.
pub fn step(broken: Broken<Step>) -> TokenStream {
    let mistakes = broken.error.into_compile_error();
    let item = match broken.rest {
        Rest::Model(model) => emit::step(&model),
        Rest::Function { function, .. } if function.sig.receiver().is_some() => method(&function),
        Rest::Function { function, root } => step_stub(&function, &root),
        Rest::Item(item) => item,
    };
    quote!(#mistakes #item)
}

/// A state with mistakes, and what was understood of it.
pub fn state(error: &syn::Error, rest: Option<&State>) -> TokenStream {
    let (mistakes, state) = (error.to_compile_error(), rest.map(emit::state));
    quote!(#mistakes #state)
}

/// A task with mistakes.
pub fn task(broken: Broken<Task>) -> TokenStream {
    let mistakes = broken.error.into_compile_error();
    let item = match broken.rest {
        Rest::Model(model) => emit::task(&model),
        Rest::Function { function, .. } if function.sig.receiver().is_some() => method(&function),
        Rest::Function { function, root } => task_stub(&function, root),
        Rest::Item(item) => item,
    };
    quote!(#mistakes #item)
}

/// A method is left as it is: nothing can stand beside it in an `impl`.
fn method(function: &Function) -> TokenStream {
    let Function { attrs, vis, sig, block } = function;
    quote!(#(#attrs)* #vis #sig #block)
}

/// Something that is called like the step, and never ends.
fn step_stub(function: &Function, root: &Path) -> TokenStream {
    let (frame, Function { attrs, vis, sig, .. }) = (Frame::new(function, root), function);
    let (name, generics, where_clause) = (&sig.ident, &sig.generics, &sig.generics.where_clause);
    let inputs = inputs(sig, &quote!(&#root::Ctx));
    let result = frame.step_result(&output(sig, root));
    let (kept, marker, marker_name, conditions) =
        (kept(function), frame.marker(&quote!(#[doc(hidden)])), frame.marker_name(), frame.conditions());
    quote_spanned! {frame.here=>
        #(#attrs)*
        #vis fn #name #generics(#(#inputs),*) -> #root::Step<impl ::core::future::Future<Output = #result>> #where_clause {
            #kept
            #root::Step::new(::core::future::pending())
        }
        #marker
        #(#conditions)*
        impl #root::expand::StepInfo for #marker_name {
            const SPEC: #root::expand::Spec = #root::expand::Spec { name: "", site: "", ..#root::expand::Spec::ordinary() };
        }
    }
}

/// Something that is registered and called like the task, and never ends.
fn task_stub(function: &Function, root: Path) -> TokenStream {
    let (frame, Function { attrs, vis, sig, .. }) = (Frame::new(function, &root), function);
    let (name, generics, where_clause) = (&sig.ident, &sig.generics, &sig.generics.where_clause);
    let mut inputs = inputs(sig, &quote!(#root::Ctx));
    if inputs.len() < 2 {
        inputs.push(quote!(_: ()));
    }
    let output = output(sig, &root);
    // A type parameter means nothing outside the function, and neither does a borrow.
    let input = sig.inputs.iter().nth(1).and_then(|input| match input {
        FnArg::Typed(typed) if generics.params.is_empty() && Unfit::find(&typed.ty).fits() => Some(&*typed.ty),
        _ => None,
    });
    let recorded = if generics.params.is_empty() { output.clone() } else { no_output(&root) };
    let options = TaskOptions { root: root.clone(), name: None, version: 1, max_attempts: None, steps: None };
    let info = emit::task_info(&frame, &options, input, &recorded);
    let (kept, marker_name) = (kept(function), frame.marker_name());
    quote_spanned! {frame.here=>
        #(#attrs)*
        #vis fn #name #generics(#(#inputs),*)
            -> #root::TaskRun<#marker_name, impl ::core::future::Future<Output = #output>>
        #where_clause
        {
            #kept
            #root::TaskRun::new(::core::future::pending())
        }
        #info
    }
}

/// The parameters as a caller sees them: no patterns, no attributes, no states, and the context of a body in the first place.
fn inputs(sig: &Signature, ctx: &TokenStream) -> Vec<TokenStream> {
    let typed = sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) if is_context(&typed.ty) || !typed.attrs.iter().any(is_state) => Some(&*typed.ty),
        _ => None,
    });
    let shown = typed.enumerate().map(|(n, ty)| if n == 0 && is_context(ty) { ctx.clone() } else { ty.to_token_stream() });
    shown.map(|ty| quote!(_: #ty)).collect()
}

fn is_context(ty: &Type) -> bool {
    match bare(ty) {
        Type::Reference(to) => is_context(&to.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Ctx" || last.ident == "StepCtx"),
        _ => false,
    }
}

/// The return type, if it can stand in another function.
fn output(sig: &Signature, root: &Path) -> Type {
    match &sig.output {
        ReturnType::Type(_, output) if Unfit::find(output).fits() => (**output).clone(),
        _ => no_output(root),
    }
}

fn no_output(root: &Path) -> Type {
    syn::parse_quote!(::core::result::Result<(), #root::StepFailed>)
}

/// The author's function itself, so that what it uses stays used and its own mistakes are still shown; without its body if
/// that could not be right.
fn kept(function: &Function) -> TokenStream {
    let (mut sig, mut block) = (function.sig.clone(), function.block.to_token_stream());
    let returns = matches!(&sig.output, ReturnType::Type(_, output) if !Unfit::find(output).borrows);
    if !returns || sig.constness.is_some() || sig.variadic.is_some() {
        (sig.output, block) = (ReturnType::Default, quote_spanned!(ours()=> {}));
    }
    (sig.ident, sig.asyncness) = (emit::body_name(), Some(syn::Token![async](ours())));
    (sig.constness, sig.variadic) = (None, None);
    for input in &mut sig.inputs {
        if let FnArg::Typed(typed) = input {
            typed.attrs.clear();
        }
    }
    quote_spanned! {ours()=>
        #[allow(dead_code, unused, clippy::all, reason = "kept only for what it uses")]
        #sig #block
    }
}

/// Why a type cannot stand in the place of another type.
#[derive(Default)]
struct Unfit {
    borrows: bool,
    nameless: bool,
}

impl Unfit {
    fn find(ty: &Type) -> Self {
        let mut found = Self::default();
        found.visit_type(ty);
        found
    }

    fn fits(&self) -> bool {
        !self.borrows && !self.nameless
    }
}

impl<'ast> Visit<'ast> for Unfit {
    fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
        self.nameless = true;
    }

    fn visit_type_reference(&mut self, _: &'ast syn::TypeReference) {
        self.borrows = true;
    }

    fn visit_lifetime(&mut self, _: &'ast syn::Lifetime) {
        self.borrows = true;
    }
}

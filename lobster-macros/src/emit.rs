//! From a model to tokens. The only place that writes code.
//!
//! Invariant: every name that is not the author's is hygienic or starts with `__lobster_`, and every path starts at a root.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Attribute, Path, Signature};

use crate::model::Function;

mod outer;
mod step;
mod task;

pub use step::step;
pub use task::{info as task_info, task};

/// Hygiene of our own: names given here are not seen by the author's code, nor his by ours.
pub fn ours() -> Span {
    Span::mixed_site()
}

/// Ours, but shown to the author as his `tokens`.
pub fn ours_at(tokens: &impl ToTokens) -> Span {
    let start = tokens.to_token_stream().into_iter().next().map_or_else(Span::call_site, |token| token.span());
    ours().located_at(start)
}

/// The author's function, inside ours: his signature and his body to the letter.
pub fn body(function: &Function) -> TokenStream {
    let sig = Signature { ident: body_name(), ..function.sig.clone() };
    let block = &function.block;
    quote_spanned! {ours()=>
        #[allow(clippy::unused_async, reason = "it is async by contract, whatever its body does")]
        #sig #block
    }
}

/// What the author's function is called inside ours.
pub fn body_name() -> Ident {
    Ident::new("__lobster_body", ours())
}

/// The marker type that has the function's name in the namespace of types.
pub fn marker(function: &Function, doc: &TokenStream) -> TokenStream {
    let (vis, name, conditions) = (&function.vis, marker_name(function), conditions(function));
    quote_spanned! {ours()=>
        #(#conditions)*
        #doc
        #[allow(
            non_camel_case_types,
            dead_code,
            unreachable_pub,
            missing_debug_implementations,
            missing_copy_implementations,
            clippy::empty_enums,
            reason = "a type that only carries what belongs to the function of the same name"
        )]
        #vis enum #name {}
    }
}

/// The name of [`marker`].
pub fn marker_name(function: &Function) -> Ident {
    let name = &function.sig.ident;
    let mut marker = name.clone();
    marker.set_span(ours().located_at(name.span()));
    marker
}

/// The `#[cfg]`s of the function, which everything beside it must share.
pub fn conditions(function: &Function) -> impl Iterator<Item = &Attribute> {
    function.attrs.iter().filter(|attr| attr.path().is_ident("cfg"))
}

/// The durable name.
fn durable_name(given: Option<&String>, function: &Function) -> String {
    given.cloned().unwrap_or_else(|| function.sig.ident.unraw().to_string())
}

/// `Some(value)` or `None`, with full paths.
fn option(value: Option<impl ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote_spanned!(ours()=> ::core::option::Option::Some(#value)),
        None => quote_spanned!(ours()=> ::core::option::Option::None),
    }
}

/// What a step's future gives.
pub fn step_result(root: &Path, output: &impl ToTokens) -> TokenStream {
    let value = value(root, output, "StepOutput");
    quote_spanned!(ours()=> ::core::result::Result<#value, #root::StepFailed>)
}

/// What is recorded of a return type. Shown at the whole of that type, should it not be one that can be recorded.
pub fn value(root: &Path, output: &impl ToTokens, promise: &str) -> TokenStream {
    let (root, promise) = (at(root, ours_at(output)), Ident::new(promise, ours()));
    let last = output.to_token_stream().into_iter().last().map_or_else(Span::call_site, |token| token.span());
    let start = quote_spanned!(ours_at(output)=> <#output as #root::expand::#promise>);
    let end = quote_spanned!(ours().located_at(last)=> ::Value);
    quote!(#start #end)
}

/// The same tokens, shown to the author as those at `span`.
pub fn at(tokens: &impl ToTokens, span: Span) -> TokenStream {
    let moved = tokens.to_token_stream().into_iter().map(|mut token| {
        token.set_span(token.span().located_at(span));
        token
    });
    moved.collect()
}

/// Our statements in the author's braces.
///
/// A lint about the function itself (never called, not documented, more public than it can be) is shown only if the function
/// begins and ends with tokens of the author's, and so does its signature; otherwise it counts as the macro's own.
fn in_block(function: &Function, statements: &TokenStream) -> TokenStream {
    let mut block = proc_macro2::Group::new(proc_macro2::Delimiter::Brace, statements.clone());
    block.set_span(function.block.span());
    block.into_token_stream()
}

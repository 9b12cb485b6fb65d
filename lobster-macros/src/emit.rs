//! From a model to tokens. The only place that writes code.
//!
//! Invariant: every name that is not the author's is hygienic or starts with `__lobster_`, and every path starts at a root.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
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
    let value = quote_spanned!(ours()=> <#output as #root::expand::StepOutput>::Value);
    quote_spanned!(ours()=> ::core::result::Result<#value, #root::StepFailed>)
}

//! From a model to tokens. The only place that writes code.
//!
//! Invariant: every name that is not the author's is hygienic or starts with `__lobster_`, and every path starts at a root.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Attribute, FnArg, Pat, Path, Signature, Type, parse_quote_spanned};

use crate::model::Function;
use crate::parse::is_state;

mod outer;
mod state;
mod step;
mod task;

pub use state::state;
pub use step::step;
pub use task::{info as task_info, task};

/// What all that is written for one function has in common.
pub struct Frame<'f> {
    pub function: &'f Function,
    /// Where `expand` is found.
    pub root: TokenStream,
    /// Our hygiene, shown at the function's name: where a mistake is shown that has no better place. One place for all of them
    /// also makes the compiler say the same thing once.
    pub here: Span,
}

impl<'f> Frame<'f> {
    pub fn new(function: &'f Function, root: &Path) -> Self {
        let here = ours_at(&function.sig.ident);
        Self { function, root: at(root, here), here }
    }

    /// The author's function, inside ours: his signature and his body to the letter, but for the attributes that are for us.
    /// What is `used` outside of it counts as used.
    fn body(&self, used: impl Fn(&Ident) -> bool) -> TokenStream {
        let mut sig = Signature { ident: body_name(), ..self.function.sig.clone() };
        for input in &mut sig.inputs {
            if let FnArg::Typed(typed) = input {
                typed.attrs.retain(|attr| !is_state(attr));
                if typed.attrs.is_empty() && matches!(&*typed.pat, Pat::Ident(pat) if used(&pat.ident)) {
                    let reason = "it is used where the call is named";
                    typed.attrs.push(parse_quote_spanned!(ours()=> #[allow(unused_variables, reason = #reason)]));
                }
            }
        }
        let block = &self.function.block;
        quote_spanned! {self.here=>
            #[allow(clippy::unused_async, reason = "it is async by contract, whatever its body does")]
            #sig #block
        }
    }

    /// Our statements in the author's braces.
    ///
    /// A lint about the function itself (never called, not documented, more public than it can be) is shown only if the
    /// function begins and ends with tokens of the author's, and so does its signature; otherwise it counts as the macro's own.
    fn in_block(&self, statements: TokenStream) -> TokenStream {
        let mut block = Group::new(Delimiter::Brace, statements);
        block.set_span(self.function.block.span());
        block.into_token_stream()
    }

    /// The end of a return type, in its brackets; see [`Self::in_block`] for why the last of them is the author's.
    fn returned(&self, types: &TokenStream) -> TokenStream {
        let end = self.function.block.span_close();
        quote_spanned!(end=> <#types>)
    }

    /// The marker type that has the function's name in the namespace of types. No lint of the author's looks at it, because it
    /// is not made of his tokens alone.
    pub fn marker(&self, doc: &TokenStream) -> TokenStream {
        let (vis, name, conditions) = (&self.function.vis, self.marker_name(), self.conditions());
        quote_spanned! {self.here=>
            #(#conditions)*
            #doc
            #vis enum #name {}
        }
    }

    /// The name of [`Self::marker`].
    pub fn marker_name(&self) -> Ident {
        let mut marker = self.function.sig.ident.clone();
        marker.set_span(self.here);
        marker
    }

    /// The `#[cfg]`s of the function, which everything beside it must share.
    pub fn conditions(&self) -> impl Iterator<Item = &Attribute> {
        self.function.attrs.iter().filter(|attr| attr.path().is_ident("cfg"))
    }

    /// The durable name.
    fn durable_name(&self, given: Option<&String>) -> String {
        given.cloned().unwrap_or_else(|| self.function.sig.ident.unraw().to_string())
    }

    /// What a step's future gives.
    pub fn step_result(&self, output: &Type) -> TokenStream {
        let (root, here) = (&self.root, self.here);
        quote_spanned!(here=> ::core::result::Result<<#output as #root::expand::Returned>::Value, #root::StepFailed>)
    }
}

/// What the author's function is called inside ours.
pub fn body_name() -> Ident {
    Ident::new("__lobster_body", ours())
}

/// Hygiene of our own: names given here are not seen by the author's code, nor his by ours.
pub fn ours() -> Span {
    Span::mixed_site()
}

/// Ours, but shown to the author as his `tokens`.
fn ours_at(tokens: &impl ToTokens) -> Span {
    let start = tokens.to_token_stream().into_iter().next().map_or_else(Span::call_site, |token| token.span());
    ours().located_at(start)
}

/// The same tokens, shown to the author as those at `span`.
fn at(tokens: &impl ToTokens, span: Span) -> TokenStream {
    let moved = tokens.to_token_stream().into_iter().map(|mut token| {
        token.set_span(token.span().located_at(span));
        token
    });
    moved.collect()
}

/// `Some(value)` or `None`, with full paths.
fn option(value: Option<impl ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

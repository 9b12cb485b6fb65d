//! Writes what makes a struct a state.
//!
//! Invariant: every member is shown once, in the order of the struct, and every scratch is filled in that order.

use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::ext::IdentExt;

use super::{at, ours_at};
use crate::model::{Member, State};

/// The implementation.
pub fn state(state: &State) -> TokenStream {
    let (ident, options, here) = (&state.ident, &state.options, ours_at(&state.ident));
    let root = at(&options.root, here);
    let (params, args, where_clause) = state.generics.split_for_impl();
    let name = options.name.clone().unwrap_or_else(|| ident.unraw().to_string());
    let version = options.version;
    let migrations = options.migrations.iter().map(|(from, path)| {
        let root = at(&root, ours_at(path));
        quote_spanned!(ours_at(path)=> #root::expand::Migration { from: #from, apply: #path })
    });
    let shown = state.members.iter().map(show);
    let filled = state.members.iter().map(|member| fill(member, &root));
    quote_spanned! {here=>
        #[automatically_derived]
        impl #params #root::State for #ident #args #where_clause {
            const NAME: &'static str = #name;
            const VERSION: u32 = #version;
            const MIGRATIONS: &'static [#root::expand::Migration] = &[#(#migrations),*];
            fn members(&mut self, visit: &mut dyn ::core::ops::FnMut(&'static str, &mut dyn #root::Member)) {
                // Asks for the type itself, so that a wrong one is shown where it stands.
                fn member<M: #root::Member>(member: &mut M) -> &mut dyn #root::Member {
                    member
                }
                #(#shown)*
            }
            fn rebuild(&mut self) {
                #(#filled)*
            }
        }
    }
}

/// Shows a member under its recorded name.
fn show(member: &Member) -> TokenStream {
    let Member { ident, ty, rename, .. } = member;
    let name = rename.clone().unwrap_or_else(|| ident.unraw().to_string());
    quote_spanned!(ours_at(ty)=> visit(#name, member::<#ty>(&mut self.#ident));)
}

/// Fills a member, if it is a scratch and empty.
fn fill(member: &Member, root: &TokenStream) -> TokenStream {
    let Member { ident, ty, rebuild, .. } = member;
    let (here, root) = (ours_at(ty), at(root, ours_at(ty)));
    let Some(path) = rebuild else {
        // A method of a scratch; what every other type has under this name does nothing.
        return quote_spanned! {here=> {
            #[allow(unused_imports, reason = "a state may have nothing but scratch")]
            use #root::expand::Recorded as _;
            self.#ident.fill_by_default();
        }};
    };
    // One place where the types must meet, so that a member that is no scratch is shown once.
    let scratch = quote_spanned!(here=> let scratch: fn(&mut Self) -> &mut #root::Scratch<_> = |state| &mut state.#ident;);
    let root = at(&root, ours_at(path));
    quote_spanned! {ours_at(path)=> {
        #scratch
        if #root::Scratch::is_empty(scratch(self)) {
            let value = #path(&*self);
            #root::Scratch::fill(scratch(self), value);
        }
    }}
}

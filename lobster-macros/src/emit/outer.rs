//! The generics and captures of the function that takes the author's place.
//!
//! Invariant: every lifetime its arguments have is named and listed, so it captures the same in every edition.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote_spanned};
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{Generics, Lifetime, Type, TypeReference};

use super::ours;

/// Generics of the outer function, while its argument types are being written.
pub struct Outer<'g> {
    generics: &'g Generics,
    names: Names,
}

impl<'g> Outer<'g> {
    /// Starts from the author's generics; `types` are all types of the signature, whose names are not taken again.
    pub fn new<'t>(generics: &'g Generics, types: impl Iterator<Item = &'t Type>) -> Self {
        let mut taken = Taken::default();
        taken.visit_generics(generics);
        types.for_each(|ty| taken.visit_type(ty));
        Self { generics, names: Names { taken: taken.0, made: Vec::new() } }
    }

    /// The type with a name for each lifetime that was left out.
    pub fn named(&mut self, ty: &Type) -> Type {
        let mut ty = ty.clone();
        self.names.visit_type_mut(&mut ty);
        ty
    }

    /// A lifetime for a reference: the one it has, or a new one.
    pub fn lifetime(&mut self, of: &Type) -> Lifetime {
        match of {
            Type::Reference(TypeReference { lifetime: Some(lifetime), .. }) if lifetime.ident != "_" => lifetime.clone(),
            _ => self.names.fresh(),
        }
    }

    /// `<'l0, T: Bound, ..>`.
    pub fn params(&self) -> TokenStream {
        let (made, params) = (&self.names.made, self.generics.params.iter());
        let params = made.iter().map(ToTokens::to_token_stream).chain(params.map(ToTokens::to_token_stream));
        quote_spanned!(ours()=> <#(#params),*>)
    }

    /// `use<'l0, T, ..>`.
    pub fn captures(&self) -> TokenStream {
        let lifetimes = self.names.made.iter().chain(self.generics.lifetimes().map(|param| &param.lifetime));
        let types = self.generics.type_params().map(|param| &param.ident);
        let consts = self.generics.const_params().map(|param| &param.ident);
        let all = lifetimes
            .map(ToTokens::to_token_stream)
            .chain(types.map(ToTokens::to_token_stream))
            .chain(consts.map(ToTokens::to_token_stream));
        quote_spanned!(ours()=> use<#(#all),*>)
    }

    /// `::<T, N>`, without lifetimes, which cannot always be given; nothing if there is nothing to say.
    pub fn turbofish(&self) -> TokenStream {
        let given = self.generics.params.iter().filter_map(|param| match param {
            syn::GenericParam::Lifetime(_) => None,
            syn::GenericParam::Type(param) => Some(&param.ident),
            syn::GenericParam::Const(param) => Some(&param.ident),
        });
        let given: Vec<_> = given.collect();
        if given.is_empty() { TokenStream::new() } else { quote_spanned!(ours()=> ::<#(#given),*>) }
    }
}

/// The names of lifetimes that occur.
#[derive(Default)]
struct Taken(HashSet<String>);

impl<'ast> Visit<'ast> for Taken {
    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        self.0.insert(lifetime.ident.to_string());
        visit::visit_lifetime(self, lifetime);
    }
}

struct Names {
    taken: HashSet<String>,
    made: Vec<Lifetime>,
}

impl Names {
    fn fresh(&mut self) -> Lifetime {
        let name = (0..).map(|n| format!("l{n}")).find(|name| !self.taken.contains(name));
        let name = name.expect("a signature is finite, so one of all numbers is free");
        let lifetime = Lifetime::new(&format!("'{name}"), ours());
        self.taken.insert(name);
        self.made.push(lifetime.clone());
        lifetime
    }
}

impl VisitMut for Names {
    fn visit_type_reference_mut(&mut self, ty: &mut TypeReference) {
        if ty.lifetime.is_none() {
            ty.lifetime = Some(self.fresh());
        }
        visit_mut::visit_type_reference_mut(self, ty);
    }

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident == "_" {
            *lifetime = self.fresh();
        }
    }

    // What is left out in `fn(&T)` and `Fn(&T)` is bound there, for every call anew.
    fn visit_type_bare_fn_mut(&mut self, _: &mut syn::TypeBareFn) {}
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut syn::ParenthesizedGenericArguments) {}
    fn visit_expr_mut(&mut self, _: &mut syn::Expr) {}
}

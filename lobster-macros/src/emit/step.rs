//! Writes a step: the function that is called, the author's inside it, and the marker with its spec.
//!
//! Invariant: the key and the occurrence are taken when the outer function is called; no step runs before it is polled.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Expr, ExprLit, ExprReference, GenericParam, Lifetime, Lit, Path, Type, TypeImplTrait, TypeReference};

use super::outer::Outer;
use super::{Frame, at, body_name, option, ours, ours_at};
use crate::model::{Argument, InDoubt, Irreversible, Kind, OnExhausted, Retry, StateArgument, Step, bare};

/// Everything that takes the place of the author's function.
pub fn step(step: &Step) -> TokenStream {
    let frame = Frame::new(&step.function, &step.options.root);
    let (root, here, sig, output) = (&frame.root, frame.here, &step.function.sig, &step.shape.output);
    let (attrs, vis, fn_token, name) = (&step.function.attrs, &step.function.vis, &sig.fn_token, &sig.ident);
    let types = step.shape.args.iter().map(|arg| &arg.ty).chain([&step.shape.ctx.ty, output]);
    let mut outer = Outer::new(&sig.generics, types);

    let ctx = outer_name(step, &step.shape.ctx);
    let ctx_lifetime = outer.lifetime(bare(&step.shape.ctx.ty));
    let args: Vec<Passed> = step.shape.args.iter().map(|arg| Passed::new(arg, outer_name(step, arg))).collect();
    let inputs: Vec<TokenStream> = args
        .iter()
        .map(|Passed { name, ty, .. }| {
            let ty = outer.named(ty);
            quote!(#name: #ty)
        })
        .collect();
    let (params, captures, where_clause) = (outer.params(), outer.captures(), &sig.generics.where_clause);

    let result = frame.step_result(output);
    let returned = frame.returned(&quote_spanned!(here=> impl ::core::future::Future<Output = #result> + #captures));
    let (body, taken, call) = (frame.body(|name| used_at_call(step, name)), ours_local("call"), call(step, &frame, &ctx));
    let states: Vec<Leased> = step.shape.states.iter().enumerate().map(|(n, state)| Leased::new(n, state)).collect();
    let again = Again { frame: &frame, taken: &taken, args: &args, states: &states, turbofish: outer.turbofish(), output };
    let future = match &step.options.kind {
        Kind::Ordinary | Kind::Durable if states.is_empty() => again.inline(),
        Kind::Ordinary | Kind::Durable => again.stateful(),
        Kind::Irreversible(irreversible) => again.spawned(irreversible),
        Kind::Transactional { .. } => again.transacted(step.shape.transaction.as_ref()),
    };
    let block = frame.in_block(quote_spanned! {here=>
        #body
        let #taken = #call;
        #root::Step::new(#future)
    });
    let info = info(step, &frame);
    quote_spanned! {here=>
        #(#attrs)*
        #vis #fn_token #name #params(#ctx: &#ctx_lifetime #root::Ctx, #(#inputs),*) -> #root::Step #returned
        #where_clause #block
        #info
    }
}

/// A local of the outer function, which only our own code can name.
fn ours_local(name: &str) -> Ident {
    Ident::new(&format!("__lobster_{name}"), ours())
}

/// What an argument is called in the outer function. It is ours, so that no lint of the author's looks at how it is used;
/// a key and the name of a state are his own code and need his own names for what they mention, if only in a format string.
fn outer_name(step: &Step, arg: &Argument) -> Ident {
    let mut name = arg.ident.clone();
    if !used_at_call(step, &name) {
        name.set_span(ours().located_at(name.span()));
    }
    name
}

/// Whether the key or the name of a state mentions this.
fn used_at_call(step: &Step, name: &Ident) -> bool {
    let mentions = |expr: &Expr| expr.to_token_stream().to_string().contains(&name.unraw().to_string());
    let names = step.shape.states.iter().filter_map(|state| state.name.as_ref());
    step.options.key.iter().chain(names).any(mentions)
}

/// Takes the identity of this call.
fn call(step: &Step, frame: &Frame, ctx: &Ident) -> TokenStream {
    let (root, here, marker) = (&frame.root, frame.here, frame.marker_name());
    let key = option(step.options.key.as_ref().map(|key| {
        let key = ExprReference {
            attrs: Vec::new(),
            and_token: syn::Token![&](ours_at(key)),
            mutability: None,
            expr: Box::new(Expr::clone(key)),
        };
        let (span, root) = (ours_at(&key), at(root, ours_at(&key)));
        quote_spanned!(span=> #root::expand::key(#key))
    }));
    quote_spanned! {here=>
        #root::expand::call(#ctx, const { &<#marker as #root::expand::StepInfo>::SPEC }, #key)
    }
}

/// How an argument gets from the outer function to an attempt.
enum Passing<'a> {
    /// `&T` with any lifetime: copied where the future may borrow, else cloned at the call.
    Borrowed(&'a Type),
    /// `&'static T`: copied everywhere.
    Static,
    /// Cloned for each attempt.
    Owned,
}

struct Passed<'a> {
    name: Ident,
    ty: &'a Type,
    passing: Passing<'a>,
}

impl<'a> Passed<'a> {
    fn new(arg: &'a Argument, name: Ident) -> Self {
        let is_static = |lifetime: &Option<Lifetime>| lifetime.as_ref().is_some_and(|lifetime| lifetime.ident == "static");
        let passing = match bare(&arg.ty) {
            Type::Reference(to) if is_static(&to.lifetime) => Passing::Static,
            Type::Reference(to) => Passing::Borrowed(&to.elem),
            _ => Passing::Owned,
        };
        Self { name, ty: &arg.ty, passing }
    }

    /// One more of an argument that the outer function owns.
    fn cloned(&self) -> TokenStream {
        let name = &self.name;
        quote_spanned!(ours_at(name)=> ::core::clone::Clone::clone(&#name))
    }

    /// An owned value of what is given by reference.
    fn owned(&self, root: &TokenStream, ty: &Type, from: &TokenStream) -> TokenStream {
        let root = at(root, ours_at(&self.name));
        quote_spanned!(ours_at(&self.name)=> #root::expand::own::<#ty>(#from))
    }
}

/// A state, and what its lease is called in an attempt.
struct Leased<'a> {
    lease: Ident,
    state: &'a StateArgument,
}

impl<'a> Leased<'a> {
    fn new(n: usize, state: &'a StateArgument) -> Self {
        Self { lease: ours_local(&format!("lease{n}")), state }
    }

    /// Which state, by type and by name.
    fn wanted(&self, root: &TokenStream) -> TokenStream {
        let StateArgument { ty, name, .. } = self.state;
        let here = ours_at(ty);
        let root = at(root, here);
        match name {
            None => quote_spanned!(here=> #root::expand::Named::<#ty>::of_type()),
            // What may be needed again is not moved.
            Some(name @ (Expr::Path(_) | Expr::Field(_))) => {
                let name = quote_spanned!(ours_at(name)=> ::core::clone::Clone::clone(&#name));
                quote_spanned!(here=> #root::expand::Named::<#ty>::new(#name))
            }
            Some(name) => quote_spanned!(here=> #root::expand::Named::<#ty>::new(#name)),
        }
    }

    /// `&mut T`, for one attempt.
    fn given(&self) -> TokenStream {
        let lease = &self.lease;
        quote_spanned!(ours_at(&self.state.ty)=> &mut *#lease)
    }
}

/// Writes the future that can make the call again.
struct Again<'a> {
    frame: &'a Frame<'a>,
    taken: &'a Ident,
    args: &'a [Passed<'a>],
    states: &'a [Leased<'a>],
    turbofish: TokenStream,
    output: &'a Type,
}

impl Again<'_> {
    /// In the caller's future, so that arguments may be borrowed.
    fn inline(&self) -> TokenStream {
        let (Self { taken, turbofish, .. }, body, cx) = (self, body_name(), ours_local("cx"));
        let (root, here) = (&self.frame.root, self.frame.here);
        let args = self.args.iter().map(|arg| match arg.passing {
            Passing::Borrowed(_) | Passing::Static => arg.name.to_token_stream(),
            Passing::Owned => arg.cloned(),
        });
        quote_spanned! {here=>
            async move {
                // The closure owns the arguments: were they borrowed, they would have to be `Sync`.
                #root::expand::inline(&#taken, move |#cx| #body #turbofish(#cx, #(#args),*)).await
            }
        }
    }

    /// In the caller's future too, with states: asked for at the call, and given back with the output of each attempt.
    fn stateful(&self) -> TokenStream {
        let (Self { taken, turbofish, states, .. }, body, cx) = (self, body_name(), ours_local("cx"));
        let (root, here) = (&self.frame.root, self.frame.here);
        let (wanted, output) = (ours_local("wanted"), ours_local("output"));
        let named = states.iter().map(|leased| leased.wanted(root));
        let leases: Vec<&Ident> = states.iter().map(|leased| &leased.lease).collect();
        let clones = self.args.iter().filter_map(|arg| match arg.passing {
            Passing::Borrowed(_) | Passing::Static => None,
            Passing::Owned => {
                let (name, clone) = (&arg.name, arg.cloned());
                Some(quote!(let #name = #clone;))
            }
        });
        let mut given: Vec<TokenStream> = self.args.iter().map(|arg| arg.name.to_token_stream()).collect();
        for leased in *states {
            given.insert(leased.state.place, leased.given());
        }
        quote_spanned! {here=> {
            let #wanted = (#(#named,)*);
            async move {
                #root::expand::stateful(&#taken, #wanted, move |#cx, (#(mut #leases,)*)| {
                    #(#clones)*
                    async move {
                        let #output = #body #turbofish(#cx, #(#given),*).await;
                        (#output, (#(#leases,)*))
                    }
                })
                .await
            }
        }}
    }

    /// On a task of the engine, which owns everything.
    fn spawned(&self, irreversible: &Irreversible) -> TokenStream {
        let (Self { taken, turbofish, .. }, body, cx) = (self, body_name(), ours_local("cx"));
        let (root, here) = (&self.frame.root, self.frame.here);
        let (own, clones, probe_name) = (self.own(), self.clones(), ours_local("probe"));
        let given = self.args.iter().map(|arg| match &arg.passing {
            Passing::Borrowed(ty) => borrowed(&arg.name, ty),
            Passing::Static | Passing::Owned => arg.name.to_token_stream(),
        });
        // The type is said so that a probe of another step is shown at the probe.
        let output = self.output;
        let value = quote_spanned!(here=> <#output as #root::expand::Returned>::Value);
        let probe = match &irreversible.in_doubt {
            InDoubt::Probe(path) => {
                let probe = self.probe(path);
                // Both closures own what they clone from.
                quote_spanned! {here=>
                    let #probe_name: #root::expand::Probe<#value> = { #clones #probe };
                    let #probe_name = ::core::option::Option::Some(#probe_name);
                }
            }
            InDoubt::Retry | InDoubt::Hold => quote_spanned!(here=> let #probe_name = ::core::option::Option::None;),
        };
        quote_spanned! {here=> {
            #own
            #probe
            #root::expand::spawned(
                #taken,
                move |#cx: #root::StepCtx| {
                    #clones
                    async move { #body #turbofish(&#cx, #(#given),*).await }
                },
                #probe_name,
            )
        }}
    }

    /// On a task of the engine, in a transaction of the store.
    fn transacted(&self, transaction: Option<&Type>) -> TokenStream {
        let (Self { taken, turbofish, .. }, body, cx, tx) = (self, body_name(), ours_local("cx"), ours_local("tx"));
        let (root, here) = (&self.frame.root, self.frame.here);
        let (own, clones) = (self.own(), self.clones());
        let given = self.args.iter().map(|arg| match &arg.passing {
            Passing::Borrowed(ty) => borrowed(&arg.name, ty),
            Passing::Static | Passing::Owned => arg.name.to_token_stream(),
        });
        quote_spanned! {here=> {
            #own
            #root::expand::transacted::<#transaction, _>(#taken, move |#cx: #root::StepCtx, #tx| {
                #clones
                ::std::boxed::Box::pin(async move { #body #turbofish(&#cx, #tx, #(#given),*).await })
            })
        }}
    }

    /// What asks the author's probe, with everything by reference.
    fn probe(&self, path: &Path) -> TokenStream {
        let (cx, clones, root) = (ours_local("cx"), self.clones(), at(&self.frame.root, ours_at(path)));
        let given = self.args.iter().map(|arg| match &arg.passing {
            Passing::Borrowed(ty) => borrowed(&arg.name, ty),
            Passing::Static => arg.name.to_token_stream(),
            Passing::Owned => {
                let name = &arg.name;
                quote!(&#name)
            }
        });
        quote_spanned! {ours_at(path)=>
            #root::expand::probe(move |#cx: #root::StepCtx| {
                #clones
                async move { #path(&#cx, #(#given),*).await }
            })
        }
    }

    /// Makes arguments ours at the call.
    fn own(&self) -> TokenStream {
        let owned = self.args.iter().filter_map(|arg| match &arg.passing {
            Passing::Borrowed(ty) => {
                let (name, owned) = (&arg.name, arg.owned(&self.frame.root, ty, &arg.name.to_token_stream()));
                Some(quote!(let #name = #owned;))
            }
            Passing::Static | Passing::Owned => None,
        });
        quote!(#(#owned)*)
    }

    /// What we own, once more, under the same names.
    fn clones(&self) -> TokenStream {
        let clones = self.args.iter().filter_map(|arg| {
            let (name, clone) = match &arg.passing {
                Passing::Borrowed(ty) => (&arg.name, arg.owned(&self.frame.root, ty, &borrowed(&arg.name, ty))),
                Passing::Owned => (&arg.name, arg.cloned()),
                Passing::Static => return None,
            };
            Some(quote!(let #name = #clone;))
        });
        quote!(#(#clones)*)
    }
}

/// `&T` of what was made ours.
fn borrowed(name: &Ident, ty: &Type) -> TokenStream {
    quote_spanned! {ours_at(name)=> {
        let __lobster_borrowed: &#ty = ::core::borrow::Borrow::borrow(&#name);
        __lobster_borrowed
    }}
}

/// The marker and what it says about the step.
fn info(step: &Step, frame: &Frame) -> TokenStream {
    let (root, here, options) = (&frame.root, frame.here, &step.options);
    let (conditions, name) = (frame.conditions(), frame.marker_name());
    let marker = frame.marker(&quote!(#[doc(hidden)]));
    let durable_name = frame.durable_name(options.name.as_ref());
    let site = format!("::{}", step.function.sig.ident.unraw());
    let base = base(root, &options.kind);
    let mut set = Vec::new();
    if let Some(retry) = &options.retry {
        let retry = self::retry(root, retry);
        set.push(quote!(retry: #retry,));
    }
    if let Some(ms) = options.timeout_ms {
        let ms = option(Some(Literal::u64_suffixed(ms)));
        set.push(quote!(timeout_ms: #ms,));
    }
    if options.key.is_some() {
        set.push(quote!(keyed: true,));
    }
    let states: Vec<TokenStream> = step.shape.states.iter().filter_map(|state| state_type(step, state, root)).collect();
    if !states.is_empty() {
        set.push(quote!(states: const { &[#(#states),*] },));
    }
    if let Some(value) = value_type(step, root) {
        set.push(quote!(value: ::core::option::Option::Some(#value),));
    }
    if let Kind::Transactional { max_duration_ms: Some(ms) } = options.kind {
        let ms = option(Some(Literal::u64_suffixed(ms)));
        set.push(quote!(max_duration_ms: #ms,));
    }
    if let Kind::Irreversible(irreversible) = &options.kind {
        if let Some(ms) = irreversible.max_duration_ms {
            let ms = option(Some(Literal::u64_suffixed(ms)));
            set.push(quote!(max_duration_ms: #ms,));
        }
        if let Some(on_exhausted) = &irreversible.on_exhausted {
            let variant = match on_exhausted {
                OnExhausted::Hold => quote!(Hold),
                OnExhausted::Fail => quote!(Fail),
            };
            set.push(quote!(on_exhausted: #root::expand::OnExhausted::#variant,));
        }
    }
    quote_spanned! {here=>
        #marker
        #(#conditions)*
        #[automatically_derived]
        impl #root::expand::StepInfo for #name {
            const SPEC: #root::expand::Spec = #root::expand::Spec {
                name: #durable_name,
                site: ::core::concat!(::core::module_path!(), #site),
                #(#set)*
                ..#base
            };
        }
    }
}

/// The type of a state as the spec lists it; one that depends on what the step is generic over is known to no list.
fn state_type(step: &Step, StateArgument { ty, name, .. }: &StateArgument, root: &TokenStream) -> Option<TokenStream> {
    let (here, root) = (ours_at(ty), at(root, ours_at(ty)));
    let named = match name {
        None => TokenStream::new(),
        Some(Expr::Lit(ExprLit { lit: lit @ Lit::Str(_), .. })) => quote_spanned!(here=> .named(#lit)),
        Some(_) => quote_spanned!(here=> .named_at_the_call()),
    };
    names_itself(step, ty).then(|| quote_spanned!(here=> #root::expand::StateType::of::<#ty>()#named))
}

/// The type of the value as the spec lists it, where the type that the step returns can be named outside of it.
fn value_type(step: &Step, root: &TokenStream) -> Option<TokenStream> {
    let output = &step.shape.output;
    let (here, root) = (ours_at(output), at(root, ours_at(output)));
    names_itself(step, output).then(|| quote_spanned!(here=> #root::expand::ValueType::of::<#output>()))
}

/// Whether a type mentions nothing that only the step's signature knows.
fn names_itself(step: &Step, ty: &Type) -> bool {
    let params = step.function.sig.generics.params.iter().map(|param| match param {
        GenericParam::Type(param) => &param.ident,
        GenericParam::Const(param) => &param.ident,
        GenericParam::Lifetime(param) => &param.lifetime.ident,
    });
    let mut mentions = Mentions { params: params.collect(), found: false };
    mentions.visit_type(ty);
    !mentions.found
}

/// Whether one of these parameters occurs, or a lifetime or type without a name.
struct Mentions<'p> {
    params: Vec<&'p Ident>,
    found: bool,
}

impl<'ast> Visit<'ast> for Mentions<'_> {
    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.found |= ident == "_" || self.params.contains(&ident);
    }
    fn visit_type_reference(&mut self, reference: &'ast TypeReference) {
        self.found |= reference.lifetime.is_none();
        visit::visit_type_reference(self, reference);
    }
    fn visit_type_impl_trait(&mut self, _: &'ast TypeImplTrait) {
        self.found = true;
    }
}

fn base(root: &TokenStream, kind: &Kind) -> TokenStream {
    let in_doubt = match kind {
        Kind::Ordinary => return quote!(#root::expand::Spec::ordinary()),
        Kind::Durable => return quote!(#root::expand::Spec::durable()),
        Kind::Transactional { .. } => return quote!(#root::expand::Spec::transactional()),
        Kind::Irreversible(Irreversible { in_doubt, .. }) => match in_doubt {
            InDoubt::Retry => quote!(Retry),
            InDoubt::Probe(_) => quote!(Probe),
            InDoubt::Hold => quote!(Hold),
        },
    };
    quote!(#root::expand::Spec::irreversible(#root::expand::InDoubt::#in_doubt))
}

fn retry(root: &TokenStream, retry: &Retry) -> TokenStream {
    let Retry { attempts, first_ms, factor, cap_ms, jitter } = retry;
    let fields = [
        attempts.map(|n| quote!(attempts: #n,)),
        first_ms.map(|ms| quote!(first_ms: #ms,)),
        factor.map(|n| quote!(factor: #n,)),
        cap_ms.map(|ms| quote!(cap_ms: #ms,)),
        jitter.map(|jitter| quote!(jitter: #jitter,)),
    ];
    // Nothing is left for the default to fill: saying so would be a lint.
    let default = fields.iter().any(Option::is_none).then(|| quote!(..#root::expand::Retry::DEFAULT));
    let fields = fields.into_iter().flatten();
    quote!(#root::expand::Retry { #(#fields)* #default })
}

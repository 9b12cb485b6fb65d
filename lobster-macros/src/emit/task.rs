//! Writes a task: the function that is called, the author's inside it, and the marker that is the task as a type.
//!
//! Invariant: the function stays callable with exactly a context and one input.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::Type;

use super::{Frame, body_name, option, ours};
use crate::model::{Task, TaskOptions};

/// Everything that takes the place of the author's function.
pub fn task(task: &Task) -> TokenStream {
    let frame = Frame::new(&task.function, &task.options.root);
    let (root, here, sig, output) = (&frame.root, frame.here, &task.function.sig, &task.shape.output);
    let (attrs, vis, fn_token, name) = (&task.function.attrs, &task.function.vis, &sig.fn_token, &sig.ident);
    // The author's names, for whoever reads the docs, with our hygiene.
    let located = |ident: &syn::Ident| {
        let mut ident = ident.clone();
        ident.set_span(ours().located_at(ident.span()));
        ident
    };
    let ctx = located(&task.shape.ctx.ident);
    let (declared, given) = match task.shape.args.first() {
        Some(input) => {
            let (input, ty) = (located(&input.ident), &input.ty);
            (quote!(#input: #ty), quote!(, #input))
        }
        None => (quote!(_: ()), TokenStream::new()),
    };
    let (marker, body, body_name) = (frame.marker_name(), frame.body(|_| false), body_name());
    let returned = frame.returned(&quote_spanned!(here=> #marker, impl ::core::future::Future<Output = #output>));
    let block = frame.in_block(quote_spanned! {here=>
        #body
        #root::TaskRun::new(#body_name(#ctx #given))
    });
    let input = task.shape.args.first().map(|input| &input.ty);
    let info = info(&frame, &task.options, input, output);
    quote_spanned! {here=>
        #(#attrs)*
        #vis #fn_token #name(#ctx: #root::Ctx, #declared) -> #root::TaskRun #returned #block
        #info
    }
}

/// The marker and what it says about the task.
pub fn info(frame: &Frame, options: &TaskOptions, input: Option<&Type>, output: &Type) -> TokenStream {
    let (root, here) = (&frame.root, frame.here);
    let (conditions, name) = (frame.conditions(), frame.marker_name());
    let doc = format!("The task `{}` as a type.", frame.function.sig.ident);
    let marker = frame.marker(&quote!(#[doc = #doc]));
    let durable_name = frame.durable_name(options.name.as_ref());
    let version = options.version;
    let unit: Type = syn::parse_quote!(());
    let input = input.unwrap_or(&unit);
    let max_attempts = option(options.max_attempts);
    let steps = option(options.steps.as_ref().map(|steps| quote!(const { &[#(&<#steps as #root::expand::StepInfo>::SPEC),*] })));
    quote_spanned! {here=>
        #marker
        #(#conditions)*
        #[automatically_derived]
        impl #root::expand::Task for #name {
            const NAME: &'static str = #durable_name;
            const VERSION: u32 = #version;
            type Input = #input;
            type Output = <#output as #root::expand::Returned>::Value;
            fn options() -> #root::expand::TaskOptions {
                #root::expand::TaskOptions { max_attempts: #max_attempts, steps: #steps }
            }
        }
    }
}

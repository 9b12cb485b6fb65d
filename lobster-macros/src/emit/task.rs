//! Writes a task: the function that is called, the author's inside it, and the marker that is the task as a type.
//!
//! Invariant: the function stays callable with exactly a context and one input.

use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::Type;

use super::{body, body_name, conditions, durable_name, in_block, marker, marker_name, option, ours, value};
use crate::model::{Function, Task, TaskOptions};

/// Everything that takes the place of the author's function.
pub fn task(task: &Task) -> TokenStream {
    let (root, function, output) = (&task.options.root, &task.function, &task.shape.output);
    let fn_token = &function.sig.fn_token;
    let (attrs, vis, name) = (&function.attrs, &function.vis, &function.sig.ident);
    let (marker_name, body, body_name) = (marker_name(function), body(function), body_name());
    let input = task.shape.args.first().map(|input| &input.ty);
    // The author's names, for whoever reads the docs, with our hygiene.
    let located = |ident: &syn::Ident| syn::Ident::new(&ident.to_string(), ours().located_at(ident.span()));
    let ctx = located(&task.shape.ctx.ident);
    let (declared, given) = match task.shape.args.first() {
        Some(input) => {
            let (input, ty) = (located(&input.ident), &input.ty);
            (quote_spanned!(ours()=> #input: #ty), quote_spanned!(ours()=> , #input))
        }
        None => (quote_spanned!(ours()=> _: ()), TokenStream::new()),
    };
    let info = info(function, &task.options, input, output);
    let types = quote_spanned!(ours()=> #marker_name, impl ::core::future::Future<Output = #output>);
    // See `in_block` for why the last token is the author's.
    let returned = quote_spanned!(function.block.span_close()=> <#types>);
    let block = in_block(
        function,
        &quote_spanned! {ours()=>
            #body
            #root::TaskRun::new(#body_name(#ctx #given))
        },
    );
    quote_spanned! {ours()=>
        #(#attrs)*
        #vis #fn_token #name(#ctx: #root::Ctx, #declared) -> #root::TaskRun #returned #block
        #info
    }
}

/// The marker and what it says about the task.
pub fn info(function: &Function, options: &TaskOptions, input: Option<&Type>, output: &Type) -> TokenStream {
    let root = &options.root;
    let (conditions, name) = (conditions(function), marker_name(function));
    let doc = format!("The task `{}` as a type.", function.sig.ident);
    let marker = marker(function, &quote_spanned!(ours()=> #[doc = #doc]));
    let durable_name = durable_name(options.name.as_ref(), function);
    let version = options.version;
    let value = value(root, output, "TaskOutput");
    let unit: Type = syn::parse_quote!(());
    let input = input.unwrap_or(&unit);
    let max_attempts = option(options.max_attempts);
    let steps = option(
        options.steps.as_ref().map(|steps| quote_spanned!(ours()=> const { &[#(&<#steps as #root::expand::StepInfo>::SPEC),*] })),
    );
    quote_spanned! {ours()=>
        #marker
        #(#conditions)*
        #[automatically_derived]
        impl #root::expand::Task for #name {
            const NAME: &'static str = #durable_name;
            const VERSION: u32 = #version;
            type Input = #input;
            type Output = #value;
            fn options() -> #root::expand::TaskOptions {
                #root::expand::TaskOptions { max_attempts: #max_attempts, steps: #steps }
            }
        }
    }
}

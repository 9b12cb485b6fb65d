//! A library of steps: what the macros write is held to the lints of a public crate.
//!
//! Invariant: nothing here is allowed that a lint of these groups forbids.

#![deny(
    warnings,
    dead_code,
    nonstandard_style,
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    missing_copy_implementations,
    single_use_lifetimes,
    unused_lifetimes,
    unused_qualifications,
    let_underscore_drop,
    elided_lifetimes_in_paths,
    clippy::all,
    clippy::pedantic,
    clippy::nursery
)]

use std::borrow::Cow;

use lobster_core::{Ctx, Fate, Result, StepCtx, step, task};

/// Doubles.
#[step(retry(attempts = 1, first = 1ms, factor = 1, cap = 1s, jitter = full))]
pub async fn double(_ctx: &StepCtx, number: &u32, text: Cow<'_, str>) -> Result<usize> {
    Ok(text.len() * *number as usize)
}

/// Doubles without a way back.
#[step(irreversible, in_doubt = probe(doubled), key = number)]
pub async fn double_at_once(ctx: &StepCtx, number: &u32, text: String) -> Result<String> {
    std::future::ready(()).await;
    Ok(format!("{}{number}{text}", ctx.idempotency_key()))
}

/// What became of it.
///
/// # Errors
/// None.
pub async fn doubled(_ctx: &StepCtx, number: &u32, text: &str) -> Result<Fate<String>> {
    std::future::ready(Ok(Fate::Happened(format!("{number}{text}")))).await
}

/// Doubles twice.
#[task(steps = [double, double_at_once])]
pub async fn doubles(ctx: Ctx, number: u32) -> Result<usize> {
    let text = double_at_once(&ctx, &number, String::new()).await?;
    double(&ctx, &number, text.into()).await.map_err(Into::into)
}

/// Does nothing.
#[task]
pub async fn nothing(_ctx: Ctx) -> Result<()> {
    Ok(())
}

/// The library under another name, as in a crate that hands it on.
pub mod renamed {
    pub use lobster_core as engine;

    /// Triples.
    #[engine::step(crate = "crate::renamed::engine", durable)]
    pub async fn triple(_ctx: &engine::StepCtx, number: u32) -> engine::Result<u32> {
        Ok(number * 3)
    }

    /// Triples once.
    #[engine::task(crate = "crate::renamed::engine", steps = [triple])]
    pub async fn triples(ctx: engine::Ctx, number: u32) -> engine::Result<u32> {
        Ok(triple(&ctx, number).await?)
    }
}

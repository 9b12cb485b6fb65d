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

use lobster_core::{Base, Ctx, Fate, Field, Flow, Log, Result, Scratch, State, StepCtx, Table, step, task};

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

/// How far it came.
#[derive(Debug, State, Default)]
#[state(name = "sample.import")]
pub struct Import {
    source: Base<String>,
    /// Everybody may know.
    pub cursor: Field<u64>,
    words: Log<String>,
    #[state(rename = "counts")]
    totals: Table<String, u64>,
    #[state(rebuild = longest)]
    longest: Scratch<usize>,
    unused: Scratch<()>,
}

fn longest(import: &Import) -> usize {
    import.words.iter().map(String::len).max().unwrap_or_default()
}

/// Only scratch.
#[derive(Debug, State, Default)]
pub(crate) struct Cache {
    words: Scratch<Vec<String>>,
}

/// Takes the next word.
#[step(durable, key = &text)]
pub async fn next(
    ctx: &StepCtx,
    text: String,
    #[state] import: &mut Import,
    source: &str,
    #[state(name = format!("cache.{source}"))] cache: &mut Cache,
) -> Result<Flow<u64>> {
    std::future::ready(()).await;
    if import.source.get().is_none() {
        import.source.set(source.to_owned())?;
    }
    cache.words.push(text.clone());
    *import.longest = text.len().max(*import.longest);
    *import.totals.entry(text.clone()).or_default() += u64::from(ctx.attempt());
    import.words.push(text);
    import.cursor += 1;
    Ok(Flow::Done(*import.cursor))
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

    /// How much was tripled.
    #[derive(Debug, engine::State, Default)]
    #[state(crate = "crate::renamed::engine", version = 2, migrate(1 = up))]
    pub struct Tripled {
        numbers: engine::Log<u32>,
        #[state(rebuild = count)]
        count: engine::Scratch<usize>,
        last: engine::Scratch<u32>,
    }

    #[allow(clippy::unnecessary_wraps, reason = "that is what a migration returns")]
    fn up(members: &mut engine::Members) -> Result<(), engine::BoxError> {
        members.rename("all", "numbers");
        Ok(())
    }

    fn count(tripled: &Tripled) -> usize {
        tripled.numbers.len()
    }

    /// Triples, and knows it.
    #[engine::step(crate = "crate::renamed::engine")]
    pub async fn keep(_ctx: &engine::StepCtx, number: u32, #[state] tripled: &mut Tripled) -> engine::Result<u32> {
        tripled.numbers.push(number * 3);
        *tripled.count += 1;
        *tripled.last = number;
        Ok(number * 3)
    }

    /// Triples once.
    #[engine::task(crate = "crate::renamed::engine", steps = [triple])]
    pub async fn triples(ctx: engine::Ctx, number: u32) -> engine::Result<u32> {
        Ok(triple(&ctx, number).await?)
    }
}

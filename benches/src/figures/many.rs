//! W2, W2i, W2s, W2c, W2w: many runs at once, and what the server counted for each of their steps.
//!
//! Invariant: all runs are submitted before; the window opens when the first claim is sent and closes with the last finish. What the
//! server counts begins earlier, with the start of the node.

use super::{Stage, Taken};
use crate::{
    Result,
    counters::{Count, Counters},
    meter::Window,
    site::Place,
    work,
};
use lobster_core::{Key, Lobster, Settings};
use std::time::Duration;

/// What their steps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ordinary,
    Irreversible,
}

/// What is told of what the server counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Statements,
    Commits,
    Wal,
}

const RUNS: u32 = 500;
const STEPS: u32 = 10;
const AT_ONCE: usize = 64;

/// Steps per second over all runs, and synced statements.
pub async fn round(stage: &Stage<'_>, kind: Kind) -> Result<(f64, u64)> {
    rate(stage, &stage.site.place(), kind, "run").await
}

/// The same on a store that may hold other runs, with keys that begin with a word of their own.
pub async fn rate(stage: &Stage<'_>, place: &Place, kind: Kind, keys: &str) -> Result<(f64, u64)> {
    let (window, _) = all(stage, place, kind, keys, None).await?;
    Ok((f64::from(stage.options.scaled(RUNS) * STEPS) / window.took.as_secs_f64(), window.syncs))
}

/// Of an ordinary step; `None`: the server does not count.
pub async fn weight(stage: &Stage<'_>, told: Told) -> Result<Option<Taken>> {
    let place = stage.site.place();
    let Some(mut counters) = Counters::open(&place).await? else { return Ok(None) };
    let (window, count) = all(stage, &place, Kind::Ordinary, "run", Some(&mut counters)).await?;
    counters.close().await?;
    let count = count.ok_or("the server was not read")?;
    let count = match told {
        Told::Statements => count.statements,
        Told::Commits => count.commits,
        Told::Wal => count.wal,
    };
    let steps = f64::from(stage.options.scaled(RUNS) * STEPS);
    Ok(Some(Taken { value: count as f64 / steps, syncs: window.syncs, beside: None }))
}

async fn all(
    stage: &Stage<'_>,
    place: &Place,
    kind: Kind,
    keys: &str,
    mut counters: Option<&mut Counters>,
) -> Result<(Window, Option<Count>)> {
    let runs = stage.options.scaled(RUNS);
    let (tiers, meter) = place.open().await?;
    let client = Lobster::open("").tiers(tiers.clone()).connect().await?;
    let all = (0..runs).map(|n| (Key::from(format!("{keys}-{n}")), STEPS));
    match kind {
        Kind::Ordinary => drop(client.submit_all(work::plain, all).await?),
        Kind::Irreversible => drop(client.submit_all(work::outward, all).await?),
    }
    let mut settings = Settings::default();
    settings.run.executing = AT_ONCE;
    let before = match &mut counters {
        Some(counters) => Some(counters.read().await?),
        None => None,
    };
    let lobster = Lobster::open("").tiers(tiers).settings(settings).task(work::plain).task(work::outward).start().await?;
    let window = meter.ended(u64::from(runs), || None).await?;
    let count = match (counters, before) {
        (Some(counters), Some(before)) => Some(counters.since(before).await?),
        _ => None,
    };
    lobster.shutdown(Duration::from_secs(5)).await;
    Ok((window, count))
}

//! W2, W2i, W2s, W2c, W2w: many runs at once, and what the server counted for each of their steps.
//!
//! Invariant: all runs are submitted before; the window opens when the first claim is sent and closes with the last finish. Statements
//! and bytes that the server counts begin earlier, with the start of the node.

use super::{Stage, Taken};
use crate::{
    Result,
    counters::{self, Counters},
    meter::{Meter, Window},
    site::Place,
    work,
};
use lobster_core::{Key, Lobster, Settings, store::Tiers};
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
    let window = all(stage, place, kind, keys).await?;
    Ok((f64::from(stage.options.scaled(RUNS) * STEPS) / window.took.as_secs_f64(), window.syncs))
}

/// Of an ordinary step; `None`: the server does not count.
pub async fn weight(stage: &Stage<'_>, told: Told) -> Result<Option<Taken>> {
    let place = stage.site.place();
    let (window, count) = match told {
        Told::Commits => commits(stage, &place).await?,
        Told::Statements | Told::Wal => {
            let Some(mut counters) = Counters::open(&place).await? else { return Ok(None) };
            let (tiers, meter) = place.open().await?;
            submitted(stage, &tiers, Kind::Ordinary, "run").await?;
            let before = counters.read().await?;
            let (lobster, window) = executed(stage, tiers, &meter).await?;
            let count = counters.since(before).await?;
            lobster.shutdown(GRACE).await;
            counters.close().await?;
            (window, if told == Told::Wal { count.wal } else { count.statements })
        }
    };
    let steps = f64::from(stage.options.scaled(RUNS) * STEPS);
    Ok(Some(Taken { value: count as f64 / steps, syncs: window.syncs, beside: None }))
}

/// A server adds the transactions of a session to those of the database when it likes, at the latest when the session ends. So these are
/// those of a node that starts, executes and stops, less those of one that only starts and stops.
async fn commits(stage: &Stage<'_>, place: &Place) -> Result<(Window, i64)> {
    let (tiers, _) = place.open().await?;
    submitted(stage, &tiers, Kind::Ordinary, "run").await?;
    drop(tiers);
    let before = counters::commits(place).await?;
    let (tiers, meter) = place.open().await?;
    let (lobster, window) = executed(stage, tiers, &meter).await?;
    lobster.shutdown(GRACE).await;
    drop(meter);
    let all = counters::commits(place).await? - before;
    let (tiers, meter) = place.open().await?;
    let lobster = node(tiers).await?;
    lobster.shutdown(GRACE).await;
    drop(meter);
    let idle = counters::commits(place).await? - before - all;
    Ok((window, all - idle))
}

const GRACE: Duration = Duration::from_secs(5);

async fn all(stage: &Stage<'_>, place: &Place, kind: Kind, keys: &str) -> Result<Window> {
    let (tiers, meter) = place.open().await?;
    submitted(stage, &tiers, kind, keys).await?;
    let (lobster, window) = executed(stage, tiers, &meter).await?;
    lobster.shutdown(GRACE).await;
    Ok(window)
}

/// Submits the runs.
async fn submitted(stage: &Stage<'_>, tiers: &Tiers, kind: Kind, keys: &str) -> Result<()> {
    let client = Lobster::open("").tiers(tiers.clone()).connect().await?;
    let all = (0..stage.options.scaled(RUNS)).map(|n| (Key::from(format!("{keys}-{n}")), STEPS));
    match kind {
        Kind::Ordinary => drop(client.submit_all(work::plain, all).await?),
        Kind::Irreversible => drop(client.submit_all(work::outward, all).await?),
    }
    Ok(())
}

/// A node that executes them to the last.
async fn executed(stage: &Stage<'_>, tiers: Tiers, meter: &Meter) -> Result<(Lobster, Window)> {
    let lobster = node(tiers).await?;
    let window = meter.ended(u64::from(stage.options.scaled(RUNS)), || None).await?;
    Ok((lobster, window))
}

async fn node(tiers: Tiers) -> Result<Lobster> {
    let mut settings = Settings::default();
    settings.run.executing = AT_ONCE;
    Ok(Lobster::open("").tiers(tiers).settings(settings).task(work::plain).task(work::outward).start().await?)
}

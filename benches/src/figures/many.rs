//! W2, W2i: many runs at once.
//!
//! Invariant: all runs are submitted before; the window opens when the first claim is sent and closes with the last finish.

use super::Stage;
use crate::{Result, work};
use lobster_core::{Key, Lobster, Settings};
use std::time::Duration;

/// What their steps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ordinary,
    Irreversible,
}

const RUNS: u32 = 500;
const STEPS: u32 = 10;
const AT_ONCE: usize = 64;

/// Steps per second over all runs, and synced statements.
pub async fn round(stage: &Stage<'_>, kind: Kind) -> Result<(f64, u64)> {
    let runs = stage.options.scaled(RUNS);
    let (tiers, meter) = stage.site.store().await?;
    let client = Lobster::open("").tiers(tiers.clone()).connect().await?;
    let all = (0..runs).map(|n| (Key::from(format!("run-{n}")), STEPS));
    match kind {
        Kind::Ordinary => drop(client.submit_all(work::plain, all).await?),
        Kind::Irreversible => drop(client.submit_all(work::outward, all).await?),
    }
    let mut settings = Settings::default();
    settings.run.executing = AT_ONCE;
    let lobster = Lobster::open("").tiers(tiers).settings(settings).task(work::plain).task(work::outward).start().await?;
    let window = meter.ended(u64::from(runs), || None).await?;
    lobster.shutdown(Duration::from_secs(5)).await;
    Ok((f64::from(runs * STEPS) / window.took.as_secs_f64(), window.syncs))
}

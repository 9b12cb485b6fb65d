//! W1, W1L, W1d, W1i: one run, its steps one after the other.
//!
//! Invariant: the window opens at the first step's call and closes when the finish is acknowledged.

use super::Stage;
use crate::{Result, work};
use lobster_core::Lobster;
use std::time::Duration;

/// What its steps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ordinary,
    Durable,
    Irreversible,
}

/// Steps per second and synced statements. Of ordinary steps it is net of the syncs, which are the disk's and not theirs.
pub async fn round(stage: &Stage<'_>, kind: Kind, steps: u32) -> Result<(f64, u64)> {
    let steps = stage.options.scaled(steps);
    let (tiers, meter) = stage.site.store().await?;
    let lobster = Lobster::open("").tiers(tiers).task(work::plain).task(work::careful).task(work::outward).start().await?;
    work::watch(&meter);
    match kind {
        Kind::Ordinary => drop(lobster.submit(work::plain, steps).await?),
        Kind::Durable => drop(lobster.submit(work::careful, steps).await?),
        Kind::Irreversible => drop(lobster.submit(work::outward, steps).await?),
    }
    let window = meter.ended(1, work::began).await?;
    lobster.shutdown(Duration::from_secs(5)).await;
    let net = match kind {
        // Never more than the window spent in its syncs: the bare ones before it may have been slower.
        Kind::Ordinary => window.took.as_secs_f64() - (stage.sync * window.syncs as f64).min(window.syncing.as_secs_f64()),
        Kind::Durable | Kind::Irreversible => window.took.as_secs_f64(),
    };
    Ok((f64::from(steps) / net, window.syncs))
}

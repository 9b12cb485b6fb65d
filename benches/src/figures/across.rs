//! W16: one node submits what only another executes.
//!
//! Invariant: nodes share nothing but the store, and the other one is idle when a run is submitted.

use super::Stage;
use crate::{Result, work};
use lobster_core::{Ctx, Lobster, StepCtx, step, task};
use std::{
    sync::Mutex,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

const RUNS: u32 = 300;
/// Between two runs.
const PAUSE: Duration = Duration::from_millis(20);

/// Whom to tell that the step has begun.
static WAITING: Mutex<Option<oneshot::Sender<Instant>>> = Mutex::new(None);

#[step]
async fn arrive(_ctx: &StepCtx) -> lobster_core::Result<()> {
    let waiting = WAITING.lock().expect("no code that can panic runs under this lock").take();
    // Whoever waited may have given up.
    let _heard = waiting.map(|waiting| waiting.send(Instant::now()));
    Ok(())
}

#[task]
async fn crossing(ctx: Ctx, n: u32) -> lobster_core::Result<u32> {
    arrive(&ctx).await?;
    Ok(n)
}

/// Milliseconds from the call that submits to the first step, at the 99th percentile.
pub async fn round(stage: &Stage<'_>) -> Result<(f64, u64)> {
    let place = stage.site.place();
    let (here, _) = place.open().await?;
    let (there, meter) = place.open().await?;
    let here = Lobster::open("").tiers(here).task(work::plain).start().await?;
    let there = Lobster::open("").tiers(there).task(crossing).start().await?;
    let before = meter.mark();
    let mut took = Vec::new();
    for n in 0..stage.options.scaled(RUNS).max(10) {
        let (waiting, arrived) = oneshot::channel();
        *WAITING.lock().expect("no code that can panic runs under this lock") = Some(waiting);
        let sent = Instant::now();
        let run = here.submit(crossing, n).await?;
        took.push((arrived.await? - sent).as_secs_f64() * 1e3);
        run.outcome().await?;
        tokio::time::sleep(PAUSE).await;
    }
    let window = before.until(meter.mark());
    here.shutdown(Duration::from_secs(5)).await;
    there.shutdown(Duration::from_secs(5)).await;
    took.sort_unstable_by(f64::total_cmp);
    let at = took.len() * 99 / 100;
    Ok((took.get(at).copied().ok_or("nothing was submitted")?, window.syncs))
}

//! The tasks that are measured: nothing but steps, each with a result of 100 bytes of JSON.
//!
//! Invariant: the first thing a body does is to say when it began; one run is measured at a time.

use crate::meter::{Mark, Meter};
use lobster_core::{Ctx, Result, StepCtx, step, task};
use std::sync::{Arc, Mutex};

/// A result: 98 characters and two quotes.
fn result(n: u32) -> String {
    format!("{n:098}")
}

#[step]
async fn ordinary(_ctx: &StepCtx, n: u32) -> Result<String> {
    Ok(result(n))
}

#[step(durable)]
async fn durable(_ctx: &StepCtx, n: u32) -> Result<String> {
    Ok(result(n))
}

#[step(irreversible, in_doubt = retry)]
async fn irreversible(_ctx: &StepCtx, n: u32) -> Result<String> {
    Ok(result(n))
}

/// Where the body of the one run that is measured says that it begins.
static WATCH: Mutex<Watch> = Mutex::new(Watch { meter: None, began: None });

struct Watch {
    meter: Option<Arc<Meter>>,
    began: Option<Mark>,
}

/// The next body that begins reads its mark on this meter.
pub fn watch(meter: &Arc<Meter>) {
    *WATCH.lock().expect("no code that can panic runs under this lock") = Watch { meter: Some(meter.clone()), began: None };
}

/// When it began.
pub fn began() -> Option<Mark> {
    WATCH.lock().expect("no code that can panic runs under this lock").began
}

/// Says that a body begins.
pub fn begin() {
    let mut watch = WATCH.lock().expect("no code that can panic runs under this lock");
    if let Some(meter) = watch.meter.take() {
        watch.began = Some(meter.mark());
    }
}

/// So many ordinary steps, one after the other.
#[task]
pub async fn plain(ctx: Ctx, steps: u32) -> Result<u32> {
    begin();
    for n in 0..steps {
        ordinary(&ctx, n).await?;
    }
    Ok(steps)
}

/// So many durable steps.
#[task]
pub async fn careful(ctx: Ctx, steps: u32) -> Result<u32> {
    begin();
    for n in 0..steps {
        durable(&ctx, n).await?;
    }
    Ok(steps)
}

/// So many irreversible steps.
#[task]
pub async fn outward(ctx: Ctx, steps: u32) -> Result<u32> {
    begin();
    for n in 0..steps {
        irreversible(&ctx, n).await?;
    }
    Ok(steps)
}

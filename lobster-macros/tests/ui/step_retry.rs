//! A retry policy has numbers that mean something.

use lobster_core::{Result, StepCtx, step};

#[step(retry(attempts = 0, first = 0ms, factor = 1.5, attempt = 3, jitter = ful))]
async fn numbers(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(retry(first = 10s, cap = 1s))]
async fn order(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(retry = 3)]
async fn shape(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(retry(attempts = 3s, factor = 4294967296))]
async fn sizes(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {}

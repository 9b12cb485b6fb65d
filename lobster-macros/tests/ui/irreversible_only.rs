//! What is said about doubt is only for irreversible steps.

use lobster_core::{Result, StepCtx, step};

#[step(in_doubt = hold)]
async fn in_doubt(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(durable, max_duration = 1s)]
async fn max_duration(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(on_exhausted = fail)]
async fn on_exhausted(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {}

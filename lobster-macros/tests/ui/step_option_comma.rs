//! Options are separated by commas.

use lobster_core::{Result, StepCtx, step};

#[step(durable name = "a")]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

#[step("quote")]
async fn named(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(timeout(5s), key, key =, name = quote, crate = "not a path")]
async fn shapes(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {}

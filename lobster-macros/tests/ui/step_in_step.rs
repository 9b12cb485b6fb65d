//! A step called inside a step does not compile.

use lobster_core::{Result, StepCtx, step};

#[step]
async fn quote(_ctx: &StepCtx, order: &u32) -> Result<u32> {
    Ok(*order)
}

#[step]
async fn total(ctx: &StepCtx, order: &u32) -> Result<u32> {
    Ok(quote(ctx, order).await? + 1)
}

fn main() {}

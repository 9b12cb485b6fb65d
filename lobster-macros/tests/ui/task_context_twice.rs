//! A body has its context once.

use lobster_core::{Ctx, Result, StepCtx, step, task};

#[step]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

#[task]
async fn caller(ctx: Ctx) -> Result<u32> {
    let other = ctx.clone();
    Ok(quote(&other, 1).await?)
}

fn main() {}

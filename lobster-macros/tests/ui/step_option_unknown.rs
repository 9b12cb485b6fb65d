//! An unknown option is named, with a guess if one is near, and nothing else is reported.

use lobster_core::{Ctx, Result, StepCtx, step, task};

#[step(timout = 5s, queue = 3, durable)]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

#[task]
async fn caller(ctx: Ctx) -> Result<u32> {
    Ok(quote(&ctx, 1).await?)
}

fn main() {}

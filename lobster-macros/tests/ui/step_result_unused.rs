//! The result of a step is looked at.

#![deny(unused_must_use)]

use lobster_core::{Ctx, Result, StepCtx, step, task};

#[step]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

#[task]
async fn unused(ctx: Ctx) -> Result<()> {
    quote(&ctx, 1).await;
    Ok(())
}

fn main() {}

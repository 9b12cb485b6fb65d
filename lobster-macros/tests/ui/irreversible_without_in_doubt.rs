//! An irreversible step says what to do in doubt, and is told the three ways.

use lobster_core::{Ctx, Result, StepCtx, step, task};

#[step(irreversible)]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

#[task]
async fn caller(ctx: Ctx) -> Result<u32> {
    Ok(quote(&ctx, 1).await?)
}

fn main() {}

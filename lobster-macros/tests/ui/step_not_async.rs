//! A step is an async function; what calls it has no other error.

use lobster_core::{Ctx, Result, StepCtx, step, task};

#[step]
fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

#[task]
async fn caller(ctx: Ctx) -> Result<u32> {
    Ok(quote(&ctx, 1).await?)
}

fn main() {}

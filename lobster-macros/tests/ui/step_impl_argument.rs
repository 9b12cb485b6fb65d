//! An argument has a type with a name.

use lobster_core::{Ctx, Result, StepCtx, step, task};

#[step]
async fn quote(_ctx: &StepCtx, order: impl Into<u32> + Clone + Send) -> Result<u32> {
    Ok(order.into())
}

#[task]
async fn caller(ctx: Ctx) -> Result<u32> {
    Ok(quote(&ctx, 1u8).await?)
}

fn main() {}

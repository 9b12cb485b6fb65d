//! A step may run again, so it changes nothing through its arguments.

use lobster_core::{Ctx, Result, StepCtx, step, task};

#[step]
async fn quote(_ctx: &StepCtx, total: &mut u32) -> Result<u32> {
    *total += 1;
    Ok(*total)
}

#[step]
async fn nested(_ctx: &StepCtx, total: Option<&mut u32>) -> Result<bool> {
    Ok(total.is_some())
}

#[task]
async fn caller(ctx: Ctx) -> Result<u32> {
    Ok(quote(&ctx, &mut 1).await?)
}

fn main() {}

//! A step takes `&StepCtx` first.

use lobster_core::{Ctx, Result, StepCtx, step, task};

#[step]
async fn nothing() -> Result<()> {
    Ok(())
}

#[step]
async fn other(order: u32) -> Result<u32> {
    Ok(order)
}

#[step]
async fn by_value(_ctx: StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

#[step]
async fn exclusive(_ctx: &mut StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

#[step]
async fn of_a_body(_ctx: &Ctx, order: u32) -> Result<u32> {
    Ok(order)
}

#[task]
async fn caller(ctx: Ctx) -> Result<u32> {
    Ok(by_value(&ctx, 1).await? + exclusive(&ctx, 2).await? + of_a_body(&ctx, 3).await?)
}

fn main() {}

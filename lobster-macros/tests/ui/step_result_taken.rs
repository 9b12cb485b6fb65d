//! A step gives a `Result`.

use lobster_core::{Ctx, Result, StepCtx, step, task};

#[step]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

#[task]
async fn without_question_mark(ctx: Ctx) -> Result<u32> {
    let price: u32 = quote(&ctx, 1).await;
    Ok(price)
}

fn main() {}

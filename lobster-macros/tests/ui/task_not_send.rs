//! A body can move to another thread; what cannot is shown with the await that it lives across.

use lobster_core::{Builder, Ctx, Lobster, Result, StepCtx, step, task};

use std::rc::Rc;

#[step]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

#[task]
async fn checkout(ctx: Ctx, order: u32) -> Result<u32> {
    let shared = Rc::new(order);
    let price = quote(&ctx, *shared).await?;
    Ok(price + *shared)
}

fn registers() -> Builder {
    Lobster::open("memory:").task(checkout)
}

fn main() {}

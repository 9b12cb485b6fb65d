//! A task owns its context.

use lobster_core::{Builder, Ctx, Lobster, Result, StepCtx, task};

#[task]
async fn nothing() -> Result<()> {
    Ok(())
}

#[task]
async fn reference(_ctx: &Ctx, order: u32) -> Result<u32> {
    Ok(order)
}

#[task]
async fn of_a_step(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

fn registers() -> Builder {
    Lobster::open("memory:").task(reference).task(of_a_step)
}

fn main() {}

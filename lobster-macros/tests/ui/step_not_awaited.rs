//! A step does nothing until it is awaited.

#![deny(unused_must_use)]

use lobster_core::{Ctx, Result, StepCtx, step, task};

#[step]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

#[task]
async fn caller(ctx: Ctx) -> Result<()> {
    quote(&ctx, 1);
    Ok(())
}

fn main() {}

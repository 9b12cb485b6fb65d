//! A step or task that nobody calls is reported once, by its own name.

#![deny(dead_code)]

use lobster_core::{Ctx, Result, StepCtx, step, task};

#[step]
async fn quote(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[task]
async fn checkout(_ctx: Ctx) -> Result<()> {
    Ok(())
}

fn main() {}

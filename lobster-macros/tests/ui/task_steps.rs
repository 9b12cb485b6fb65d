//! A task lists steps, each once.

use lobster_core::{Ctx, Result, StepCtx, step, task};

#[step]
async fn quote(_ctx: &StepCtx) -> Result<u32> {
    Ok(1)
}

struct Other;

#[task(steps = quote)]
async fn shape(_ctx: Ctx) -> Result<()> {
    Ok(())
}

#[task(steps = [quote, quote])]
async fn twice(_ctx: Ctx) -> Result<()> {
    Ok(())
}

#[task(steps = [Other])]
async fn a_type(_ctx: Ctx) -> Result<()> {
    Ok(())
}

#[task(steps = [1])]
async fn a_number(_ctx: Ctx) -> Result<()> {
    Ok(())
}

fn main() {}

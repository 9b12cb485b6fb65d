//! A function without `#[step]` is not a step.

use lobster_core::{Ctx, Result, StepCtx, task};

async fn plain(_ctx: &StepCtx) -> Result<u32> {
    Ok(1)
}

#[task(steps = [plain])]
async fn checkout(_ctx: Ctx) -> Result<()> {
    Ok(())
}

fn main() {}

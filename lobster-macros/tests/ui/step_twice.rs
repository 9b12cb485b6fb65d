//! Two steps of one name in one module are two functions of one name.

use lobster_core::{Result, StepCtx, step};

#[step]
async fn quote(_ctx: &StepCtx) -> Result<u32> {
    Ok(1)
}

#[step]
async fn quote(_ctx: &StepCtx) -> Result<u32> {
    Ok(2)
}

fn main() {}

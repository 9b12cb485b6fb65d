//! A typing error in `in_doubt` is not reported as a missing one.

use lobster_core::{Result, StepCtx, step};

#[step(irreversible, in_doubt = rety)]
async fn retry(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(irreversible, in_doubt = prob(found))]
async fn probe(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(irreversible, in_doubt = "hold")]
async fn hold(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(irreversible, in_doubt)]
async fn nothing(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {}

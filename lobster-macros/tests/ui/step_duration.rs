//! A duration has a unit and a length.

use lobster_core::{Result, StepCtx, step};

#[step(timeout = 5)]
async fn bare(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(timeout = 5d)]
async fn unit(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(timeout = 0s)]
async fn zero(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(timeout = 1.5s)]
async fn fraction(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(timeout = 500us)]
async fn short(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(timeout = "five seconds")]
async fn words(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(timeout = 18446744073709551615h)]
async fn long(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {}

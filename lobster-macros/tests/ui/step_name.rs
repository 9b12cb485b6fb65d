//! A durable name is neither empty nor too long, and can be printed.

use lobster_core::{Result, StepCtx, step};

#[step(name = "")]
async fn empty(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(name = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn")]
async fn long(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(name = "a\nb")]
async fn control(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step]
async fn nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {}

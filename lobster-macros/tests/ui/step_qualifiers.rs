//! A step is called by the engine, and in one way.

use lobster_core::{Result, StepCtx, step};

#[step]
async unsafe fn danger(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step]
async extern "C" fn foreign(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step]
const fn constant(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {}

//! An argument has a plain name.

use lobster_core::{Result, StepCtx, step};

#[step]
async fn tuple(_ctx: &StepCtx, (a, b): (u32, u32)) -> Result<u32> {
    Ok(a + b)
}

#[step]
async fn wild(_ctx: &StepCtx, _: u32) -> Result<()> {
    Ok(())
}

#[step]
async fn by_ref(_: &StepCtx, ref a: u32) -> Result<u32> {
    Ok(*a)
}

fn main() {}

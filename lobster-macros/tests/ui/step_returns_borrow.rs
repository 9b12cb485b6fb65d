//! What a step returns stands on its own.

use lobster_core::{Result, StepCtx, step};

#[step]
async fn longest(_ctx: &StepCtx, text: &str) -> Result<&str> {
    Ok(text)
}

#[step]
async fn opaque(_ctx: &StepCtx) -> Result<impl Sized> {
    Ok(())
}

fn main() {}

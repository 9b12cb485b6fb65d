//! Only lint levels stand on arguments.

use lobster_core::{Result, StepCtx, step};

#[step]
async fn quote(_ctx: &StepCtx, #[cfg(unix)] order: u32) -> Result<u32> {
    Ok(order)
}

#[step]
async fn fine(_ctx: &StepCtx, #[allow(unused_variables)] order: u32, #[expect(unused_variables)] other: u32) -> Result<()> {
    Ok(())
}

fn main() {}

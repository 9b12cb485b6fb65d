//! What a later version will have is named as such.

use lobster_core::{Result, StepCtx, step};

#[step(check = order)]
async fn checked(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

fn main() {}

//! A mistake in the body is shown in the body.

use lobster_core::{Result, StepCtx, step};

#[step]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    let price: String = order;
    Ok(price)
}

fn main() {}

//! A flag takes no value.

use lobster_core::{Result, StepCtx, step};

#[step(durable = true)]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

fn main() {}

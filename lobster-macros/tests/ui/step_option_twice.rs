//! An option is given once.

use lobster_core::{Result, StepCtx, step};

#[step(durable, name = "a", name = "b", durable)]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

fn main() {}

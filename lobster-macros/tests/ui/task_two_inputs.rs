//! A task has one input.

use lobster_core::{Ctx, Result, task};

#[task]
async fn checkout(_ctx: Ctx, order: u32, price: u32) -> Result<u32> {
    Ok(order + price)
}

fn main() {}

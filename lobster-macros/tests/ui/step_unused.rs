//! Lints see the author's code once, and where he wrote it.

#![deny(unused)]

use lobster_core::{Result, StepCtx, step};

#[step]
pub async fn quote(ctx: &StepCtx, order: u32, mut total: u32) -> Result<u32> {
    let price = 1;
    Ok(total)
}

fn main() {}

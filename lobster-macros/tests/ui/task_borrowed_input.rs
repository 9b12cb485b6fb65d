//! The input of a task is owned.

use lobster_core::{Builder, Ctx, Lobster, Result, task};

use std::borrow::Cow;

#[task]
async fn reference(_ctx: Ctx, order: &u32) -> Result<u32> {
    Ok(*order)
}

#[task]
async fn cow(_ctx: Ctx, order: Cow<'_, str>) -> Result<usize> {
    Ok(order.len())
}

#[task]
async fn opaque(_ctx: Ctx, order: impl Into<u32>) -> Result<u32> {
    Ok(order.into())
}

#[task]
async fn pattern(_ctx: Ctx, (a, b): (u32, u32)) -> Result<u32> {
    Ok(a + b)
}

fn registers() -> Builder {
    Lobster::open("memory:").task(pattern)
}

fn main() {}

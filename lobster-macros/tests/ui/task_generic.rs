//! A task is not generic.

use lobster_core::{Builder, Ctx, Lobster, Result, task};

#[task]
async fn checkout<T: Send>(_ctx: Ctx, order: T) -> Result<()> {
    drop(order);
    Ok(())
}

#[task]
async fn bounded(_ctx: Ctx) -> Result<()>
where
    u32: Copy,
{
    Ok(())
}

fn registers() -> Builder {
    Lobster::open("memory:").task(bounded)
}

fn main() {}

//! A task is not generic.

use lobster_core::{Ctx, Result, register, task};

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

fn registers() {
    register(bounded);
}

fn main() {}

//! The options of a task have values that mean something.

use lobster_core::{Builder, Ctx, Lobster, Result, task};

#[task(version = 0, max_attempts = 0)]
async fn zero(_ctx: Ctx) -> Result<()> {
    Ok(())
}

#[task(version = "2", max_attempt = 3, name = "")]
async fn shapes(_ctx: Ctx) -> Result<()> {
    Ok(())
}

#[task(retry(attempts = 3))]
async fn of_a_step(_ctx: Ctx) -> Result<()> {
    Ok(())
}

fn registers() -> Builder {
    Lobster::open("memory:").task(zero).task(shapes)
}

fn main() {}

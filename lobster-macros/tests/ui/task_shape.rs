//! A task is an async function that returns something to record.

use lobster_core::{Builder, Ctx, Lobster, Result, task};

#[task]
fn blocking(_ctx: Ctx, order: u32) -> Result<u32> {
    Ok(order)
}

#[task]
async fn silent(_ctx: Ctx) {}

#[task]
async fn no_result(_ctx: Ctx) -> u32 {
    1
}

#[task]
enum Order {}

fn registers(_: Order) -> Builder {
    Lobster::open("memory:").task(blocking).task(silent)
}

fn main() {}

//! A key borrows what the step still needs.

use lobster_core::{Result, StepCtx, step};

#[step(key = (id, name))]
async fn quote(_ctx: &StepCtx, id: u32, name: String) -> Result<String> {
    Ok(format!("{id}{name}"))
}

struct Order;

#[step(key = order)]
async fn unfit(_ctx: &StepCtx, order: &Order) -> Result<()> {
    let Order = order;
    Ok(())
}

fn main() {}

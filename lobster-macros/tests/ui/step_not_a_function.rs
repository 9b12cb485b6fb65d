//! A step is a function; the item is kept.

use lobster_core::{Result, StepCtx, step};

#[step]
struct Order;

#[step]
mod orders {
    pub struct Other;
}

fn keeps(_: Order, _: orders::Other, _: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {}

//! An argument taken by value is cloned for each attempt.

use lobster_core::{Result, StepCtx, step};

struct Card;

#[step]
async fn charge(_ctx: &StepCtx, card: Card, price: u32) -> Result<u32> {
    let Card = card;
    Ok(price)
}

fn main() {}

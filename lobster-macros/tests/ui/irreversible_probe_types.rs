//! A probe takes the step's arguments by reference and answers with a fate of its result.

use lobster_core::{Fate, Result, StepCtx, step};

#[step(irreversible, in_doubt = probe(plain))]
async fn not_a_fate(_ctx: &StepCtx, price: u32) -> Result<u32> {
    Ok(price)
}

async fn plain(_ctx: &StepCtx, price: &u32) -> Result<u32> {
    Ok(*price)
}

#[step(irreversible, in_doubt = probe(found))]
async fn other_value(_ctx: &StepCtx, price: u32) -> Result<u64> {
    Ok(price.into())
}

async fn found(_ctx: &StepCtx, price: &u32) -> Result<Fate<u32>> {
    Ok(Fate::Happened(*price))
}

#[step(irreversible, in_doubt = probe(found))]
async fn other_arguments(_ctx: &StepCtx, price: &u32, text: &str) -> Result<u32> {
    Ok(*price + text.len() as u32)
}

#[step(irreversible, in_doubt = probe(missing))]
async fn no_probe(_ctx: &StepCtx, price: u32) -> Result<u32> {
    Ok(price)
}

fn main() {}

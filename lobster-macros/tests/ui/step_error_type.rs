//! The error of a step, a probe or a task becomes a boxed error.

use lobster_core::{Builder, Ctx, Fate, Lobster, StepCtx, step, task};

#[derive(Debug)]
struct NoError;

#[step]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32, NoError> {
    Ok(order)
}

#[step(irreversible, in_doubt = hold)]
async fn charge(_ctx: &StepCtx, order: u32) -> Result<u32, NoError> {
    Ok(order)
}

#[step(irreversible, in_doubt = probe(found))]
async fn ship(_ctx: &StepCtx, order: u32) -> lobster_core::Result<u32> {
    Ok(order)
}

async fn found(_ctx: &StepCtx, order: &u32) -> Result<Fate<u32>, NoError> {
    Ok(Fate::Happened(*order))
}

#[task]
async fn checkout(_ctx: Ctx) -> Result<(), NoError> {
    Ok(())
}

fn registers() -> Builder {
    Lobster::open("memory:").task(checkout)
}

fn main() {}

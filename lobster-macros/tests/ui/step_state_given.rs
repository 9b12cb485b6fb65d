//! Nobody gives a state to a step, and nobody names a call by it.

use lobster_core::{Ctx, Field, Result, State, StepCtx, step, task};

#[derive(State, Default)]
struct Import {
    cursor: Field<u64>,
}

#[step]
async fn page(_ctx: &StepCtx, #[state] import: &mut Import) -> Result<u64> {
    Ok(*import.cursor)
}

#[step(key = *import.cursor)]
async fn keyed(_ctx: &StepCtx, #[state] import: &mut Import) -> Result<u64> {
    Ok(*import.cursor)
}

#[task]
async fn body(ctx: Ctx) -> Result<u64> {
    let mut import = Import::default();
    Ok(page(&ctx, &mut import).await?)
}

fn main() {}

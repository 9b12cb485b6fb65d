//! A state is an exclusive borrow of an owned type with a name.

use std::borrow::Cow;

use lobster_core::{Ctx, Field, Result, State, StepCtx, step};

#[derive(State, Default)]
struct Import {
    cursor: Field<u64>,
}

#[step]
async fn shared(_ctx: &StepCtx, #[state] import: &Import) -> Result<u64> {
    Ok(*import.cursor)
}

#[step]
async fn owned(_ctx: &StepCtx, #[state] import: Import, number: u32) -> Result<u64> {
    Ok(*import.cursor + u64::from(number))
}

#[step]
async fn named<'a>(_ctx: &StepCtx, #[state] import: &'a mut Import) -> Result<u64> {
    Ok(*import.cursor)
}

#[step]
async fn forever(_ctx: &StepCtx, #[state] import: &'static mut Import) -> Result<u64> {
    Ok(*import.cursor)
}

#[step]
async fn nameless(_ctx: &StepCtx, #[state] import: &mut impl State) -> Result<()> {
    import.rebuild();
    Ok(())
}

#[step]
async fn borrowing(_ctx: &StepCtx, #[state] import: &mut Cow<'_, str>) -> Result<()> {
    import.to_mut();
    Ok(())
}

/// Only the mistakes are shown, and not what follows from them.
async fn caller(ctx: &Ctx) -> Result<u64> {
    Ok(shared(ctx).await? + owned(ctx, 1).await? + forever(ctx).await?)
}

fn main() {}

//! Where a state cannot stand, how often, and what it can be told.

use lobster_core::{Ctx, Field, Result, State, StepCtx, step, task};

#[derive(State, Default)]
struct Import {
    cursor: Field<u64>,
}

#[step]
async fn context(#[state] ctx: &StepCtx) -> Result<u32> {
    Ok(ctx.attempt())
}

#[step]
async fn first(#[state] import: &mut Import, ctx: &StepCtx) -> Result<u32> {
    import.cursor += 1;
    Ok(ctx.attempt())
}

#[step]
async fn twice(_ctx: &StepCtx, #[state] a: &mut Import, #[state(name = "b")] b: &mut Import, #[state] c: &mut Import) -> Result<()> {
    a.cursor += *b.cursor + *c.cursor;
    Ok(())
}

#[step]
async fn five(
    _ctx: &StepCtx,
    #[state(name = "a")] a: &mut Import,
    #[state(name = "b")] b: &mut Import,
    #[state(name = "c")] c: &mut Import,
    #[state(name = "d")] d: &mut Import,
    #[state(name = "e")] e: &mut Import,
) -> Result<()> {
    a.cursor += *b.cursor + *c.cursor + *d.cursor + *e.cursor;
    Ok(())
}

#[step]
async fn options(
    _ctx: &StepCtx,
    #[state(nam = "a")] a: &mut Import,
    #[state(name)] b: &mut Import,
    #[state(name = "")] c: &mut Import,
    #[state = "d"] d: &mut Import,
    #[state]
    #[state]
    e: &mut Import,
) -> Result<()> {
    a.cursor += *b.cursor + *c.cursor + *d.cursor + *e.cursor;
    Ok(())
}

#[task]
async fn body(ctx: Ctx, number: u64, #[state] import: &mut Import) -> Result<u64> {
    let _ = ctx;
    Ok(number + *import.cursor)
}

#[task]
async fn start(#[state] ctx: Ctx) -> Result<()> {
    let _ = ctx;
    Ok(())
}

fn main() {}

//! The name of a state is text, made of the arguments.

use lobster_core::{Field, Result, State, StepCtx, step};

#[derive(State, Default)]
struct Total {
    cents: Field<u64>,
}

#[step]
async fn sell(_ctx: &StepCtx, region: u32, #[state(name = region)] total: &mut Total) -> Result<()> {
    total.cents += u64::from(region);
    Ok(())
}

fn main() {}

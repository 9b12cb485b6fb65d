//! An irreversible step has no state, and says why.

use lobster_core::{Field, Result, State, StepCtx, step};

#[derive(State, Default)]
struct Import {
    cursor: Field<u64>,
}

#[step(irreversible, in_doubt = hold)]
async fn charge(_ctx: &StepCtx, #[state] import: &mut Import) -> Result<()> {
    import.cursor += 1;
    Ok(())
}

fn main() {}

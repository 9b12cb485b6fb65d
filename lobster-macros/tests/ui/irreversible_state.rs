//! An irreversible step changes no state.

use lobster_core::{Result, StepCtx, step};

struct Import;

#[step(irreversible, in_doubt = hold)]
async fn charge(_ctx: &StepCtx, #[state] import: &mut Import) -> Result<()> {
    let Import = import;
    Ok(())
}

fn main() {}

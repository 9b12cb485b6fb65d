//! An irreversible step is durable without saying so.

use lobster_core::{Result, StepCtx, step};

#[step(durable, irreversible, in_doubt = hold)]
async fn charge(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {}

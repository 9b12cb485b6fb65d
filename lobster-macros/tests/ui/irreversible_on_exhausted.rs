//! What is held for a person cannot also fail.

use lobster_core::{Result, StepCtx, step};

#[step(irreversible, in_doubt = hold, on_exhausted = fail)]
async fn held(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(irreversible, in_doubt = retry, on_exhausted = fial)]
async fn typo(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {}

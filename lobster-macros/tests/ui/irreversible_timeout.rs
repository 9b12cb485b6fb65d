//! An irreversible step is bounded by `max_duration`, not by a timeout.

use lobster_core::{Result, StepCtx, step};

#[step(irreversible, in_doubt = hold, timeout = 5s)]
async fn charge(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {}

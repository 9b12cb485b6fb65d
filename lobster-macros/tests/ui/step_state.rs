//! State is for a later version.

use lobster_core::{Result, StepCtx, step};

struct Import;

#[step]
async fn page(_ctx: &StepCtx, #[state] import: &mut Import) -> Result<()> {
    let Import = import;
    Ok(())
}

fn main() {}

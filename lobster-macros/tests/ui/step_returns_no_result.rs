//! A step returns a `Result`.

use lobster_core::{StepCtx, step};

#[step]
async fn quote(_ctx: &StepCtx) -> u32 {
    1
}

fn main() {}

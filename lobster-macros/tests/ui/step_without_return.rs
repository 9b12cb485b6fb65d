//! A step returns something to record.

use lobster_core::{StepCtx, step};

#[step]
async fn quote(_ctx: &StepCtx) {}

fn main() {}

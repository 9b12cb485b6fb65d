//! A step returns something to record.

use lobster_core::{Result, StepCtx, step};

#[step]
async fn quote(_ctx: &StepCtx) {}

fn main() {}

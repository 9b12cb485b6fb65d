//! A lifetime that is not written cannot be named: `Cow<'_, str>`.

use lobster_core::{Result, StepCtx, step};

use std::borrow::Cow;

#[step]
async fn quote(_ctx: &StepCtx, text: Cow<str>) -> Result<usize> {
    Ok(text.len())
}

fn main() {}

//! An irreversible step owns what it is given.

use lobster_core::{Result, StepCtx, step};

use std::borrow::Cow;

#[step(irreversible, in_doubt = hold)]
async fn option(_ctx: &StepCtx, order: Option<&u32>) -> Result<bool> {
    Ok(order.is_some())
}

#[step(irreversible, in_doubt = hold)]
async fn cow(_ctx: &StepCtx, text: Cow<'_, str>) -> Result<usize> {
    Ok(text.len())
}

#[step(irreversible, in_doubt = hold)]
async fn slice<'a>(_ctx: &StepCtx, text: &[&'a str]) -> Result<usize> {
    Ok(text.len())
}

fn main() {}

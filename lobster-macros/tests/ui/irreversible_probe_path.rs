//! A probe is the path of a function.

use lobster_core::{Result, StepCtx, step};

#[step(irreversible, in_doubt = probe)]
async fn bare(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(irreversible, in_doubt = probe(|_| 1))]
async fn closure(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step(irreversible, in_doubt = probe())]
async fn empty(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {}

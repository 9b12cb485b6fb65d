//! A lint about a step or task is shown once.

#![deny(unreachable_pub, missing_docs)]

use lobster_core::{Ctx, Result, StepCtx, step, task};

mod inner {
    use super::*;

    #[step]
    pub async fn quote(_ctx: &StepCtx) -> Result<()> {
        Ok(())
    }

    #[task]
    pub async fn checkout(ctx: Ctx) -> Result<()> {
        Ok(quote(&ctx).await?)
    }
}

#[step]
pub(crate) async fn quote(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

fn main() {
    let _ = (inner::checkout(Ctx::detached(), ()), quote(&Ctx::detached()));
}

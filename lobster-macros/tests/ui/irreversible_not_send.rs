//! An irreversible call can move to another thread.

use lobster_core::{Result, StepCtx, step};

use std::rc::Rc;

#[step(irreversible, in_doubt = hold)]
async fn charge(_ctx: &StepCtx, price: Rc<u32>) -> Result<u32> {
    Ok(*price)
}

fn main() {}

//! A type parameter of an irreversible step borrows nothing.

use lobster_core::{Result, StepCtx, step};

#[step(irreversible, in_doubt = hold)]
async fn charge<T: Clone + Send + Sync>(_ctx: &StepCtx, card: &T) -> Result<usize> {
    Ok(std::mem::size_of_val(card))
}

fn main() {}

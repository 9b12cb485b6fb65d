//! A step is a free function, also where it takes no `self`.

use lobster_core::{Result, StepCtx, step};

struct Shop;

impl Shop {
    #[step]
    async fn quote(_ctx: &StepCtx) -> Result<u32> {
        Ok(1)
    }
}

fn main() {}

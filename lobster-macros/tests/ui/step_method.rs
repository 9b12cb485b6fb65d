//! A step is a free function.

use lobster_core::{Result, StepCtx, step};

struct Shop;

impl Shop {
    #[step]
    async fn quote(&self, _ctx: &StepCtx) -> Result<u32> {
        Ok(1)
    }
}

fn main() {}

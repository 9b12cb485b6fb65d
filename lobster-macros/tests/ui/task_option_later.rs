//! What a later version will have is named as such.

use lobster_core::{Ctx, Result, task};

#[task(class = core, needs = ["browser"], requires = [database])]
async fn checkout(_ctx: Ctx) -> Result<()> {
    Ok(())
}

fn main() {}

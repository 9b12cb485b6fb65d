//! What a step returns can be recorded.

use lobster_core::{Result, StepCtx, step};

struct Connection;

#[step]
async fn connect(_ctx: &StepCtx) -> Result<Connection> {
    Ok(Connection)
}

fn main() {}

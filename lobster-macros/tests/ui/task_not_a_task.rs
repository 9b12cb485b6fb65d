//! What is registered and submitted is a task.

use lobster_core::{Builder, Client, Ctx, Lobster, Result, StepCtx, step, task};

#[step]
async fn quote(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

async fn plain(_ctx: Ctx, order: u32) -> Result<u32> {
    Ok(order)
}

#[task]
async fn checkout(_ctx: Ctx, order: u32) -> Result<u32> {
    Ok(order)
}

fn registers_a_plain_function() -> Builder {
    Lobster::open("memory:").task(plain)
}

fn registers_a_step() -> Builder {
    Lobster::open("memory:").task(quote)
}

fn registers_a_text() -> Builder {
    Lobster::open("memory:").task("checkout")
}

async fn submits(client: &Client) {
    let _ = client.submit(plain, 1).await;
    let _ = client.submit(checkout, "1").await;
}

fn main() {}

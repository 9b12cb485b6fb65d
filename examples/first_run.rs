//! The smallest whole program: a task of two steps, submitted by a key. Run it twice: the same key is the same run, so the
//! second time nothing is done again, and the outcome is read from the records.

use lobster_core::{Ctx, Lobster, Result, StepCtx, step, task};

#[step]
async fn quote(_ctx: &StepCtx, item: &str) -> Result<u64> {
    Ok(item.len() as u64 * 100)
}

#[step(irreversible, in_doubt = retry)]
async fn charge(ctx: &StepCtx, cents: u64) -> Result<String> {
    println!("charging {cents} cents, idempotency key {}", ctx.idempotency_key());
    Ok(format!("receipt for {cents} cents"))
}

#[task]
async fn buy(ctx: Ctx, item: String) -> Result<String> {
    let cents = quote(&ctx, &item).await?;
    Ok(charge(&ctx, cents).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let db = std::env::args().skip(1).last().unwrap_or("sqlite://target/first_run.db".into());
    let lobster = Lobster::open(&db).task(buy).start().await?;
    let run = lobster.submit(buy, "lobster roll".into()).key("order-42").await?;
    println!("{}: {}", run.id(), run.outcome().await?);
    Ok(())
}

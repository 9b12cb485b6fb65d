//! The smallest whole program: a task of two steps, submitted by a key. Run it twice: the second time nothing is done
//! again, the outcome is read from the records.

use lobster_core::{Ctx, Lobster, StepCtx, step, task};

#[step]
async fn quote(_: &StepCtx, item: &str) -> std::io::Result<u64> {
    Ok(item.len() as u64 * 100)
}

#[step(irreversible, in_doubt = retry)]
async fn charge(ctx: &StepCtx, cents: u64) -> std::io::Result<String> {
    println!("charging {cents} cents under key {}", ctx.idempotency_key());
    Ok(format!("receipt for {cents}"))
}

#[task]
async fn buy(ctx: Ctx, item: String) -> Result<String, lobster_core::StepFailed> {
    let cents = quote(&ctx, &item).await?;
    charge(&ctx, cents).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lobster = Lobster::open("sqlite://target/first_run.db").task(buy).start().await?;
    let run = lobster.submit(buy, "lobster roll".to_owned()).key("order-42").await?;
    println!("{}", run.outcome().await?);
    Ok(())
}

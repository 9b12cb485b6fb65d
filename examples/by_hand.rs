//! The same as `first_run.rs` without macros: what `#[step]` and `#[task]` write, written by a person. Names and types are
//! the same, so each of the two programs reads what the other has recorded, and the order is charged once.

use lobster_core::expand::{self, InDoubt, Spec, Task};
use lobster_core::{Ctx, Lobster, Result, Step, StepCtx, StepFailed, TaskRun};

const QUOTE: Spec = Spec { name: "quote", site: "by_hand::quote", ..Spec::ordinary() };

fn quote<'a>(ctx: &'a Ctx, item: &'a str) -> Step<impl Future<Output = Result<u64, StepFailed>> + use<'a>> {
    async fn body(_ctx: &StepCtx, item: &str) -> Result<u64> {
        Ok(item.len() as u64 * 100)
    }
    let call = expand::call(ctx, &QUOTE, None);
    Step::new(async move { expand::inline(&call, |ctx| body(ctx, item)).await })
}

const CHARGE: Spec = Spec { name: "charge", site: "by_hand::charge", ..Spec::irreversible(InDoubt::Retry) };

fn charge<'a>(ctx: &'a Ctx, cents: u64) -> Step<impl Future<Output = Result<String, StepFailed>> + use<'a>> {
    async fn body(ctx: &StepCtx, cents: u64) -> Result<String> {
        println!("charging {cents} cents, idempotency key {}", ctx.idempotency_key());
        Ok(format!("receipt for {cents} cents"))
    }
    let call = expand::call(ctx, &CHARGE, None);
    Step::new(expand::spawned(call, move |ctx| async move { body(&ctx, cents).await }, None))
}

enum Buy {}

impl Task for Buy {
    const NAME: &'static str = "buy";
    const VERSION: u32 = 1;
    type Input = String;
    type Output = String;
}

fn buy(ctx: Ctx, item: String) -> TaskRun<Buy, impl Future<Output = Result<String>>> {
    TaskRun::new(async move {
        let cents = quote(&ctx, &item).await?;
        Ok(charge(&ctx, cents).await?)
    })
}

#[tokio::main]
async fn main() -> Result<()> {
    let db = std::env::args().skip(1).last().unwrap_or("sqlite://target/first_run.db".into());
    let lobster = Lobster::open(&db).task(buy).start().await?;
    let run = lobster.submit(buy, "lobster roll".into()).key("order-42").await?;
    println!("{}: {}", run.id(), run.outcome().await?);
    Ok(())
}

//! A first look: runs end, keys name runs, steps are recorded once.

use lobster_core::{Ctx, Lobster, Result, Settings, StepCtx, step, task};
use std::time::Duration;

#[step]
async fn double(_ctx: &StepCtx, n: u64) -> Result<u64> {
    Ok(2 * n)
}

#[step(durable)]
async fn durable(_ctx: &StepCtx, n: u64) -> Result<u64> {
    Ok(n + 1)
}

#[step(irreversible, in_doubt = retry)]
async fn charge(ctx: &StepCtx, n: u64) -> Result<String> {
    Ok(format!("{n} {}", ctx.idempotency_key()))
}

#[task]
async fn mixed(ctx: Ctx, n: u64) -> Result<String> {
    let n = double(&ctx, n).await?;
    let n = durable(&ctx, n).await?;
    let receipt = charge(&ctx, n).await?;
    let (a, b) = tokio::join!(double(&ctx, 1), double(&ctx, 2));
    Ok(format!("{receipt} {} {}", a?, b?))
}

async fn on(url: &str) {
    let lobster = Lobster::open(url).task(mixed).settings(Settings::test()).start().await.unwrap();
    let run = lobster.submit(mixed, 20).key("a").await.unwrap();
    let outcome = run.outcome().await.unwrap();
    assert!(outcome.starts_with("41 ") && outcome.ends_with(" 2 4"), "{outcome}");
    let again = lobster.submit(mixed, 20).key("a").await.unwrap();
    assert_eq!(again.id(), run.id());
    assert_eq!(again.outcome().await.unwrap(), outcome);
    let view = lobster.show(run.id()).await.unwrap();
    assert_eq!(view.steps.len(), 5, "{view:?}");
    let drained = lobster.shutdown(Duration::from_secs(5)).await;
    assert_eq!(drained.left_behind, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_every_kind_of_step_ends_in_memory() {
    on("memory:").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_every_kind_of_step_ends_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    on(&format!("sqlite://{}", folder.path().join("a.db").display())).await;
}

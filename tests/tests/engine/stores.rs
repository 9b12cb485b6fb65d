//! Stores that are slow, away, or silent: work goes on up to a bound, nothing is lost, nothing is done twice.

use lobster_core::{Ctx, Lobster, Result, Settings, StepCtx, step, task};
use lobster_tests::{
    all,
    flaky::{Flaky, Mood},
    happen, happened, on_each, tiers, until,
};
use std::time::Duration;

#[step]
async fn count(_ctx: &StepCtx, world: &str) -> Result<u64> {
    Ok(happen(world, "counted"))
}

#[task]
async fn counts(ctx: Ctx, input: (String, u64)) -> Result<u64> {
    let (world, n) = input;
    let mut last = 0;
    for _ in 0..n {
        last = count(&ctx, &world).await?;
    }
    Ok(last)
}

#[step(irreversible, in_doubt = hold)]
async fn charge(_ctx: &StepCtx, world: String) -> Result<u64> {
    Ok(happen(&world, "charged"))
}

#[task]
async fn charges(ctx: Ctx, input: (String, u64)) -> Result<u64> {
    let (world, n) = input;
    let mut last = 0;
    for _ in 0..n {
        count(&ctx, &world).await?;
        last = charge(&ctx, world.clone()).await?;
    }
    Ok(last)
}

fn settings() -> Settings {
    let mut settings = Settings::test();
    settings.commit.lag_deltas = 100;
    settings.commit.retry_max = Duration::from_millis(5);
    settings
}

on_each! {
    async fn steps_wait_when_the_store_lags_behind_by_the_bound(place) {
        let (flaky, tiers) = Flaky::wrap(&tiers(&place).await);
        let lobster = Lobster::open("memory:").tiers(tiers).settings(settings()).task(counts).start().await.unwrap();
        let world = format!("lag {}", place.url());
        flaky.set(Mood::Held);
        let run = lobster.submit(counts, (world.clone(), 5_000)).await.unwrap();
        until(&world, "counted", 100).await;
        // However long nobody answers: one more may have run, whose result waits for its turn.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert!(happened(&world, "counted") <= 101, "{}", happened(&world, "counted"));
        flaky.set(Mood::Well);
        assert_eq!(run.outcome().await.unwrap(), 5_000);
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_store_that_is_away_for_a_while_loses_nothing(place) {
        let (flaky, tiers) = Flaky::wrap(&tiers(&place).await);
        let lobster = Lobster::open("memory:").tiers(tiers).settings(settings()).task(charges).start().await.unwrap();
        let world = format!("away {}", place.url());
        let run = lobster.submit(charges, (world.clone(), 1_000)).await.unwrap();
        until(&world, "charged", 3).await;
        flaky.set(Mood::Away);
        let before = happened(&world, "charged");
        flaky.until_struck(3).await;
        // Without an acknowledged intent no call is made: at most the one whose answer was on its way.
        assert!(happened(&world, "charged") <= before + 1);
        flaky.set(Mood::Well);
        assert_eq!(run.outcome().await.unwrap(), 1_000);
        assert_eq!((happened(&world, "charged"), happened(&world, "counted")), (1_000, 1_000));
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn an_answer_that_is_lost_is_asked_for_again_and_nothing_is_done_twice(place) {
        let (flaky, tiers) = Flaky::wrap(&tiers(&place).await);
        let lobster = Lobster::open("memory:").tiers(tiers).settings(settings()).task(charges).start().await.unwrap();
        let world = format!("silent {}", place.url());
        flaky.set(Mood::Fitful);
        let run = lobster.submit(charges, (world.clone(), 20)).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 20);
        assert!(flaky.struck() >= 20, "each charge takes a batch of its own: {}", flaky.struck());
        assert_eq!(all(&world).values().copied().collect::<Vec<_>>(), [20, 20]);
        // Every record is there once, and in order.
        assert_eq!(lobster.show(run.id()).await.unwrap().steps.len(), 40);
        lobster.shutdown(Duration::from_secs(5)).await;
    }
}

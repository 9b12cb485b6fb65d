//! Stores that are slow, away, or silent: work goes on up to a bound, nothing is lost, nothing is done twice.

use lobster_core::{Ctx, Lobster, Reason, Result, Settings, StepCtx, step, task};
use lobster_store::contract::limits;
use lobster_tests::{
    all, eventually,
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

#[step]
async fn wait(_ctx: &StepCtx, world: &str, n: u64) -> Result<u64> {
    happen(world, "waits");
    until(world, "go", 1).await;
    Ok(n)
}

#[task]
async fn waits(ctx: Ctx, input: (String, u64)) -> Result<u64> {
    let (world, n) = input;
    Ok(wait(&ctx, &world, n).await?)
}

const LARGE: usize = 1 << 20;

#[step(durable)]
async fn large(_ctx: &StepCtx, world: &str) -> Result<String> {
    happen(world, "large");
    Ok("x".repeat(LARGE))
}

#[task]
async fn waits_long(ctx: Ctx, world: String) -> Result<usize> {
    wait(&ctx, &world, 0).await?;
    Ok(large(&ctx, &world).await?.len())
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

    async fn a_recording_that_the_store_cannot_read_keeps_nobody_else_waiting(place) {
        let (flaky, tiers) = Flaky::wrap(&tiers(&place).await);
        let world = format!("unread {}", place.url());
        let client = Lobster::open("memory:").tiers(tiers.clone()).connect().await.unwrap();
        let runs = (0..8).map(|n| (format!("n-{n}").into(), (world.clone(), 2)));
        let mut runs = client.submit_all(counts, runs).await.unwrap();
        let spoiled = runs.remove(3);
        flaky.spoil(spoiled.id());
        // All of them come with one claim.
        let lobster = Lobster::open("memory:").tiers(tiers.clone()).settings(settings()).task(counts).start().await.unwrap();
        for run in runs {
            run.outcome().await.unwrap();
        }
        let why = eventually(&tiers, async || match client.why_not_running(spoiled.id()).await.unwrap() {
            Some(Reason::Until { why, .. }) => Some(why),
            _ => None,
        });
        let why = why.await;
        assert!(why.contains("cannot be read") && why.contains("spoiled on purpose"), "{why}");
        flaky.heal();
        spoiled.outcome().await.unwrap();
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn runs_whose_rows_the_store_refuses_keep_nobody_else_waiting(place) {
        let (flaky, tiers) = Flaky::wrap(&tiers(&place).await);
        let lobster = Lobster::open("memory:").tiers(tiers).settings(settings()).task(waits).start().await.unwrap();
        let world = format!("refused {}", place.url());
        let mut runs = Vec::new();
        for n in 0..20 {
            runs.push(lobster.submit(waits, (world.clone(), n)).await.unwrap());
        }
        until(&world, "waits", 20).await;
        // More than are offered alone at once.
        let spoiled = runs.split_off(20 - limits::BATCHES_APART - 2);
        spoiled.iter().for_each(|run| flaky.spoil(run.id()));
        // They have all something to say at once.
        happen(&world, "go");
        for run in runs {
            run.outcome().await.unwrap();
        }
        flaky.heal();
        for run in spoiled {
            assert!(run.outcome().await.unwrap() >= 15);
        }
        assert_eq!(happened(&world, "waits"), 20, "nothing is done twice");
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_batch_is_full_at_so_many_bytes(place) {
        let (flaky, tiers) = Flaky::wrap(&tiers(&place).await);
        let lobster = Lobster::open("memory:").tiers(tiers).settings(settings()).task(waits_long).start().await.unwrap();
        let world = format!("full {}", place.url());
        let mut runs = Vec::new();
        for _ in 0..40 {
            runs.push(lobster.submit(waits_long, world.clone()).await.unwrap());
        }
        until(&world, "waits", 40).await;
        // While a batch is away all the others gather.
        flaky.set(Mood::Held);
        happen(&world, "go");
        until(&world, "large", 40).await;
        flaky.until_struck(1).await;
        flaky.set(Mood::Well);
        for run in runs {
            assert_eq!(run.outcome().await.unwrap(), LARGE);
        }
        let largest = flaky.largest();
        assert!(largest < limits::BATCH_BYTES + 2 * LARGE, "{largest} bytes in a batch");
        assert!(largest > 4 * LARGE, "several runs have gathered: {largest} bytes");
        lobster.shutdown(Duration::from_secs(5)).await;
    }
}

on_each! {
    on one thread:
    async fn calls_in_a_row_cost_one_sync_each_and_one_more(place) {
        #[step(irreversible, in_doubt = hold)]
        async fn alone(_ctx: &StepCtx, n: u64) -> Result<u64> {
            Ok(n)
        }
        #[task]
        async fn row(ctx: Ctx, calls: u64) -> Result<u64> {
            let mut last = 0;
            for n in 1..=calls {
                last = alone(&ctx, n).await?;
            }
            Ok(last)
        }
        let (flaky, tiers) = Flaky::wrap(&tiers(&place).await);
        // No intent misses its start on a slow machine.
        let mut settings = settings();
        let lease = &mut settings.lease;
        (lease.ttl, lease.self_fence) = (Duration::from_secs(300), Duration::from_secs(180));
        (lease.renew, lease.guard) = (Duration::from_secs(60), Duration::from_secs(60));
        let lobster = Lobster::open("memory:").tiers(tiers).settings(settings).task(row).start().await.unwrap();
        assert_eq!(lobster.submit(row, 50).await.unwrap().outcome().await.unwrap(), 50);
        // Each intent travels with the result before it, the last result with the outcome.
        assert_eq!(flaky.synced(), 51);
        lobster.shutdown(Duration::from_secs(5)).await;
    }
}

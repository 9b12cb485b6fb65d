//! Code of a run's author that panics wherever the engine calls it: its own run says so, and the others go on.

use lobster_core::{Ctx, Fate, PgTx, Result, RunFailed, SqliteTx, StepCtx, StepErrorExt, step, store::memory::MemoryTx, task};
use lobster_tests::{
    flaky::{Claims, Flaky},
    happen, happened, held, on_each, tiers, until,
};
use serde::{Deserialize, Deserializer, Serialize};
use std::{fmt, time::Duration};

/// A value that can be decoded until its world says otherwise.
#[derive(Debug, Serialize)]
struct Moody(String);

impl<'de> Deserialize<'de> for Moody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let world = String::deserialize(deserializer)?;
        assert_eq!(happened(&world, "spoiled"), 0, "a value out of spirits");
        Ok(Self(world))
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        // Two panics at once would end the process.
        assert!(std::thread::panicking(), "a bomb went off");
    }
}

/// An error that nobody can show.
#[derive(Debug)]
struct Mute;

impl std::error::Error for Mute {}

impl fmt::Display for Mute {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("an error that says nothing")
    }
}

#[task]
async fn moody(_ctx: Ctx, input: Moody) -> Result<String> {
    Ok(input.0)
}

on_each! {
    async fn an_input_whose_decoding_panics_holds_its_run_and_the_others_go_on(place) {
        let (bad, good) = (format!("bad {}", place.url()), format!("good {}", place.url()));
        let lobster = place.open().task(moody).start().await.unwrap();
        happen(&bad, "spoiled");
        let spoiled = lobster.submit(moody, Moody(bad)).await.unwrap();
        let reason = held(&place, &lobster, spoiled.id()).await;
        assert!(reason.contains("the input does not fit the code") && reason.contains("out of spirits"), "{reason}");
        assert_eq!(lobster.submit(moody, Moody(good.clone())).await.unwrap().outcome().await.unwrap(), good);
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_cancel_that_meets_a_claim_ends_a_run_whose_input_does_not_fit(place) {
        let world = format!("cancelled {}", place.url());
        let (flaky, tiers) = Flaky::wrap(&tiers(&place).await);
        flaky.set_claims(Claims::Applied);
        let lobster = place.open().tiers(tiers).task(moody).start().await.unwrap();
        happen(&world, "spoiled");
        let run = lobster.submit(moody, Moody(world)).await.unwrap();
        flaky.until_struck(1).await;
        lobster.cancel(run.id()).await.unwrap();
        flaky.set_claims(Claims::Well);
        assert!(matches!(run.outcome().await, Err(RunFailed::Cancelled(_))));
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_result_whose_decoding_panics_holds_its_run(place) {
        #[step]
        async fn says(_ctx: &StepCtx, world: &str) -> Result<Moody> {
            Ok(Moody(world.to_owned()))
        }
        #[step]
        async fn waits(_ctx: &StepCtx, world: &str) -> Result<()> {
            happen(world, "waits");
            std::future::pending().await
        }
        #[task]
        async fn resumed(ctx: Ctx, world: String) -> Result<String> {
            let said = says(&ctx, &world).await?;
            waits(&ctx, &world).await?;
            Ok(said.0)
        }
        let world = format!("resumed {}", place.url());
        let first = place.open().task(resumed).start().await.unwrap();
        let run = first.submit(resumed, world.clone()).await.unwrap().id();
        until(&world, "waits", 1).await;
        first.shutdown(Duration::ZERO).await;
        happen(&world, "spoiled");
        let second = place.open().task(resumed).start().await.unwrap();
        let reason = held(&place, &second, run).await;
        assert!(reason.contains("does not fit the code") && reason.contains("out of spirits"), "{reason}");
        second.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_call_whose_destructors_panic_is_made_again_under_its_policy(place) {
        #[step(irreversible, in_doubt = retry, max_duration = 100ms, retry(attempts = 3, first = 1ms))]
        async fn overruns(ctx: &StepCtx) -> Result<u32> {
            if ctx.attempt() < 3 {
                let _bomb = Bomb;
                std::future::pending::<()>().await;
            }
            Ok(ctx.attempt())
        }
        #[task]
        async fn overrun(ctx: Ctx, _nothing: ()) -> Result<u32> {
            Ok(overruns(&ctx).await?)
        }
        let lobster = place.open().task(overrun).start().await.unwrap();
        assert_eq!(lobster.submit(overrun, ()).await.unwrap().outcome().await.unwrap(), 3);
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn an_error_that_panics_where_it_is_shown_is_told_by_what_it_panicked_with(place) {
        // What it is marked with is known, whatever its text does.
        #[step(irreversible, in_doubt = hold, retry(attempts = 2, first = 1ms))]
        async fn calls(ctx: &StepCtx) -> Result<u32> {
            if ctx.attempt() == 1 { Err(Mute).did_not_happen()? } else { Ok(ctx.attempt()) }
        }
        #[step(retry(attempts = 2, first = 1ms))]
        async fn computes(_ctx: &StepCtx) -> Result<u32> {
            Err(Mute)?
        }
        #[task]
        async fn mute(ctx: Ctx, _nothing: ()) -> Result<(u32, String)> {
            let called = calls(&ctx).await?;
            Ok((called, computes(&ctx).await.unwrap_err().to_string()))
        }
        let lobster = place.open().task(mute).start().await.unwrap();
        let (called, said) = lobster.submit(mute, ()).await.unwrap().outcome().await.unwrap();
        assert_eq!(called, 2);
        assert!(said.contains("an error that says nothing"), "{said}");
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_probe_may_panic_in_whatever_it_does_and_is_asked_again(place) {
        #[step(irreversible, in_doubt = probe(ask), max_duration = 100ms, retry(attempts = 10, first = 1ms))]
        async fn pays(_ctx: &StepCtx, world: &str) -> Result<u64> {
            happen(world, "call");
            Err("no answer")?
        }
        async fn ask(_ctx: &StepCtx, world: &str) -> Result<Fate<u64>> {
            match happen(world, "ask") {
                1 => panic!("a probe that panics"),
                2 => Err(Mute)?,
                3 => {
                    let _bomb = Bomb;
                    std::future::pending().await
                }
                asked => Ok(Fate::Happened(asked)),
            }
        }
        #[task]
        async fn paid(ctx: Ctx, world: String) -> Result<u64> {
            Ok(pays(&ctx, &world).await?)
        }
        let world = format!("probed {}", place.url());
        let lobster = place.open().task(paid).start().await.unwrap();
        assert_eq!(lobster.submit(paid, world.clone()).await.unwrap().outcome().await.unwrap(), 4);
        assert_eq!(happened(&world, "call"), 1);
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_transaction_whose_destructors_panic_is_rolled_back_and_tried_again(place) {
        async fn late(ctx: &StepCtx) -> Result<u32> {
            match ctx.attempt() {
                1 => {
                    let _bomb = Bomb;
                    std::future::pending().await
                }
                2 => Err(Mute)?,
                attempt => Ok(attempt),
            }
        }
        #[step(transactional, max_duration = 100ms, retry(attempts = 3, first = 1ms))]
        async fn in_file(ctx: &StepCtx, _tx: &mut SqliteTx) -> Result<u32> {
            late(ctx).await
        }
        #[step(transactional, max_duration = 100ms, retry(attempts = 3, first = 1ms))]
        async fn at_server(ctx: &StepCtx, _tx: &mut PgTx) -> Result<u32> {
            late(ctx).await
        }
        #[step(transactional, max_duration = 100ms, retry(attempts = 3, first = 1ms))]
        async fn in_memory(ctx: &StepCtx, _tx: &mut MemoryTx) -> Result<u32> {
            late(ctx).await
        }
        #[task]
        async fn books(ctx: Ctx, url: String) -> Result<u32> {
            Ok(match url.split(':').next() {
                Some("sqlite") => in_file(&ctx).await?,
                Some("memory") => in_memory(&ctx).await?,
                _ => at_server(&ctx).await?,
            })
        }
        let lobster = place.open().task(books).task(moody).start().await.unwrap();
        assert_eq!(lobster.submit(books, place.url().to_owned()).await.unwrap().outcome().await.unwrap(), 3);
        // Whoever writes for the store is still there.
        let world = format!("afterwards {}", place.url());
        assert_eq!(lobster.submit(moody, Moody(world.clone())).await.unwrap().outcome().await.unwrap(), world);
        lobster.shutdown(Duration::from_secs(5)).await;
    }
}

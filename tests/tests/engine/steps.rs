//! What each kind of step promises (the first table of the documentation), in one process.

use lobster_core::{Ctx, Result, RunFailed, StepCtx, StepErrorExt, StepFailed, StepFailedKind, StepState, step, task};
use lobster_tests::{Place, happen, happened, on_each, until};
use std::time::Duration;

#[step]
async fn double(_ctx: &StepCtx, n: u64) -> Result<u64> {
    Ok(2 * n)
}

#[step(durable)]
async fn plus_one(_ctx: &StepCtx, n: u64) -> Result<u64> {
    Ok(n + 1)
}

#[step(irreversible, in_doubt = retry)]
async fn charge(ctx: &StepCtx, n: u64) -> Result<String> {
    Ok(format!("{n} {}", ctx.idempotency_key()))
}

#[task]
async fn mixed(ctx: Ctx, n: u64) -> Result<String> {
    let n = double(&ctx, n).await?;
    let n = plus_one(&ctx, n).await?;
    let receipt = charge(&ctx, n).await?;
    let (a, b) = tokio::join!(double(&ctx, 1), double(&ctx, 2));
    Ok(format!("{receipt} {} {}", a?, b?))
}

on_each! {
    async fn a_run_of_every_kind_of_step_ends(place) {
        let lobster = place.open().task(mixed).start().await.unwrap();
        let run = lobster.submit(mixed, 20).key("a").await.unwrap();
        let outcome = run.outcome().await.unwrap();
        assert!(outcome.starts_with("41 ") && outcome.ends_with(" 2 4"), "{outcome}");
        let again = lobster.submit(mixed, 20).key("a").await.unwrap();
        assert_eq!(again.id(), run.id());
        assert_eq!(again.outcome().await.unwrap(), outcome);
        let view = lobster.show(run.id()).await.unwrap();
        let names: Vec<_> = view.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["double#0", "plus_one#0", "charge#0", "double#1", "double#2"]);
        assert!(view.steps.iter().all(|step| step.synced && matches!(step.state, StepState::Done(_))), "{view:?}");
        let drained = lobster.shutdown(Duration::from_secs(5)).await;
        assert_eq!(drained.left_behind, 0);
    }

    async fn what_is_not_known_to_be_synced_is_shown_as_such(place) {
        #[step]
        async fn first(_ctx: &StepCtx) -> Result<()> {
            Ok(())
        }
        #[step]
        async fn look(_ctx: &StepCtx, world: String) -> Result<()> {
            happen(&world, "looked");
            std::future::pending().await
        }
        #[task]
        async fn looker(ctx: Ctx, world: String) -> Result<()> {
            first(&ctx).await?;
            look(&ctx, world).await?;
            Ok(())
        }
        let lobster = place.open().task(looker).start().await.unwrap();
        let world = format!("relaxed {}", place.url());
        let run = lobster.submit(looker, world.clone()).await.unwrap();
        until(&world, "looked", 1).await;
        // Its result is on its way; nothing tells of a relaxed append.
        let view = loop {
            let view = lobster.show(run.id()).await.unwrap();
            if !view.steps.is_empty() {
                break view;
            }
            tokio::task::yield_now().await;
        };
        assert!(!view.steps[0].synced && view.synced == 0, "{view:?}");
        lobster.cancel(run.id()).await.unwrap();
    }

    async fn a_durable_step_returns_when_its_record_is_synced(place) {
        #[step(durable)]
        async fn first(_ctx: &StepCtx) -> Result<()> {
            Ok(())
        }
        #[step]
        async fn look(ctx: &StepCtx, world: String) -> Result<()> {
            happen(&world, format!("looked {}", ctx.run_id()));
            std::future::pending().await
        }
        #[task]
        async fn looker(ctx: Ctx, world: String) -> Result<()> {
            first(&ctx).await?;
            look(&ctx, world).await?;
            Ok(())
        }
        let lobster = place.open().task(looker).start().await.unwrap();
        let world = format!("durable {}", place.url());
        let run = lobster.submit(looker, world.clone()).await.unwrap();
        lobster_tests::until(&world, &format!("looked {}", run.id()), 1).await;
        // The next step has begun: the durable one is synced.
        let view = lobster.show(run.id()).await.unwrap();
        assert!(view.steps[0].synced, "{view:?}");
        lobster.cancel(run.id()).await.unwrap();
    }
}

#[step(retry(attempts = 4, first = 1ms))]
async fn flaky(ctx: &StepCtx, world: String, fails: u64) -> Result<u32> {
    let tried = happen(&world, "flaky");
    if tried <= fails {
        return Err(format!("try {tried} failed"))?;
    }
    Ok(ctx.attempt())
}

#[task]
async fn trying(ctx: Ctx, input: (String, u64)) -> Result<u32> {
    let (world, fails) = input;
    Ok(flaky(&ctx, world, fails).await?)
}

on_each! {
    async fn a_failed_attempt_is_made_again(place) {
        let lobster = place.open().task(trying).start().await.unwrap();
        let world = format!("flaky {}", place.url());
        let run = lobster.submit(trying, (world.clone(), 3)).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 4);
        assert_eq!(happened(&world, "flaky"), 4);
    }

    async fn exhausted_attempts_are_the_outcome_of_the_step(place) {
        let lobster = place.open().task(trying).start().await.unwrap();
        let world = format!("exhausted {}", place.url());
        let run = lobster.submit(trying, (world.clone(), 99)).await.unwrap();
        let Err(RunFailed::Failed(failed)) = run.outcome().await else { panic!("it must fail") };
        assert_eq!(failed.kind(), StepFailedKind::Exhausted);
        assert_eq!((failed.attempts(), failed.message(), failed.step()), (4, "try 4 failed", "flaky#0"));
        assert_eq!(happened(&world, "flaky"), 4);
    }

    async fn a_fatal_error_is_not_tried_again_and_keeps_code_and_data(place) {
        #[step]
        async fn refuse(_ctx: &StepCtx, world: String) -> Result<()> {
            happen(&world, "refuse");
            Err("no").code("refused").data(&[1, 2]).fatal()?;
            Ok(())
        }
        #[task]
        async fn refused(ctx: Ctx, world: String) -> Result<(String, Vec<u32>)> {
            let failed: StepFailed = refuse(&ctx, world).await.unwrap_err();
            Ok((failed.code().to_owned(), failed.data().unwrap_or_default()))
        }
        let lobster = place.open().task(refused).start().await.unwrap();
        let world = format!("fatal {}", place.url());
        let run = lobster.submit(refused, world.clone()).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), ("refused".to_owned(), vec![1, 2]));
        assert_eq!(happened(&world, "refuse"), 1);
    }

    async fn a_panic_is_an_error(place) {
        #[step(retry(attempts = 2, first = 1ms))]
        async fn panicking(_ctx: &StepCtx) -> Result<()> {
            panic!("on purpose");
        }
        #[task]
        async fn panics(ctx: Ctx, _nothing: ()) -> Result<()> {
            Ok(panicking(&ctx).await?)
        }
        #[task]
        async fn body_panics(_ctx: Ctx, _nothing: ()) -> Result<()> {
            panic!("in the body");
        }
        let lobster = place.open().task(panics).task(body_panics).start().await.unwrap();
        let Err(RunFailed::Failed(failed)) = lobster.submit(panics, ()).await.unwrap().outcome().await else { panic!() };
        assert_eq!((failed.kind(), failed.attempts()), (StepFailedKind::Panic, 2));
        assert!(failed.message().contains("on purpose"), "{failed}");
        let Err(RunFailed::Failed(failed)) = lobster.submit(body_panics, ()).await.unwrap().outcome().await else { panic!() };
        assert!(failed.message().contains("in the body"), "{failed}");
    }

    async fn an_attempt_that_takes_too_long_is_an_error(place) {
        #[step(timeout = 20ms, retry(attempts = 2, first = 1ms))]
        async fn slow(_ctx: &StepCtx, world: String) -> Result<()> {
            happen(&world, "slow");
            std::future::pending().await
        }
        #[task]
        async fn waits(ctx: Ctx, world: String) -> Result<()> {
            Ok(slow(&ctx, world).await?)
        }
        let lobster = place.open().task(waits).start().await.unwrap();
        let world = format!("slow {}", place.url());
        let Err(RunFailed::Failed(failed)) = lobster.submit(waits, world.clone()).await.unwrap().outcome().await else { panic!() };
        assert_eq!((failed.kind(), happened(&world, "slow")), (StepFailedKind::Timeout, 2));
    }

    async fn a_body_may_compensate(place) {
        #[step(retry(attempts = 1))]
        async fn fails(_ctx: &StepCtx) -> Result<()> {
            Err("out of stock")?;
            Ok(())
        }
        #[task]
        async fn compensates(ctx: Ctx, n: u64) -> Result<String> {
            match fails(&ctx).await {
                Ok(()) => Ok("?".into()),
                Err(failed) => Ok(format!("{} {}", failed.message(), double(&ctx, n).await?)),
            }
        }
        let lobster = place.open().task(compensates).start().await.unwrap();
        let run = lobster.submit(compensates, 4).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), "out of stock 8");
    }
}

#[step]
async fn shared(_ctx: &StepCtx, world: &str, who: &str) -> Result<u64> {
    Ok(happen(world, who))
}

#[task]
async fn steps_of(ctx: Ctx, plan: (String, String, u64)) -> Result<u64> {
    let (world, who, n) = plan;
    let mut last = 0;
    for _ in 0..n {
        last = shared(&ctx, &world, &who).await?;
    }
    Ok(last)
}

/// One thread for everything: a body whose steps are always ready would have it to itself.
#[tokio::test]
async fn thousands_of_ready_steps_do_not_starve_others() {
    let place = Place::memory();
    let lobster = place.open().task(steps_of).start().await.unwrap();
    let world = "starving";
    let long = lobster.submit(steps_of, (world.into(), "long".into(), 50_000)).await.unwrap();
    until(world, "long", 1).await;
    let short = lobster.submit(steps_of, (world.into(), "short".into(), 10)).await.unwrap();
    assert_eq!(short.outcome().await.unwrap(), 10);
    assert!(happened(world, "long") < 50_000, "the short run was claimed, executed and finished meanwhile");
    assert_eq!(long.outcome().await.unwrap(), 50_000);
}

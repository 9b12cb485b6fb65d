//! A shutdown lets every step that runs come to its end, and nothing begins after it.

use lobster_core::{Ctx, Result, RunState, Settings, StepCtx, step, task};
use lobster_tests::{
    all,
    flaky::{Claims, Flaky},
    happen, happened, on_each, tiers, until,
};
use std::time::Duration;

#[step]
async fn slow(_ctx: &StepCtx, world: &str, n: u64) -> Result<u64> {
    happen(world, format!("body {n}"));
    happen(world, "begun");
    until(world, "drain begun", 1).await;
    Ok(n)
}

#[task]
async fn counted(ctx: Ctx, which: (String, u64)) -> Result<u64> {
    let (world, n) = which;
    Ok(slow(&ctx, &world, n).await?)
}

#[step(irreversible, in_doubt = retry, max_duration = 100ms, retry(attempts = 1000, first = 1ms))]
async fn unanswered(_ctx: &StepCtx, world: String) -> Result<u64> {
    let calls = happen(&world, "call");
    match happened(&world, "give up") {
        0 => std::future::pending().await,
        _ => Ok(calls),
    }
}

#[task]
async fn gives_up(ctx: Ctx, world: String) -> Result<bool> {
    tokio::select! {
        biased;
        answered = unanswered(&ctx, world.clone()) => Ok(answered.is_ok()),
        () = until(&world, "give up", 1) => Ok(false),
    }
}

/// When a shutdown comes.
#[derive(Clone, Copy, Debug)]
enum When {
    ClaimSent,
    ClaimApplied,
    Begun(u64),
}

on_each! {
    async fn runs_whose_claim_was_under_way_are_handed_over_as_well(place) {
        const RUNS: u64 = 32;
        let plain = tiers(&place).await;
        let client = place.open().tiers(plain.clone()).connect().await.unwrap();
        let mut settings = Settings::test();
        // Several claims.
        settings.run.executing = 8;
        for when in [When::ClaimSent, When::ClaimApplied, When::Begun(0), When::Begun(1), When::Begun(7), When::Begun(8)] {
            let world = format!("handed over {when:?} {}", place.url());
            let runs = (0..RUNS).map(|n| (format!("{when:?} {n}").into(), (world.clone(), n)));
            let handles = client.submit_all(counted, runs).await.unwrap();
            let (flaky, tiers) = Flaky::wrap(&plain);
            flaky.set_claims(match when {
                When::ClaimSent => Claims::Sent,
                When::ClaimApplied => Claims::Applied,
                When::Begun(_) => Claims::Well,
            });
            let lobster = place.open().tiers(tiers).settings(settings.clone()).task(counted).start().await.unwrap();
            match when {
                When::ClaimSent | When::ClaimApplied => flaky.until_struck(1).await,
                When::Begun(count) => until(&world, "begun", count).await,
            }
            // The first poll of a shutdown begins the drain; only then the claim and the steps go on.
            let (drained, ()) = tokio::join!(biased; lobster.shutdown(Duration::from_secs(20)), async {
                flaky.set_claims(Claims::Well);
                happen(&world, "drain begun");
            });
            assert_eq!(drained.left_behind, 0, "{when:?}");
            assert_eq!(client.runs().state(RunState::Running).count().await.unwrap(), 0, "{when:?}");
            if matches!(when, When::ClaimSent | When::ClaimApplied) {
                assert_eq!(happened(&world, "begun"), 0, "{when:?}");
            }

            let lobster = place.open().tiers(plain.clone()).settings(settings.clone()).task(counted).start().await.unwrap();
            for (n, handle) in (0..RUNS).zip(handles) {
                assert_eq!(handle.outcome().await.unwrap(), n, "{when:?}");
            }
            lobster.shutdown(Duration::from_secs(10)).await;
            // What the first engine began it recorded, and after its shutdown it began nothing: everything ran once.
            assert_eq!(happened(&world, "begun"), RUNS, "{when:?}: {:?}", all(&world));
        }
    }

    async fn a_call_in_doubt_whose_caller_is_dropped_by_a_draining_engine_is_settled_by_the_next(place) {
        let plain = tiers(&place).await;
        let world = format!("gives up {}", place.url());
        let lobster = place.open().tiers(plain.clone()).task(gives_up).start().await.unwrap();
        let run = lobster.submit(gives_up, world.clone()).await.unwrap().id();
        until(&world, "call", 1).await;
        // It overruns, and is left in doubt.
        lobster.shutdown(Duration::ZERO).await;
        let calls = happened(&world, "call");
        happen(&world, "give up");

        // This engine drains before it polls the body: the body asks for the call, gives it up, and ends.
        let (flaky, tiers) = Flaky::wrap(&plain);
        flaky.set_claims(Claims::Applied);
        let lobster = place.open().tiers(tiers).task(gives_up).start().await.unwrap();
        flaky.until_struck(1).await;
        let (drained, ()) = tokio::join!(biased; lobster.shutdown(Duration::from_secs(20)), async {
            flaky.set_claims(Claims::Well);
        });
        assert_eq!((drained.left_behind, happened(&world, "call")), (0, calls));

        let lobster = place.open().tiers(plain).task(gives_up).start().await.unwrap();
        let summary = lobster.runs().list().await.unwrap().remove(0);
        assert_ne!(summary.state, RunState::Held, "{}", summary.reason);
        assert!(!lobster.run(gives_up, run).outcome().await.unwrap());
        assert_eq!(happened(&world, "call"), calls + 1, "it was settled by its policy");
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_call_under_way_is_awaited_for_as_long_as_it_may_take(place) {
        #[step(irreversible, in_doubt = retry, max_duration = 60s)]
        async fn takes_long(_ctx: &StepCtx, world: String) -> Result<u64> {
            let calls = happen(&world, "call");
            // Longer than the TTL, after which a shutdown gives up what does not end.
            tokio::time::sleep(Settings::test().lease.ttl * 3).await;
            Ok(calls)
        }
        #[task]
        async fn long(ctx: Ctx, world: String) -> Result<u64> {
            Ok(takes_long(&ctx, world).await?)
        }
        let world = format!("long {}", place.url());
        let lobster = place.open().task(long).start().await.unwrap();
        let run = lobster.submit(long, world.clone()).await.unwrap().id();
        until(&world, "call", 1).await;
        assert_eq!(lobster.shutdown(Duration::ZERO).await.left_behind, 0);

        let lobster = place.open().task(long).start().await.unwrap();
        assert_eq!(lobster.run(long, run).outcome().await.unwrap(), 1, "it was recorded, and is not made again");
        lobster.shutdown(Duration::from_secs(5)).await;
    }
}

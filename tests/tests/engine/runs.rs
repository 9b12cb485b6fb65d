//! Runs from submit to removal: keys, handles, lists, cancel, hand-over, retention.

use lobster_core::{Ctx, ErrorKind, Lobster, Reason, Result, RunFailed, RunState, Settings, StepCtx, Wall, step, task};
use lobster_tests::{flaky::Flaky, happen, happened, on_each, tiers, until};
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

#[step]
async fn note(_ctx: &StepCtx, world: String, what: &str) -> Result<()> {
    happen(&world, what);
    Ok(())
}

#[step]
async fn wait(_ctx: &StepCtx, world: String, what: &str) -> Result<()> {
    happen(&world, "waiting");
    until(&world, what, 1).await;
    Ok(())
}

#[task]
async fn waiting(ctx: Ctx, world: String) -> Result<String> {
    note(&ctx, world.clone(), "begun").await?;
    wait(&ctx, world.clone(), "go").await?;
    note(&ctx, world.clone(), "ended").await?;
    Ok(world)
}

#[task]
async fn quick(_ctx: Ctx, n: u64) -> Result<u64> {
    Ok(n)
}

#[task(name = "quick")]
async fn also_quick(_ctx: Ctx, n: u64) -> Result<u64> {
    Ok(n + 1)
}

fn now() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Wall(i64::try_from(since.as_millis()).unwrap())
}

/// When it was executed.
#[task]
async fn moment(_ctx: Ctx, _nothing: ()) -> Result<i64> {
    Ok(now().0)
}

use std::future::IntoFuture as _;

on_each! {
    async fn the_same_key_from_many_tasks_is_one_run(place) {
        let lobster = place.open().task(quick).start().await.unwrap();
        let submits: Vec<_> = (0..32).map(|_| tokio::spawn(lobster.submit(quick, 7).key("one").into_future())).collect();
        let mut ids = BTreeSet::new();
        for submit in submits {
            ids.insert(submit.await.unwrap().unwrap().id());
        }
        assert_eq!(ids.len(), 1);
        let conflict = lobster.submit(quick, 8).key("one").await.unwrap_err();
        assert_eq!(conflict.kind(), ErrorKind::Conflict);
        assert!(conflict.to_string().contains("one"), "{conflict}");
    }

    async fn a_run_with_a_delay_or_a_moment_is_not_executed_before_it(place) {
        let lobster = place.open().task(moment).start().await.unwrap();
        let (begun, hour, soon) = (now(), Duration::from_secs(3600), Duration::from_millis(400));
        let tomorrow = lobster.submit(moment, ()).key("tomorrow").delay(24 * hour).await.unwrap();
        let later = lobster.submit(moment, ()).at(begun.plus(hour)).await.unwrap();
        let delayed = lobster.submit(moment, ()).delay(soon).await.unwrap();
        let at = lobster.submit(moment, ()).at(begun.plus(soon)).await.unwrap();
        let past = lobster.submit(moment, ()).at(Wall(0)).await.unwrap();
        // Who is in a hurry is not let in front: the run has its time.
        let again = lobster.submit(moment, ()).key("tomorrow").await.unwrap();
        assert_eq!(again.id(), tomorrow.id());

        assert!(past.outcome().await.unwrap() >= begun.0);
        for run in [delayed, at] {
            assert!(run.outcome().await.unwrap() >= begun.plus(soon).0);
        }
        for (run, least) in [(tomorrow, 24 * hour), (later, hour)] {
            assert_eq!(run.state().await.unwrap(), RunState::Ready);
            match lobster.why_not_running(run.id()).await.unwrap() {
                Some(Reason::Until { due, .. }) => {
                    let late = due.0 - begun.plus(least).0;
                    assert!((0..60_000).contains(&late), "{late} ms later than was asked for");
                }
                other => panic!("{other:?}"),
            }
            lobster.cancel(run.id()).await.unwrap();
            assert!(matches!(run.outcome().await, Err(RunFailed::Cancelled(_))));
        }
    }

    async fn many_runs_are_submitted_at_once_and_again(place) {
        let lobster = place.open().task(quick).start().await.unwrap();
        let all = || (0..5_000u64).map(|n| (format!("n-{n}").into(), n));
        let first = lobster.submit_all(quick, all()).await.unwrap();
        let again = lobster.submit_all(quick, all()).await.unwrap();
        assert!(first.iter().map(|run| run.id()).eq(again.iter().map(|run| run.id())));
        for (n, run) in first.iter().enumerate() {
            assert_eq!(run.outcome().await.unwrap(), n as u64);
        }
        assert_eq!(lobster.runs().task("quick").state(RunState::Succeeded).count().await.unwrap(), 5_000);
    }

    async fn runs_are_listed_since_a_moment(place) {
        let lobster = place.open().task(quick).start().await.unwrap();
        let run = lobster.submit(quick, 1).await.unwrap();
        let submitted = lobster.show(run.id()).await.unwrap().summary.submitted;
        let since = async |at: i64| lobster.runs().since(lobster_core::Wall(at)).count().await.unwrap();
        assert_eq!((since(0).await, since(submitted.0).await, since(submitted.0 + 1).await), (1, 1, 0));
    }

    async fn runs_are_listed_by_task_state_and_tags(place) {
        let lobster = place.open().task(quick).task(waiting).start().await.unwrap();
        let world = format!("listed {}", place.url());
        let one = lobster.submit(quick, 1).tag("color:red").tag("size:1").await.unwrap();
        let two = lobster.submit(quick, 2).tag("color:red").await.unwrap();
        let three = lobster.submit(waiting, world.clone()).tag("color:red").await.unwrap();
        one.outcome().await.unwrap();
        two.outcome().await.unwrap();
        until(&world, "begun", 1).await;
        let ids = |runs: Vec<lobster_core::RunSummary>| runs.into_iter().map(|run| run.id).collect::<Vec<_>>();
        assert_eq!(ids(lobster.runs().tag("color:red").list().await.unwrap()), [one.id(), two.id(), three.id()]);
        assert_eq!(ids(lobster.runs().tag("color:red").tag("size:1").list().await.unwrap()), [one.id()]);
        assert_eq!(ids(lobster.runs().state(RunState::Running).list().await.unwrap()), [three.id()]);
        assert_eq!(ids(lobster.runs().task("quick").after(one.id()).list().await.unwrap()), [two.id()]);
        assert_eq!(ids(lobster.runs().limit(1).list().await.unwrap()), [one.id()]);
        lobster.cancel(three.id()).await.unwrap();
    }

    async fn a_running_run_is_cancelled_and_its_body_never_polled_again(place) {
        let lobster = place.open().task(waiting).start().await.unwrap();
        let world = format!("cancelled {}", place.url());
        let run = lobster.submit(waiting, world.clone()).key("c").await.unwrap();
        until(&world, "waiting", 1).await;
        lobster.cancel(run.id()).await.unwrap();
        assert_eq!(run.outcome().await, Err(RunFailed::Cancelled(String::new())));
        happen(&world, "go");
        lobster.cancel(run.id()).await.unwrap();
        assert_eq!(lobster.submit(waiting, world.clone()).key("c").await.unwrap().id(), run.id());
        assert_eq!(happened(&world, "ended"), 0);
        let missing = lobster.cancel(lobster_core::RunId(uuid::Uuid::from_u128(1))).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    async fn a_shutdown_lets_steps_end_and_leaves_the_rest_for_the_next_start(place) {
        let world = format!("drained {}", place.url());
        let tiers = tiers(&place).await;
        let open = || Lobster::open("memory:").tiers(tiers.clone()).settings(Settings::test()).task(waiting);
        let lobster = open().start().await.unwrap();
        let run = lobster.submit(waiting, world.clone()).await.unwrap();
        until(&world, "waiting", 1).await;
        // The first poll of a shutdown begins the drain; only then the step may end.
        let (drained, _) = tokio::join!(biased; lobster.clone().shutdown(Duration::from_secs(20)), async { happen(&world, "go") });
        assert_eq!(drained.left_behind, 0);
        assert_eq!(happened(&world, "ended"), 0, "a draining run starts no further step");
        let next = open().start().await.unwrap();
        assert_eq!(next.run(waiting, run.id()).outcome().await.unwrap(), world);
        assert_eq!((happened(&world, "begun"), happened(&world, "waiting"), happened(&world, "ended")), (1, 1, 1));
        next.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_client_that_executes_nothing_submits_and_waits(place) {
        let tiers = tiers(&place).await;
        let open = || Lobster::open("memory:").tiers(tiers.clone()).settings(Settings::test());
        let client = open().connect().await.unwrap();
        let run = client.submit(quick, 3).await.unwrap();
        assert_eq!(client.why_not_running(run.id()).await.unwrap(), Some(Reason::NoNode { task: "quick".into(), version: 1 }));
        let lobster = open().task(quick).start().await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 3);
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn dropping_a_wait_changes_nothing_about_the_run(place) {
        let lobster = place.open().task(waiting).start().await.unwrap();
        let world = format!("dropped wait {}", place.url());
        let run = lobster.submit(waiting, world.clone()).await.unwrap();
        tokio::select! {
            biased;
            _ = run.outcome() => panic!("it cannot have ended"),
            () = until(&world, "waiting", 1) => {}
        }
        happen(&world, "go");
        assert_eq!(run.outcome().await.unwrap(), world);
    }

    async fn ended_runs_are_removed_and_their_keys_begin_anew(place) {
        let mut settings = Settings::test();
        settings.retention.keep = Duration::from_millis(30);
        settings.retention.every = Duration::from_millis(10);
        settings.retention.batch = 3;
        let (flaky, tiers) = Flaky::wrap(&tiers(&place).await);
        let lobster = place.open().tiers(tiers).settings(settings).task(keyed).start().await.unwrap();
        #[step(irreversible, in_doubt = retry)]
        async fn key(ctx: &StepCtx) -> Result<String> {
            Ok(ctx.idempotency_key().to_owned())
        }
        #[task]
        async fn keyed(ctx: Ctx, _nothing: ()) -> Result<String> {
            Ok(key(&ctx).await?)
        }
        let mut runs = Vec::new();
        for n in 0..10 {
            runs.push(lobster.submit(keyed, ()).key(format!("k{n}")).await.unwrap());
        }
        let first = runs[0].outcome().await.unwrap_or_default();
        flaky.until_swept(runs.len()).await;
        for run in &runs {
            assert_eq!(run.outcome().await, Err(RunFailed::Purged));
        }
        let again = lobster.submit(keyed, ()).key("k0").await.unwrap();
        assert_ne!(again.id(), runs[0].id());
        assert_ne!(again.outcome().await.unwrap(), first);
    }

    async fn a_task_registered_twice_is_refused(place) {
        let error = place.open().task(quick).task(also_quick).start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("`quick` is registered twice"), "{error}");
    }
}

//! Code that changed under a run in flight: what does not fit calls nothing, names what it met, and holds the run.

use lobster_core::{Ctx, Lobster, Reason, Result, Settings, StepCtx, step, task};
use lobster_tests::{Place, happen, happened, on_both, tiers, until};
use std::time::Duration;

#[step(durable)]
async fn first(_ctx: &StepCtx, world: String) -> Result<u64> {
    Ok(happen(&world, "first"))
}

#[step]
async fn stuck(_ctx: &StepCtx, world: String) -> Result<()> {
    happen(&world, "stuck");
    std::future::pending().await
}

/// The code that the runs are recorded with.
#[task(name = "changing")]
async fn before(ctx: Ctx, world: String) -> Result<u64> {
    let n = first(&ctx, world.clone()).await?;
    stuck(&ctx, world).await?;
    Ok(n)
}

#[step(name = "other")]
async fn renamed(_ctx: &StepCtx, world: String) -> Result<u64> {
    Ok(happen(&world, "renamed"))
}

#[step(name = "first")]
async fn retyped(_ctx: &StepCtx, world: String) -> Result<String> {
    happen(&world, "retyped");
    Ok(world)
}

#[task(name = "changing")]
async fn with_a_renamed_step(ctx: Ctx, world: String) -> Result<u64> {
    Ok(renamed(&ctx, world).await?)
}

#[task(name = "changing")]
async fn with_a_retyped_step(ctx: Ctx, world: String) -> Result<u64> {
    Ok(retyped(&ctx, world).await?.len() as u64)
}

#[task(name = "changing")]
async fn without_the_step(_ctx: Ctx, _world: String) -> Result<u64> {
    Ok(0)
}

#[task(name = "changing")]
async fn with_another_input(_ctx: Ctx, _number: u64) -> Result<u64> {
    Ok(0)
}

#[task(name = "changing")]
async fn with_a_step_before(ctx: Ctx, world: String) -> Result<u64> {
    renamed(&ctx, world.clone()).await?;
    Ok(first(&ctx, world).await?)
}

/// Records a run with the old code, then gives it to the new one; returns why it is held, and its world.
macro_rules! held_by {
    ($place:expr, $task:ident) => {{
        let tiers = tiers(&$place).await;
        let world = format!("{} {}", stringify!($task), $place.url());
        let open = || Lobster::open("memory:").tiers(tiers.clone()).settings(Settings::test());
        let old = open().task(before).start().await.unwrap();
        let run = old.submit(before, world.clone()).await.unwrap();
        until(&world, "stuck", 1).await;
        old.shutdown(Duration::ZERO).await;
        let new = open().task($task).start().await.unwrap();
        let why = loop {
            match new.why_not_running(run.id()).await.unwrap() {
                Some(Reason::Held(why)) => break why,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        new.shutdown(Duration::from_secs(5)).await;
        (why, world)
    }};
}

on_both! {
    async fn a_renamed_step_holds_the_run_and_names_both(place) {
        let (why, world) = held_by!(place, with_a_renamed_step);
        assert!(why.contains("first#0") && why.contains("other#0"), "{why}");
        assert_eq!(happened(&world, "renamed"), 0);
    }

    async fn a_step_inserted_before_a_recorded_one_is_run_only_after_what_is_recorded(place) {
        let (why, world) = held_by!(place, with_a_step_before);
        assert!(why.contains("first#0") && why.contains("other#0"), "{why}");
        assert_eq!((happened(&world, "renamed"), happened(&world, "first")), (0, 1));
    }

    async fn a_removed_step_holds_the_run(place) {
        let (why, _) = held_by!(place, without_the_step);
        assert!(why.contains("first#0"), "{why}");
    }

    async fn a_result_of_another_type_holds_the_run(place) {
        let (why, world) = held_by!(place, with_a_retyped_step);
        assert!(why.contains("first#0") && why.contains("does not fit"), "{why}");
        assert_eq!((happened(&world, "retyped"), happened(&world, "first")), (0, 1));
    }

    async fn an_input_of_another_type_holds_the_run(place) {
        let (why, _) = held_by!(place, with_another_input);
        assert!(why.contains("the input does not fit the code"), "{why}");
    }
}

#[step(name = "kind", irreversible, in_doubt = hold)]
async fn irreversible(_ctx: &StepCtx, world: String) -> Result<u64> {
    happen(&world, "called");
    Err("nobody knows")?
}

#[step(name = "kind")]
async fn ordinary(_ctx: &StepCtx, world: String) -> Result<u64> {
    Ok(happen(&world, "run as another kind"))
}

#[task(name = "kinds")]
async fn was_irreversible(ctx: Ctx, world: String) -> Result<u64> {
    Ok(irreversible(&ctx, world).await?)
}

#[task(name = "kinds")]
async fn is_ordinary(ctx: Ctx, world: String) -> Result<u64> {
    Ok(ordinary(&ctx, world).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_in_doubt_that_is_of_another_kind_now_is_not_run() {
    let place = Place::sqlite();
    let world = format!("kinds {}", place.url());
    let old = place.open().task(was_irreversible).start().await.unwrap();
    let run = old.submit(was_irreversible, world.clone()).await.unwrap();
    let reason = async |lobster: &Lobster| loop {
        match lobster.why_not_running(run.id()).await.unwrap() {
            Some(Reason::Held(why)) => break why,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    reason(&old).await;
    // Somebody says that it did not happen; by the time the run goes on, the step is an ordinary one.
    old.shutdown(Duration::from_secs(5)).await;
    let client = place.open().connect().await.unwrap();
    let step = client.show(run.id()).await.unwrap().steps[0].id;
    client.resolve(run.id(), step, lobster_core::Fate::<u64>::Closed).await.unwrap();
    let new = place.open().task(is_ordinary).start().await.unwrap();
    let why = reason(&new).await;
    assert!(why.contains("kind#0") && why.contains("another kind of step"), "{why}");
    assert_eq!(happened(&world, "run as another kind"), 0);
    new.shutdown(Duration::from_secs(5)).await;
}

//! Code that changed under a run in flight: what does not fit calls nothing, names what it met, and holds the run.

use lobster_core::{Ctx, Result, RunId, StepCtx, step, task};
use lobster_tests::{Place, happen, happened, held, on_each, until};
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
        let world = format!("{} {}", stringify!($task), $place.url());
        let old = $place.open().task(before).start().await.unwrap();
        let run = old.submit(before, world.clone()).await.unwrap();
        until(&world, "stuck", 1).await;
        old.shutdown(Duration::ZERO).await;
        let new = $place.open().task($task).start().await.unwrap();
        let why = held(&$place, &new, run.id()).await;
        new.shutdown(Duration::from_secs(5)).await;
        (why, world)
    }};
}

on_each! {
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

#[task(name = "kinds")]
async fn is_nothing(_ctx: Ctx, _world: String) -> Result<u64> {
    Ok(0)
}

/// Leaves a call in doubt, of which somebody says that it did not happen: the run goes on with whatever code comes next.
async fn leave_in_doubt(place: &Place, world: &str) -> RunId {
    let old = place.open().task(was_irreversible).start().await.unwrap();
    let run = old.submit(was_irreversible, world.to_owned()).await.unwrap().id();
    held(place, &old, run).await;
    old.shutdown(Duration::from_secs(5)).await;
    let client = place.open().connect().await.unwrap();
    let step = client.show(run).await.unwrap().steps[0].id;
    client.resolve(run, step, lobster_core::Fate::<u64>::Closed).await.unwrap();
    run
}

on_each! {
    async fn a_step_in_doubt_that_is_of_another_kind_now_is_not_run(place) {
        let world = format!("kinds {}", place.url());
        let run = leave_in_doubt(&place, &world).await;
        let new = place.open().task(is_ordinary).start().await.unwrap();
        let why = held(&place, &new, run).await;
        assert!(why.contains("kind#0") && why.contains("another kind of step"), "{why}");
        assert_eq!(happened(&world, "run as another kind"), 0);
        new.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_step_in_doubt_that_nobody_asks_for_any_more_holds_the_run(place) {
        let world = format!("nobody asks {}", place.url());
        let run = leave_in_doubt(&place, &world).await;
        let new = place.open().task(is_nothing).start().await.unwrap();
        let why = held(&place, &new, run).await;
        assert!(why.contains("kind#0 is in doubt") && why.contains("without asking for it"), "{why}");
        // It waits for a person, and stands in nobody's way.
        assert_eq!(new.shutdown(Duration::from_secs(20)).await.left_behind, 0);
    }
}

//! Runs that leave memory while somebody is still at work for them.
//!
//! One thread, and hours that pass when the test says so: what happens between two waits is decided.

use lobster_core::{Ctx, Fate, Result, StepCtx, StepErrorExt, step, task};
use lobster_tests::{
    Place,
    flaky::{Flaky, Mood},
    happen, happened, held, on_each,
    steered::Steered,
    tiers, until,
};
use std::time::Duration;

#[step(irreversible, in_doubt = hold, retry(attempts = 3, first = 30s, factor = 1, jitter = none))]
async fn refused_once(_ctx: &StepCtx, world: String) -> Result<u64> {
    let calls = happen(&world, "call");
    until(&world, "answer", 1).await;
    match calls {
        1 => Err("no connection").did_not_happen()?,
        calls => Ok(calls),
    }
}

#[step]
async fn note(_ctx: &StepCtx, world: &str) -> Result<()> {
    until(world, "note", 1).await;
    Ok(())
}

#[task]
async fn refused(ctx: Ctx, world: String) -> Result<u64> {
    let (refused, noted) = tokio::join!(refused_once(&ctx, world.clone()), note(&ctx, &world));
    noted?;
    Ok(refused?)
}

/// On one thread: whoever can go on without an answer from the store does.
async fn everybody_goes_on() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

on_each! {
    on one thread:

    /// An attempt becomes due after its run was told to leave, and before it has left.
    async fn a_run_that_leaves_memory_arms_no_intent(place) {
        let world = format!("leaves {}", place.url());
        let (flaky, tiers) = Flaky::wrap(&tiers(&place).await);
        let lobster = place.open().tiers(tiers).host(Steered::new(&world)).task(refused).start().await.unwrap();
        let run = lobster.submit(refused, world.clone()).await.unwrap();
        until(&world, "call", 1).await;
        // With a batch of the run on its way to the store, its attempt fails, and it asks to leave until the next is due.
        flaky.set(Mood::Held);
        happen(&world, "note");
        flaky.until_struck(1).await;
        happen(&world, "answer");
        everybody_goes_on().await;
        happen(&world, Steered::HOUR);
        until(&world, Steered::AWAKE, 1).await;
        flaky.set(Mood::Well);
        let outcome = tokio::select! {
            outcome = run.outcome() => outcome,
            why = held(&place, &lobster, run.id()) => panic!("nothing was called, and nothing is in doubt: {why}"),
        };
        assert_eq!((outcome.unwrap(), happened(&world, "call")), (2, 2));
        assert!(lobster.runs().list().await.unwrap()[0].epoch > 1, "it left memory and came back");
        lobster.shutdown(Duration::from_secs(5)).await;
    }
}

#[step(irreversible, in_doubt = probe(ask), retry(attempts = 9, first = 30s, factor = 1, jitter = none))]
async fn lost(_ctx: &StepCtx, world: &str) -> Result<u64> {
    happen(world, "call");
    Err("the connection broke")?
}

async fn ask(_ctx: &StepCtx, world: &str) -> Result<Fate<u64>> {
    Ok(match happen(world, "probe") {
        4.. => Fate::Happened(77),
        _ => Fate::Unknown,
    })
}

#[task]
async fn asks(ctx: Ctx, world: String) -> Result<u64> {
    Ok(lost(&ctx, &world).await?)
}

/// A run has left and came back, and the process that it left does not know yet: it is there twice.
async fn two_epochs_of_a_run_in_one_process(place: Place) {
    let world = format!("twice {}", place.url());
    let (flaky, tiers) = Flaky::wrap(&tiers(&place).await);
    let lobster = place.open().tiers(tiers).host(Steered::new(&world)).task(asks).start().await.unwrap();
    flaky.set(Mood::Farewell);
    let run = lobster.submit(asks, world.clone()).await.unwrap();
    flaky.until_struck(1).await;
    // It has left until then, and nobody here was told. Now both epochs ask, and record that the probe cannot tell.
    happen(&world, Steered::HOUR);
    until(&world, "probe", 3).await;
    flaky.set(Mood::Well);
    happen(&world, Steered::HOUR);
    let outcome = tokio::time::timeout(Duration::from_secs(60), run.outcome()).await.expect("the committer goes on");
    assert_eq!((outcome.unwrap(), happened(&world, "call")), (77, 1));
    assert_eq!(flaky.doubled(), 0, "a batch has at most one offer per run");
    lobster.shutdown(Duration::from_secs(5)).await;
}

/// Not on a server: by its clock no hour passes, and a run that waits is not due.
mod a_run_taken_again_by_the_process_that_it_left_does_not_block_it {
    use super::*;

    #[tokio::test]
    async fn memory() {
        two_epochs_of_a_run_in_one_process(Place::memory()).await;
    }
    #[tokio::test]
    async fn sqlite() {
        two_epochs_of_a_run_in_one_process(Place::sqlite()).await;
    }
}

//! A store that may have lost what happened: each call that it could have lost is in doubt before it is made.
//!
//! Rule: a policy has its word on every such call, and on no call twice but where a key was closed.

use lobster_core::{Client, Ctx, ErrorKind, Fate, Result, RunId, StepCtx, StepState, step, task};
use lobster_tests::{Place, all, flaky::Flaky, happen, happened, held, on_each, tiers};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    world: String,
    how: String,
}

async fn call(ctx: &StepCtx, world: &str) -> Result<u64> {
    happen(world, format!("key {}", ctx.idempotency_key()));
    if ctx.in_doubt() {
        happen(world, "told");
    }
    match (happen(world, "call"), world.starts_with("fails")) {
        (1, true) => Err("reset by peer")?,
        (times, _) => Ok(times),
    }
}

#[step(irreversible, in_doubt = hold, key = n, max_duration = 50ms)]
async fn hold(ctx: &StepCtx, order: &Order, n: u64) -> Result<u64> {
    Ok(n * call(ctx, &order.world).await?)
}

#[step(irreversible, in_doubt = retry, retry(attempts = 1), max_duration = 50ms)]
async fn retry(ctx: &StepCtx, order: &Order) -> Result<u64> {
    call(ctx, &order.world).await
}

#[step(irreversible, in_doubt = probe(ask), max_duration = 50ms)]
async fn probe(ctx: &StepCtx, order: &Order) -> Result<u64> {
    call(ctx, &order.world).await
}

async fn ask(_ctx: &StepCtx, order: &Order) -> Result<Fate<u64>> {
    happen(&order.world, "asked");
    Ok(match order.how.as_str() {
        "happened" => Fate::Happened(70),
        "not seen" => Fate::NotSeen,
        _ => Fate::Closed,
    })
}

#[task]
async fn calls(ctx: Ctx, order: Order) -> Result<u64> {
    Ok(match order.how.as_str() {
        "hold" => hold(&ctx, &order, 1).await?,
        "both" => {
            let (one, two) = tokio::join!(hold(&ctx, &order, 1), hold(&ctx, &order, 2));
            one? + two?
        }
        "retry" => retry(&ctx, &order).await?,
        _ => probe(&ctx, &order).await?,
    })
}

/// An engine on a store that says that it may have lost something, from now on or when it is told to.
async fn engine(place: &Place, loses: bool) -> (Arc<Flaky>, lobster_core::Lobster) {
    let (flaky, tiers) = Flaky::wrap(&tiers(place).await);
    if loses {
        flaky.lose();
    }
    (flaky, place.open().tiers(tiers).task(calls).start().await.unwrap())
}

fn order(place: &Place, name: &str, how: &str) -> Order {
    Order { world: format!("{name} {}", place.url()), how: how.to_owned() }
}

/// A person's word on a call that is in doubt, once the run is held.
async fn say(place: &Place, client: &Client, run: RunId, fate: Fate<u64>) -> String {
    let why = held(place, client, run).await;
    for step in client.show(run).await.unwrap().steps {
        let open = matches!(step.state, StepState::Intended | StepState::InDoubt(_));
        match if open { client.resolve(run, step.id, fate).await } else { continue } {
            Ok(()) => return why,
            // What was said of it is not recorded yet.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
        }
    }
    panic!("nothing is in doubt: {why}");
}

fn keys(world: &str) -> usize {
    all(world).keys().filter(|what| what.starts_with("key ")).count()
}

on_each! {
    async fn calls_side_by_side_are_all_in_doubt(place) {
        let (_, lobster) = engine(&place, true).await;
        let order = order(&place, "both", "both");
        let run = lobster.submit(calls, order.clone()).await.unwrap();
        // The first that is held takes the other back while its intent is on its way.
        let why = say(&place, &lobster, run.id(), Fate::Happened(10)).await;
        assert!(why.contains("is in doubt: the store may have lost that it was made"), "{why}");
        say(&place, &lobster, run.id(), Fate::Happened(20)).await;
        assert_eq!((run.outcome().await.unwrap(), happened(&order.world, "call")), (30, 0));
    }

    async fn the_key_after_one_that_was_closed_is_asked_about_too_and_the_next_is_used(place) {
        let (_, lobster) = engine(&place, true).await;
        let person = order(&place, "closed by a person", "hold");
        let run = lobster.submit(calls, person.clone()).await.unwrap();
        say(&place, &lobster, run.id(), Fate::Closed).await;
        say(&place, &lobster, run.id(), Fate::Closed).await;
        assert_eq!(run.outcome().await.unwrap(), 1);
        assert_eq!((happened(&person.world, "call"), happened(&person.world, "told")), (1, 0), "of this key nothing is lost");
        let probed = order(&place, "closed by a probe", "closed");
        let run = lobster.submit(calls, probed.clone()).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 1);
        assert_eq!([ "asked", "call", "told"].map(|what| happened(&probed.world, what)), [2, 1, 0]);
    }

    async fn a_call_that_was_in_doubt_before_is_in_doubt_under_its_next_key_too(place) {
        let (flaky, lobster) = engine(&place, false).await;
        let order = order(&place, "fails", "hold");
        let run = lobster.submit(calls, order.clone()).await.unwrap();
        let why = held(&place, &lobster, run.id()).await;
        assert!(why.contains("reset by peer"), "{why}");
        // Whoever is told that it is closed may have gone on with the next key, and all that may be lost.
        flaky.lose();
        say(&place, &lobster, run.id(), Fate::Closed).await;
        let why = say(&place, &lobster, run.id(), Fate::Closed).await;
        assert!(why.contains("the store may have lost"), "{why}");
        assert_eq!(run.outcome().await.unwrap(), 2);
        assert_eq!((happened(&order.world, "call"), keys(&order.world)), (2, 2));
    }

    async fn a_probe_is_asked_before_the_call_and_a_policy_that_retries_makes_it(place) {
        let (_, lobster) = engine(&place, true).await;
        for (how, outcome, asked, made) in [("happened", 70, 1, 0), ("not seen", 1, 2, 1), ("retry", 1, 0, 1)] {
            let order = order(&place, how, how);
            let run = lobster.submit(calls, order.clone()).await.unwrap();
            assert_eq!(run.outcome().await.unwrap(), outcome, "{how}");
            // Not seen counts once a request can be on its way no more.
            let found = ["asked", "call", "told"].map(|what| happened(&order.world, what));
            assert_eq!(found, [asked, made, made], "{how}");
        }
    }
}

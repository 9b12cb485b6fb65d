//! A standby is promoted that lacks the newest, and whoever knew it is gone: each call that may have been made is in doubt.
//!
//! Rule: nobody makes a call again without a word of its step's policy, and what came after the promotion is in no doubt.

use super::failover::{address, deafen, fail_over, leased, on};
use lobster_core::{Client, Ctx, Fate, Result, RunId, StepCtx, step, task};
use lobster_servers::{
    postgres::{Durability, Postgres},
    proxy::Proxy,
    psql::sql,
};
use lobster_tests::{Place, all, happen, happened, held, until};
use std::time::Duration;

/// How often it was called with this key.
fn called(ctx: &StepCtx, world: &str) -> u64 {
    let doubt = if ctx.in_doubt() { "in doubt" } else { "called" };
    happen(world, doubt);
    happen(world, format!("key {}", ctx.idempotency_key()))
}

#[step(irreversible, in_doubt = hold)]
async fn hold(ctx: &StepCtx, world: &str) -> Result<u64> {
    Ok(called(ctx, world))
}

#[step(irreversible, in_doubt = retry)]
async fn retry(ctx: &StepCtx, world: &str) -> Result<u64> {
    Ok(called(ctx, world))
}

#[step(irreversible, in_doubt = probe(ask))]
async fn probe(ctx: &StepCtx, world: &str) -> Result<u64> {
    Ok(called(ctx, world))
}

async fn ask(ctx: &StepCtx, world: &str) -> Result<Fate<u64>> {
    happen(world, "asked");
    let times = happened(world, &format!("key {}", ctx.idempotency_key()));
    Ok(if times > 0 { Fate::Happened(times + 70) } else { Fate::Closed })
}

#[step(irreversible, in_doubt = hold)]
async fn early(_ctx: &StepCtx, world: &str) -> Result<u64> {
    Ok(happen(world, "early"))
}

#[step]
async fn note(_ctx: &StepCtx, world: &str) -> Result<u64> {
    Ok(happen(world, "noted"))
}

/// A call that both servers know, then what only one of them does.
#[task]
async fn calls(ctx: Ctx, asked: (String, String)) -> Result<u64> {
    let (world, how) = asked;
    let early = early(&ctx, &world).await?;
    happen(&world, "waits");
    until(&world, "go", 1).await;
    note(&ctx, &world).await?;
    let made = match how.as_str() {
        "hold" => hold(&ctx, &world).await?,
        "retry" => retry(&ctx, &world).await?,
        _ => probe(&ctx, &world).await?,
    };
    happen(&world, "made");
    until(&world, "end", 1).await;
    Ok(10 * made + early)
}

/// A call, and nothing before it.
#[task]
pub(super) async fn later(ctx: Ctx, world: String) -> Result<u64> {
    Ok(hold(&ctx, &world).await?)
}

/// How often each key was called with.
fn made(world: &str) -> Vec<u64> {
    all(world).into_iter().filter(|(what, _)| what.starts_with("key ")).map(|(_, times)| times).collect()
}

/// A person's word on the call that is held.
async fn say(client: &Client, run: RunId, value: u64) {
    let steps = client.show(run).await.unwrap().steps;
    let step = steps.into_iter().find(|step| step.name.starts_with("hold")).unwrap();
    client.resolve(run, step.id, Fate::Happened(value)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_promoted_postgres_may_lack_is_in_doubt_when_nobody_is_left_who_knows() {
    let server = Postgres::start(Durability::Full).unwrap();
    let (url, standby) = (server.fresh_database(), server.standby(false));
    let (near, far) = (Proxy::start(address(&server)), Proxy::start(address(&server)));
    let settings = leased(2);
    let place = Place::postgres_at(&near.url_through(&url));
    let lobster = place.open().settings(settings.clone()).task(calls).start().await.unwrap();
    let elsewhere = Place::postgres_at(&far.url_through(&url));
    let client = elsewhere.open().connect().await.unwrap();
    let id = Ctx::detached().run_id();
    let worlds = ["hold", "retry", "probe"].map(|how| (format!("{how} of {id}"), how.to_owned()));
    let mut runs = Vec::new();
    for arg in &worlds {
        runs.push(client.submit(calls, arg.clone()).await.unwrap());
        until(&arg.0, "waits", 1).await;
    }
    let [(asked_for, _), (retried, _), (probed, _)] = &worlds;
    // The standby has the first call of each, and hears of no other.
    while sql(&url, "SELECT count(*) FROM lobster.runs WHERE tail = 2").unwrap() != "3" {}
    // One of a task that nobody there executes.
    let waiting = format!("waiting of {id}");
    let unclaimed = client.submit(later, waiting.clone()).await.unwrap();
    deafen(&url, &standby);
    for (world, _) in &worlds {
        happen(world, "go");
        until(world, "made", 1).await;
        assert_eq!(made(world), [1]);
    }

    // Whoever made them never reaches the new primary.
    near.black(true);
    fail_over(&server, &standby, &far);
    let other = elsewhere.open().settings(settings).task(calls).task(later).start().await.unwrap();
    let reason = held(&elsewhere, &other, runs[0].id()).await;
    assert!(reason.contains("hold#0 is in doubt: the store may have lost that it was made"), "{reason}");
    assert_eq!(made(asked_for), [1], "not made again");
    assert_eq!([asked_for, retried, probed].map(|world| happened(world, "early")), [1; 3], "what is recorded is in no doubt");
    // It may have been claimed where nobody knows of it any more.
    let reason = held(&elsewhere, &other, unclaimed.id()).await;
    assert!(reason.contains("hold#0 is in doubt: the store may have lost that it was made"), "{reason}");
    worlds.iter().for_each(|(world, _)| _ = happen(world, "end"));
    // A policy that makes the call again does so under the same key, and the call is told; one that asks is answered.
    assert_eq!((runs[1].outcome().await.unwrap(), made(retried), happened(retried, "in doubt")), (21, vec![2], 1));
    assert_eq!((runs[2].outcome().await.unwrap(), made(probed), happened(probed, "asked")), (711, vec![1], 1));

    say(&other, runs[0].id(), 5).await;
    say(&other, unclaimed.id(), 6).await;
    assert_eq!((runs[0].outcome().await.unwrap(), unclaimed.outcome().await.unwrap()), (51, 6));
    assert_eq!((made(asked_for), made(&waiting)), (vec![1], vec![]));
    // What is submitted to the new primary is in no doubt.
    let fresh = format!("fresh of {id}");
    assert_eq!(client.submit(later, fresh.clone()).await.unwrap().outcome().await.unwrap(), 1);
    assert_eq!(made(&fresh), [1]);
    other.shutdown(Duration::from_secs(5)).await;
    lobster.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_living_process_vouches_for_after_postgres_was_promoted_is_in_no_doubt_later() {
    let server = Postgres::start(Durability::Full).unwrap();
    let (url, standby) = (server.fresh_database(), server.standby(false));
    let (near, far) = (Proxy::start(address(&server)), Proxy::start(address(&server)));
    let settings = leased(10);
    let place = Place::postgres_at(&near.url_through(&url));
    let lobster = place.open().settings(settings.clone()).task(calls).start().await.unwrap();
    let elsewhere = Place::postgres_at(&far.url_through(&url));
    let client = elsewhere.open().connect().await.unwrap();
    let world = format!("vouched {}", Ctx::detached().run_id());
    let run = client.submit(calls, (world.clone(), "hold".to_owned())).await.unwrap();
    until(&world, "waits", 1).await;
    while sql(&url, "SELECT count(*) FROM lobster.runs WHERE tail = 2").unwrap() != "1" {}
    deafen(&url, &standby);
    server.kill();
    standby.promote();
    for way in [&near, &far] {
        way.lead_to(address(&standby));
        way.cut();
    }
    let there = on(&standby, &url);
    while sql(&there, "SELECT bool_and(settled)::text || max(timeline) FROM lobster.timelines, lobster.runs").unwrap() != "true2"
    {
    }
    // It goes, and hands the run over.
    lobster.shutdown(Duration::ZERO).await;
    let other = elsewhere.open().settings(settings).task(calls).start().await.unwrap();
    ["go", "end"].iter().for_each(|what| _ = happen(&world, *what));
    assert_eq!((run.outcome().await.unwrap(), made(&world), happened(&world, "early")), (11, vec![1], 1));
    other.shutdown(Duration::from_secs(5)).await;
}

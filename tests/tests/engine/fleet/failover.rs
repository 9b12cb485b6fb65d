//! A standby is promoted that lacks the newest: the runs that were executed meanwhile are held, and no call is made again.

use super::lost::later;
use lobster_core::{Client, Ctx, ErrorKind, Fate, Result, RunFailed, Settings, StepCtx, step, task};
use lobster_servers::{
    postgres::{Durability, Postgres},
    proxy::Proxy,
    psql::sql,
};
use lobster_tests::{
    Place,
    flaky::{Claims, Flaky},
    happen, happened, held, tiers, until,
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

/// Once for each step, when it is told to.
#[step(irreversible, in_doubt = retry, max_duration = 600s)]
async fn pay(_ctx: &StepCtx, world: &str, n: u32) -> Result<u64> {
    let times = happen(world, format!("pay {n}"));
    until(world, &format!("go {n}"), 1).await;
    Ok(times)
}

#[task]
async fn pays(ctx: Ctx, world: String) -> Result<u64> {
    let mut times = 0;
    for n in 1..=3 {
        times += pay(&ctx, &world, n).await?;
    }
    Ok(times)
}

/// The same, several at once.
#[step(irreversible, in_doubt = retry, key = n, max_duration = 600s)]
async fn wire(_ctx: &StepCtx, world: &str, n: u32) -> Result<u64> {
    let times = happen(world, format!("wire {n}"));
    until(world, &format!("go {n}"), 1).await;
    Ok(times)
}

#[task]
async fn wires(ctx: Ctx, world: String) -> Result<u64> {
    let second = async {
        until(&world, "both", 1).await;
        wire(&ctx, &world, 2).await
    };
    let (first, second) = tokio::join!(wire(&ctx, &world, 1), second);
    Ok(first? + second?)
}

/// Between two calls it waits for something that is no step.
#[task]
async fn waits(ctx: Ctx, world: String) -> Result<u64> {
    let begun = happen(&world, "begun");
    if begun == 1 {
        happen(&world, "go 1");
    }
    let first = pay(&ctx, &world, 1).await?;
    happen(&world, format!("paid by {begun}"));
    until(&world, "further", 1).await;
    Ok(first + pay(&ctx, &world, 2).await?)
}

pub(super) fn address(server: &Postgres) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))
}

/// A lease that a slow machine does not lose while it finds the new server.
pub(super) fn leased(ttl: u64) -> Settings {
    let mut settings = Settings::test();
    settings.lease.ttl = Duration::from_secs(ttl);
    settings.lease.self_fence = settings.lease.ttl.mul_f64(0.6);
    settings
}

/// The standby has everything up to now, and hears no more.
pub(super) fn deafen(url: &str, standby: &Postgres) {
    let now = sql(url, "SELECT pg_current_wal_lsn()").unwrap();
    while sql(url, &format!("SELECT bool_and(replay_lsn >= '{now}') FROM pg_stat_replication")).unwrap() != "t" {}
    standby.set("primary_conninfo", "");
    while sql(url, "SELECT count(*) FROM pg_stat_replication").unwrap() != "0" {}
}

/// The server dies, and the way of a process leads to its standby.
pub(super) fn fail_over(server: &Postgres, standby: &Postgres, proxy: &Proxy) {
    server.kill();
    standby.promote();
    proxy.lead_to(address(standby));
    proxy.cut();
}

/// The same database on its standby.
pub(super) fn on(standby: &Postgres, url: &str) -> String {
    format!("postgres://lobster@{}/{}", address(standby), url.rsplit('/').next().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_records_a_promoted_postgres_lacks_is_held_and_its_calls_are_not_made_again() {
    let server = Postgres::start(Durability::Full).unwrap();
    let (url, standby) = (server.fresh_database(), server.standby(false));
    let proxy = Proxy::start(address(&server));
    let place = Place::postgres_at(&proxy.url_through(&url));
    let lobster = place.open().task(pays).start().await.unwrap();
    let world = format!("promoted {}", Ctx::detached().run_id());
    let run = lobster.submit(pays, world.clone()).await.unwrap();

    until(&world, "pay 1", 1).await;
    // The first intent is on both; what follows is not.
    deafen(&url, &standby);
    happen(&world, "go 1");
    until(&world, "pay 2", 1).await;
    fail_over(&server, &standby, &proxy);
    happen(&world, "go 2");

    let reason = held(&place, &lobster, run.id()).await;
    assert!(reason.contains("forked recording"), "{reason}");
    assert_eq!(
        [1, 2, 3].map(|n| happened(&world, &format!("pay {n}"))),
        [1, 1, 0],
        "nothing was made again, and nothing goes on"
    );
    lobster.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_whose_claims_a_promoted_postgres_lacks_are_held_before_another_node_is_given_them() {
    let server = Postgres::start(Durability::Full).unwrap();
    let (url, standby) = (server.fresh_database(), server.standby(false));
    let proxy = Proxy::start(address(&server));
    let place = Place::postgres_at(&proxy.url_through(&url));
    let (flaky, tiers) = Flaky::wrap(&tiers(&place).await);
    let settings = leased(10);
    flaky.set_claims(Claims::Sent);
    let lobster = place.open().tiers(tiers).settings(settings.clone()).task(pays).start().await.unwrap();
    let world = |name: &str| format!("{name} {}", Ctx::detached().run_id());
    let (calling, ended, later) = (world("calling"), world("ended"), world("later"));
    let [run, over] = [&calling, &ended].map(|world| lobster.submit(pays, world.clone()));
    let (run, over) = (run.await.unwrap(), over.await.unwrap());
    flaky.until_struck(1).await;

    // The standby has the runs, and nothing of what becomes of them.
    deafen(&url, &standby);
    flaky.set_claims(Claims::Well);
    (1..=3).for_each(|n| _ = happen(&ended, format!("go {n}")));
    assert_eq!(over.outcome().await.unwrap(), 3);
    until(&calling, "pay 1", 1).await;
    fail_over(&server, &standby, &proxy);
    // Another host, which knows nothing of all this.
    let direct = Proxy::start(address(&standby));
    let elsewhere = Place::postgres_at(&direct.url_through(&url));
    let other = elsewhere.open().settings(settings).task(pays).start().await.unwrap();
    happen(&calling, "go 1");

    for id in [run.id(), over.id()] {
        let reason = held(&elsewhere, &other, id).await;
        assert!(reason.contains("forked recording"), "{reason}");
    }
    // It executes what is there.
    let new = other.submit(pays, later.clone()).await.unwrap();
    (1..=3).for_each(|n| _ = happen(&later, format!("go {n}")));
    assert_eq!(new.outcome().await.unwrap(), 3);
    let calls = |world: &str| [1, 2, 3].map(|n| happened(world, &format!("pay {n}")));
    assert_eq!((calls(&calling), calls(&ended)), ([1, 0, 0], [1, 1, 1]), "nothing was made again, and nothing goes on");
    other.shutdown(Duration::from_secs(5)).await;
    lobster.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_result_releases_no_run_of_which_a_promoted_postgres_lacks_something() {
    let server = Postgres::start(Durability::Full).unwrap();
    let (url, standby) = (server.fresh_database(), server.standby(false));
    let proxy = Proxy::start(address(&server));
    let place = Place::postgres_at(&proxy.url_through(&url));
    let lobster = place.open().task(wires).start().await.unwrap();
    let world = format!("late {}", Ctx::detached().run_id());
    let run = lobster.submit(wires, world.clone()).await.unwrap();
    until(&world, "wire 1", 1).await;
    deafen(&url, &standby);
    // Nothing on the standby tells of the second.
    happen(&world, "both");
    until(&world, "wire 2", 1).await;
    fail_over(&server, &standby, &proxy);
    let reason = held(&place, &lobster, run.id()).await;
    assert!(reason.contains("forked recording"), "{reason}");

    // The late result of the first is kept, and wakes nobody; no person's word does either.
    happen(&world, "go 1");
    let there = on(&standby, &url);
    while sql(&there, "SELECT count(*) FROM lobster.verdicts_in").unwrap() != "1" {}
    let client: &Client = &lobster;
    let shown = client.show(run.id()).await.unwrap();
    assert_eq!(shown.steps.len(), 1);
    for step in shown.steps {
        let error = client.resolve(run.id(), step.id, Fate::Happened(1)).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Held && error.to_string().contains("only a cancel ends it"), "{error}");
    }
    assert_eq!(held(&place, &lobster, run.id()).await, reason);
    client.cancel(run.id()).await.unwrap();
    assert!(matches!(run.outcome().await, Err(RunFailed::Cancelled(_))));
    assert_eq!([1, 2].map(|n| happened(&world, &format!("wire {n}"))), [1, 1], "nothing was made again");
    happen(&world, "go 2");
    lobster.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_runs_were_taken_over_before_postgres_was_promoted_does_not_go_on_with_them() {
    let server = Postgres::start(Durability::Full).unwrap();
    let (url, standby) = (server.fresh_database(), server.standby(false));
    let (near, far) = (Proxy::start(address(&server)), Proxy::start(address(&server)));
    let settings = leased(10);
    let place = Place::postgres_at(&near.url_through(&url));
    let lobster = place.open().settings(settings.clone()).task(waits).start().await.unwrap();
    let world = format!("taken {}", Ctx::detached().run_id());
    let run = lobster.submit(waits, world.clone()).await.unwrap().id();
    until(&world, "paid by 1", 1).await;
    deafen(&url, &standby);

    // Its owner is cut off, and another host takes the run over; the standby hears nothing of that.
    near.black(true);
    let elsewhere = Place::postgres_at(&far.url_through(&url));
    let other = elsewhere.open().settings(settings).task(waits).start().await.unwrap();
    until(&world, "paid by 2", 1).await;
    happen(&world, "further");
    until(&world, "pay 2", 1).await;
    server.kill();
    standby.promote();

    // The first that finds the new server is the one that does not know: it gives back what it takes for its own.
    let joined = "SELECT count(*) FROM lobster.nodes";
    let there = on(&standby, &url);
    assert_eq!(sql(&there, joined).unwrap(), "1");
    near.lead_to(address(&standby));
    near.black(false);
    near.cut();
    while sql(&there, joined).unwrap() == "1" && happened(&world, "pay 2") == 1 {}
    far.lead_to(address(&standby));
    far.cut();
    let reason = held(&elsewhere, &other, run).await;
    assert!(reason.contains("forked recording"), "{reason}");
    assert_eq!([1, 2].map(|n| happened(&world, &format!("pay {n}"))), [1, 1], "nothing was made again");
    happen(&world, "go 2");
    other.shutdown(Duration::from_secs(5)).await;
    lobster.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_synchronous_replication_a_promoted_postgres_holds_nothing_and_runs_go_on_in_place() {
    let server = Postgres::start(Durability::Full).unwrap();
    let (url, standby) = (server.fresh_database(), server.standby(true));
    let proxy = Proxy::start(address(&server));
    let place = Place::postgres_at(&proxy.url_through(&url)).with("lobster_trust_promoted=true");
    let lobster = place.open().settings(leased(10)).task(pays).task(wires).task(later).start().await.unwrap();
    let worlds = ["synchronous", "both"].map(|name| format!("{name} {}", Ctx::detached().run_id()));
    let run = lobster.submit(pays, worlds[0].clone()).await.unwrap();
    let other = lobster.submit(wires, worlds[1].clone()).await.unwrap();
    happen(&worlds[1], "both");
    happen(&worlds[0], "go 1");
    until(&worlds[0], "pay 2", 1).await;
    until(&worlds[1], "wire 1", 1).await;
    until(&worlds[1], "wire 2", 1).await;
    // Nobody has it before the standby is promoted, or somebody has: nothing is lost of it.
    let waiting = lobster.submit(later, worlds[0].clone()).delay(Duration::from_secs(2)).await.unwrap();
    fail_over(&server, &standby, &proxy);
    for n in 1..=3 {
        worlds.iter().for_each(|world| _ = happen(world, format!("go {n}")));
    }
    assert_eq!((run.outcome().await.unwrap(), other.outcome().await.unwrap()), (3, 2), "each call was made once");
    for id in [run.id(), other.id()] {
        assert_eq!(lobster.show(id).await.unwrap().summary.epoch, 1, "nobody else had it");
    }
    assert_eq!(waiting.outcome().await.unwrap(), 1, "it is in no doubt");
    // And those that nobody has yet, once everybody has had the time to speak.
    let new = lobster.submit(pays, worlds[0].clone()).await.unwrap();
    assert_eq!(new.outcome().await.unwrap(), 6);
    lobster.shutdown(Duration::from_secs(5)).await;
}

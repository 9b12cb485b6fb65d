//! A standby is promoted that lacks the newest: the run that was executed meanwhile is held, and no call is made again.

use lobster_core::{Ctx, Result, StepCtx, step, task};
use lobster_servers::{
    postgres::{Durability, Postgres},
    proxy::Proxy,
    psql::sql,
};
use lobster_tests::{Place, happen, happened, held, until};
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

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_records_a_promoted_postgres_lacks_is_held_and_its_calls_are_not_made_again() {
    let server = Postgres::start(Durability::Full).unwrap();
    let (url, standby) = (server.fresh_database(), server.standby(false));
    let address = |server: &Postgres| SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let proxy = Proxy::start(address(&server));
    let place = Place::postgres_at(&proxy.url_through(&url));
    let lobster = place.open().task(pays).start().await.unwrap();
    let world = format!("promoted {}", Ctx::detached().run_id());
    let run = lobster.submit(pays, world.clone()).await.unwrap();

    until(&world, "pay 1", 1).await;
    // The first intent is on both; what follows is not.
    let now = sql(&url, "SELECT pg_current_wal_lsn()").unwrap();
    while sql(&url, &format!("SELECT bool_and(replay_lsn >= '{now}') FROM pg_stat_replication")).unwrap() != "t" {}
    standby.set("primary_conninfo", "");
    while sql(&url, "SELECT count(*) FROM pg_stat_replication").unwrap() != "0" {}
    happen(&world, "go 1");
    until(&world, "pay 2", 1).await;
    server.kill();
    standby.promote();
    proxy.lead_to(address(&standby));
    proxy.cut();
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

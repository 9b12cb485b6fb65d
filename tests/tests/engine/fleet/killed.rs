//! The server is killed while several owners live: what it had said is stored in passing may be gone, and is offered again. Nobody is taken
//! for dead, no step is run again, and no call is made again.

use super::*;
use lobster_core::{Lobster, Settings, StepCtx, StepFailed, step};
use lobster_servers::{
    postgres::{Durability, Postgres},
    proxy::Proxy,
};
use lobster_tests::{happen, happened, tiers, until};
use std::net::Ipv4Addr;

const OWNERS: usize = 3;
const ROUNDS: u64 = 4;
const TICKS: u64 = 25;

/// It is under way all the time.
#[step(irreversible, in_doubt = retry, key = "call", max_duration = 600s)]
async fn call(_ctx: &StepCtx, world: &str) -> Result<u64> {
    let times = happen(world, "call");
    until(world, "answer", 1).await;
    Ok(times)
}

/// It answers at once.
#[step(irreversible, in_doubt = retry, key = n)]
async fn knock(_ctx: &StepCtx, world: &str, n: u64) -> Result<u64> {
    Ok(happen(world, format!("knock {n}")))
}

#[step(key = n)]
async fn tick(_ctx: &StepCtx, world: &str, n: u64) -> Result<u64> {
    Ok(happen(world, format!("tick {n}")))
}

#[task]
async fn ticks(ctx: Ctx, world: String) -> Result<u64> {
    let ticks = async {
        let mut sum = 0;
        for round in 0..ROUNDS {
            until(&world, &format!("round {round}"), 1).await;
            // The first thing that the store hears of after it has lost something is an intent.
            sum += knock(&ctx, &world, round).await?;
            until(&world, &format!("ticks {round}"), 1).await;
            for n in 0..TICKS {
                sum += tick(&ctx, &world, round * TICKS + n).await?;
            }
        }
        Ok::<_, StepFailed>(sum)
    };
    let (called, ticked) = tokio::try_join!(call(&ctx, &world), ticks)?;
    Ok(called + ticked)
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_that_is_killed_under_living_owners_is_given_again_what_it_had_acknowledged_in_passing() {
    let server = Postgres::start(Durability::Full).unwrap();
    // Nothing is written for another reason than that somebody waits for it.
    for (name, value) in [("wal_writer_delay", "10s"), ("bgwriter_lru_maxpages", "0"), ("autovacuum", "off")] {
        server.set(name, value);
    }
    let url = server.fresh_database();
    let (mut proxies, mut owners) = (Vec::new(), Vec::<(Place, Lobster)>::new());
    for _ in 0..OWNERS {
        let proxy = Proxy::start((Ipv4Addr::LOCALHOST, server.port()).into());
        let place = Place::postgres_at(&proxy.url_through(&url));
        let mut settings = Settings::test();
        settings.run.executing = 1;
        // A slow machine does not lose it.
        (settings.lease.ttl, settings.lease.self_fence) = (Duration::from_secs(20), Duration::from_secs(12));
        // Nor the window in which a call may start once its intent is on its way.
        settings.lease.renew = Duration::from_secs(2);
        let lobster = place.open().settings(settings).task(ticks).start().await.unwrap();
        owners.push((place, lobster));
        proxies.push(proxy);
    }
    let worlds: Vec<_> = (0..OWNERS).map(|n| format!("killed {n} {}", Ctx::detached().run_id())).collect();
    let mut runs = Vec::new();
    for world in &worlds {
        runs.push(owners[0].1.submit(ticks, world.clone()).await.unwrap());
        // Its intent is synced, and everything before it: all three are, before anything else is recorded.
        until(world, "call", 1).await;
    }
    let look = Place::postgres_at(&url);
    let before = (living(&look), ask(&look, "SELECT owner FROM lobster.runs ORDER BY owner"));
    assert_eq!(before.0, before.1, "each owns one");
    let tails = || -> Vec<u64> {
        let tail = |id| ask(&look, &format!("SELECT tail FROM lobster.runs WHERE id = '{id}'")).parse().unwrap();
        runs.iter().map(|run| tail(run.id())).collect()
    };

    let mut lost = vec![0; OWNERS];
    for round in 0..ROUNDS {
        // The intent of the call that is under way; intent and result of a knock, and the ticks.
        let said = 1 + (2 + TICKS) * (round + 1);
        // Everybody has been told that it is stored, or is about to be: what was lost in the last round, too.
        for (what, reached) in [("round", said - TICKS), ("ticks", said)] {
            worlds.iter().for_each(|world| _ = happen(world, format!("{what} {round}")));
            while tails() != vec![reached; OWNERS] {}
        }
        proxies.iter().for_each(|proxy| proxy.refuse(true));
        server.kill();
        server.start_again();
        tails().into_iter().zip(&mut lost).for_each(|(left, lost)| *lost += said - left);
        proxies.iter().for_each(Proxy::pass);
    }
    assert!(lost.iter().all(|lost| *lost > 0), "rows that the server has lost, by owner: {lost:?}");
    until_beaten(&look, 2);
    assert_eq!((living(&look), ask(&look, "SELECT owner FROM lobster.runs ORDER BY owner")), before, "nobody was evicted");

    for (world, run) in worlds.iter().zip(&runs) {
        happen(world, "answer");
        assert_eq!(run.outcome().await.unwrap(), 1 + ROUNDS * (1 + TICKS), "each step was run once");
        assert_eq!((happened(world, "call"), happened(world, "tick 0")), (1, 1));
        let recording = tiers(&look).await.catalog.read(run.id()).await.unwrap().unwrap().recording;
        let mut next = 1;
        for row in recording.deltas {
            assert_eq!(row.from, next, "no hole");
            next = row.to + 1;
        }
        assert_eq!(next, recording.tail + 1);
    }
    for (_, lobster) in owners {
        lobster.shutdown(Duration::from_secs(5)).await;
    }
}

//! What owners bear with on PostgreSQL: a row that others keep locking, a drain that takes long, connections that are all busy.
//! Leases and runs go on, and only what must wait waits.

use super::*;
use lobster_core::{Lobster, Settings, StepCtx, step};
use lobster_tests::{happen, happened, until};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

const TICKS: u64 = 60;
const RIVALS: u64 = 16;

#[step(durable)]
async fn tick(_ctx: &StepCtx, world: &str, n: u64) -> Result<u64> {
    Ok(happen(world, format!("tick {n}")))
}

#[task]
async fn ticks(ctx: Ctx, world: String) -> Result<u64> {
    happen(&world, "begun");
    until(&world, "go", 1).await;
    let mut sum = 0;
    for n in 0..TICKS {
        if n == TICKS / 2 {
            happen(&world, "half");
            until(&world, "further", 1).await;
        }
        sum += tick(&ctx, &world, n).await?;
    }
    Ok(sum)
}

/// Locks a row again and again, each time for one more round trip, until it is enough.
async fn rival(database: String, world: String, lock: String) {
    let mut session = PgConnection::connect(&database).await.unwrap();
    while happened(&world, "enough") == 0 {
        session.execute(sqlx::raw_sql(AssertSqlSafe(lock.as_str()))).await.unwrap();
        happen(&world, "locked");
        session.execute("COMMIT").await.unwrap();
    }
}

/// Sessions that wait for a row that somebody has locked: those of people, and those of the engine, which has a role of its own.
const WAITING: &str = "SELECT count(*) FILTER (WHERE usename = current_user), count(*) FILTER (WHERE usename <> current_user)
    FROM pg_stat_activity WHERE datname = current_database() AND wait_event IN ('transactionid', 'tuple')";

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_row_on_postgres_sixteen_others_keep_locking_goes_on_and_keeps_no_other_waiting() {
    let place = Place::postgres();
    let lobster = place.open().task(ticks).start().await.unwrap();
    let worlds = ["contended", "beside it"].map(|name| format!("{name} {}", place.url()));
    let [first, second] = &worlds;
    let contended = lobster.submit(ticks, first.clone()).await.unwrap();
    let beside = lobster.submit(ticks, second.clone()).await.unwrap();
    tokio::join!(until(first, "begun", 1), until(second, "begun", 1));
    let lock = format!("BEGIN; SELECT 1 FROM lobster.runs WHERE id = '{}' FOR UPDATE", contended.id());
    let mut person = PgConnection::connect(place.database()).await.unwrap();
    person.execute(sqlx::raw_sql(AssertSqlSafe(lock.as_str()))).await.unwrap();
    let one = || rival(place.database().to_owned(), first.clone(), lock.clone());
    let rivals: Vec<_> = (0..RIVALS).map(|_| tokio::spawn(one())).collect();
    worlds.iter().for_each(|world| _ = happen(world, "go"));

    // Nobody lets go of the row for now. Its owner has found it locked again and again: he waits for it with this run alone.
    until(second, "half", 1).await;
    while ask(&place, WAITING) != format!("{RIVALS}|1") {}
    assert_eq!([0, 1].map(|n| happened(first, &format!("tick {n}"))), [1, 0], "its first result is not stored");

    person.execute("COMMIT").await.unwrap();
    worlds.iter().for_each(|world| _ = happen(world, "further"));
    assert_eq!(beside.outcome().await.unwrap(), TICKS);
    assert_eq!(contended.outcome().await.unwrap(), TICKS);
    // They go on until here.
    let locked = happened(first, "locked");
    happen(first, "enough");
    for rival in rivals {
        rival.await.unwrap();
    }
    assert!(locked >= RIVALS, "others had the row {locked} times while the run was under way");
    let once = |world: &String| (0..TICKS).all(|n| happened(world, &format!("tick {n}")) == 1);
    assert!(worlds.iter().all(once), "no step was run again");
    lobster.shutdown(Duration::from_secs(5)).await;
}

/// More than three TTLs of [`short`], and longer than anybody there looks on.
const BEATS: u64 = 30;
const CALLS: u64 = 3;

/// A lease of 1.5 s; others bear with a machine that stalls for 4.5 s. What waits stays in memory, and what is over stays stored.
fn short() -> Settings {
    let mut settings = Settings::test();
    (settings.lease.ttl, settings.lease.self_fence) = (Duration::from_millis(1500), Duration::from_millis(900));
    settings.lease.guard = Duration::from_secs(3);
    settings.run.evict_after = Duration::from_secs(3600);
    settings.retention.every = Duration::from_secs(3600);
    settings
}

/// Waits until a node has beaten so often from now on; it lives all the time.
fn until_one_has_beaten(place: &Place, incarnation: &str, times: u64) {
    let beat = || -> u64 {
        let beat = ask(place, &format!("SELECT beat FROM lobster.nodes WHERE state = 0 AND incarnation = '{incarnation}'"));
        beat.parse().unwrap_or_else(|_| panic!("{incarnation} does not live any more"))
    };
    let enough = beat() + times;
    while beat() < enough {}
}

/// Once for each key, when it is told to.
#[step(irreversible, in_doubt = retry, key = n, max_duration = 600s)]
async fn call(_ctx: &StepCtx, world: &str, n: u64) -> Result<u64> {
    let times = happen(world, format!("call {n}"));
    until(world, &format!("go {n}"), 1).await;
    Ok(times)
}

#[task]
async fn calls(ctx: Ctx, world: String) -> Result<u64> {
    let mut times = 0;
    for n in 1..=CALLS {
        times += call(&ctx, &world, n).await?;
    }
    Ok(times)
}

#[step(key = n)]
async fn rest(_ctx: &StepCtx, world: &str, n: u64) -> Result<u64> {
    let times = happen(world, format!("rest {n}"));
    until(world, &format!("go {n}"), 1).await;
    Ok(times)
}

#[task]
async fn rests(ctx: Ctx, world: String) -> Result<u64> {
    Ok(rest(&ctx, &world, 1).await? + rest(&ctx, &world, 2).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_on_postgres_renews_for_as_long_as_a_call_takes_and_hands_over_at_once_what_does_not_wait_for_it() {
    let place = Place::postgres();
    // Neither has a proof of the other's death.
    let hosts = [Place::postgres_at(place.database()), Place::postgres_at(place.database())];
    let [calling, resting] = ["calling", "resting"].map(|name| format!("{name} {}", place.url()));
    let one = hosts[0].open().settings(short()).task(calls).task(rests).start().await.unwrap();
    let goes = living(&place);
    let called = one.submit(calls, calling.clone()).await.unwrap().id();
    let rested = one.submit(rests, resting.clone()).await.unwrap().id();
    until(&calling, "call 1", 1).await;
    until(&resting, "rest 1", 1).await;
    let other = hosts[1].open().settings(short()).task(calls).task(rests).start().await.unwrap();
    let stays = ask(&place, &format!("SELECT incarnation FROM lobster.nodes WHERE state = 0 AND incarnation <> '{goes}'"));
    let owner = |run| ask(&place, &format!("SELECT owner FROM lobster.runs WHERE id = '{run}'"));
    assert_eq!([owner(called), owner(rested)], [&*goes, &*goes]);

    // The first poll of a shutdown begins the drain.
    let (drained, ()) = tokio::join!(biased; one.shutdown(Duration::from_secs(600)), async {
        happen(&resting, "go 1");
        until(&resting, "rest 2", 1).await;
        assert_eq!([owner(called), owner(rested)], [&*goes, &*stays]);
        until_one_has_beaten(&place, &goes, BEATS);
        assert_eq!(owner(called), goes, "nobody took it");
        assert_eq!([1, 2].map(|n| happened(&calling, &format!("call {n}"))), [1, 0]);
        (1..=CALLS).for_each(|n| _ = happen(&calling, format!("go {n}")));
    });
    assert_eq!((drained.runs, drained.left_behind), (2, 0));
    let state = ask(&place, &format!("SELECT state FROM lobster.nodes WHERE incarnation = '{goes}'"));
    assert_eq!(state, "1", "it has left, and was not revoked");

    happen(&resting, "go 2");
    assert_eq!(other.run(calls, called).outcome().await.unwrap(), CALLS);
    assert_eq!(other.run(rests, rested).outcome().await.unwrap(), 2);
    assert!((1..=CALLS).all(|n| happened(&calling, &format!("call {n}")) == 1), "no call was made again");
    assert_eq!([1, 2].map(|n| happened(&resting, &format!("rest {n}"))), [1, 1], "no step was run again");
    let epoch = async |run| other.show(run).await.unwrap().summary.epoch;
    assert_eq!([epoch(called).await, epoch(rested).await], [2, 2], "what follows the call was handed over as well");
    other.shutdown(Duration::from_secs(5)).await;
}

/// Sessions that wait for the table that somebody has locked.
const WAITING_FOR_TAGS: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'lobster.tags'::regclass
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_connections_to_postgres_are_all_busy_renews_its_lease_and_makes_its_calls() {
    let place = Place::postgres();
    let world = format!("exhausted {}", place.url());
    let url = format!("{}&lobster_connections=2", place.url());
    let lobster = Lobster::open(&url).settings(short()).task(calls).start().await.unwrap();
    let busy = living(&place);
    // Whoever would take it for dead.
    let host = Place::postgres_at(place.database());
    let other = host.open().settings(short()).start().await.unwrap();
    let before = living(&place);
    let run = lobster.submit(calls, world.clone()).await.unwrap();
    until(&world, "call 1", 1).await;

    // Every list of runs reads their tags.
    let mut person = PgConnection::connect(place.database()).await.unwrap();
    person.execute("BEGIN; LOCK TABLE lobster.tags IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let reader = || {
        let (client, world) = (Client::clone(&lobster), world.clone());
        tokio::spawn(async move {
            // One that waits for too long fails, and is asked again.
            while happened(&world, "enough") == 0 {
                client.runs().list().await.ok();
            }
        })
    };
    let readers: Vec<_> = (0..8).map(|_| reader()).collect();
    let stuck = || ask(&place, WAITING_FOR_TAGS).parse::<u64>().unwrap();
    while stuck() < 2 {}
    until_one_has_beaten(&place, &busy, BEATS);
    // Nor does a batch wait for a read.
    happen(&world, "go 1");
    until(&world, "call 2", 1).await;
    assert!(stuck() >= 2, "they are busy still");
    assert_eq!(living(&place), before, "nobody was taken for dead");
    happen(&world, "enough");
    person.execute("COMMIT").await.unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
    (2..=CALLS).for_each(|n| _ = happen(&world, format!("go {n}")));
    assert_eq!(run.outcome().await.unwrap(), CALLS);
    assert!((1..=CALLS).all(|n| happened(&world, &format!("call {n}")) == 1), "no call was made again");
    assert_eq!(lobster.show(run.id()).await.unwrap().summary.epoch, 1, "it never moved");
    lobster.shutdown(Duration::from_secs(5)).await;
    other.shutdown(Duration::from_secs(5)).await;
}

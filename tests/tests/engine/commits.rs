//! COMMITs that a network cuts off, and how long PostgreSQL bears with a transaction of a step.
//!
//! Rule: the rows that a step wrote are the judge, and they are asked for by a way that nothing cuts.

use lobster_core::{Ctx, PgTx, Result, Settings, StepCtx, step, task};
use lobster_servers::{proxy::Proxy, psql::sql, shared};
use lobster_tests::{Place, happen, happened};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

const BUY: &str = "INSERT INTO purchases VALUES ($1)";

/// What a driver sends to commit, in a message of its own.
const COMMIT: &[u8] = b"COMMIT\0";

/// The proxies before the servers, by the worlds of their tests.
static PROXIES: Mutex<BTreeMap<String, Arc<Proxy>>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    world: String,
    /// Whether the server gets the COMMIT that is cut off.
    deliver: bool,
}

#[step]
async fn note(_ctx: &StepCtx, world: &str, what: &str) -> Result<u64> {
    Ok(happen(world, what))
}

/// Writes which execution it is. The first one has its COMMIT cut off: behind a pooler others commit by a statement meanwhile, on
/// connections that have not bought anything.
#[step(transactional)]
async fn buy(_ctx: &StepCtx, tx: &mut PgTx, order: &Order) -> Result<u64> {
    let execution = happen(&order.world, "body");
    if execution == 1 {
        PROXIES.lock().unwrap()[&order.world].cut_when_client_sends_all(&[BUY.as_bytes(), COMMIT], order.deliver);
    }
    sqlx::query(BUY).bind(execution.cast_signed()).persistent(false).execute(&mut **tx).await?;
    Ok(execution)
}

#[task]
async fn purchase(ctx: Ctx, order: Order) -> Result<u64> {
    note(&ctx, &order.world, "before").await?;
    let execution = buy(&ctx, &order).await?;
    note(&ctx, &order.world, "after").await?;
    Ok(execution)
}

/// Where the server of a URL listens.
fn address(url: &str) -> SocketAddr {
    let host = url.split_once('@').map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or(""));
    host.parse().expect("servers of tests listen at an address")
}

/// With a lease that a slow machine does not lose.
fn leased() -> Settings {
    Settings { lease: Settings::fast().lease, ..Settings::test() }
}

/// The purchase is made by this execution of its step, once, whatever became of its first COMMIT.
async fn cut_at_the_commit(deliver: bool, made_by: u64) {
    let (url, world) = (shared::postgres(), format!("commit {deliver} {}", Ctx::detached().run_id()));
    let proxy = Arc::new(Proxy::start(address(&url)));
    PROXIES.lock().unwrap().insert(world.clone(), proxy.clone());
    let place = Place::postgres_at(&proxy.url_through(&url));
    sql(&url, "CREATE TABLE purchases (execution INT8 NOT NULL)").unwrap();
    let lobster = place.open().settings(leased()).task(purchase).start().await.unwrap();
    let run = lobster.submit(purchase, Order { world: world.clone(), deliver }).await.unwrap();

    assert_eq!(run.outcome().await.unwrap(), made_by, "what is recorded is what that execution returned");
    assert!(proxy.fired(), "a COMMIT was cut off");
    assert_eq!(sql(&url, "SELECT execution FROM purchases").unwrap(), made_by.to_string(), "one row, by that execution");
    let times = ["before", "body", "after"].map(|what| happened(&world, what));
    assert_eq!(times, [1, made_by, 1], "no other step was made again");
    assert_eq!(lobster.show(run.id()).await.unwrap().steps.len(), 3);
    lobster.shutdown(Duration::from_secs(5)).await;
    PROXIES.lock().unwrap().remove(&world);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_commit_was_applied_and_its_answer_lost_is_not_made_again_on_postgres() {
    cut_at_the_commit(true, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_commit_never_arrived_is_undone_and_made_again_on_postgres() {
    cut_at_the_commit(false, 2).await;
}

/// In milliseconds: how long the server lets this transaction be idle, and wait for a lock.
async fn bounds(tx: &mut PgTx) -> Result<Vec<i64>> {
    let names = "SELECT setting::int8 FROM pg_settings WHERE name IN ('idle_in_transaction_session_timeout', 'lock_timeout')";
    Ok(sqlx::query_scalar(names).persistent(false).fetch_all(&mut **tx).await?)
}

#[step(transactional)]
async fn bounds_of_any(_ctx: &StepCtx, tx: &mut PgTx) -> Result<Vec<i64>> {
    bounds(tx).await
}

/// Nor longer than it may take: what waits there after its process has given up would keep its run's row.
#[step(transactional, max_duration = 2s)]
async fn bounds_of_a_short_one(_ctx: &StepCtx, tx: &mut PgTx) -> Result<Vec<i64>> {
    bounds(tx).await
}

#[task]
async fn all_bounds(ctx: Ctx, _nothing: ()) -> Result<[Vec<i64>; 2]> {
    Ok([bounds_of_any(&ctx).await?, bounds_of_a_short_one(&ctx).await?])
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_told_to_bear_with_a_transaction_no_longer_than_the_lease_is_good_and_it_may_take() {
    let (place, settings) = (Place::postgres(), leased());
    let most = [settings.lease.self_fence, Duration::from_secs(2)].map(|most| i64::try_from(most.as_millis()).unwrap());
    let lobster = place.open().settings(settings).task(all_bounds).start().await.unwrap();
    for (bounds, most) in lobster.submit(all_bounds, ()).await.unwrap().outcome().await.unwrap().into_iter().zip(most) {
        let [idle, lock] = bounds[..] else { panic!("two bounds: {bounds:?}") };
        // The same for both: neither is what other transactions of the store have.
        assert!(idle == lock && 0 < lock && lock <= most, "{bounds:?} of {most} ms");
    }
    lobster.shutdown(Duration::from_secs(5)).await;
}

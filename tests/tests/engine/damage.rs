//! Damaged bytes never reach a body: the run is held with an error that names run, seq and record; the others go on.

use lobster_core::{
    Ctx, ErrorKind, Fate, Field, Lobster, Log, Result, RunFailed, RunState, Settings, State, StepCtx, StepErrorExt, step, task,
};
use lobster_tests::{Place, eventually, happen, happened, held, tiers, until};
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{str::FromStr, time::Duration};

#[step]
async fn value(_ctx: &StepCtx, n: u64) -> Result<u64> {
    Ok(n)
}

#[step(retry(attempts = 2))]
async fn later(ctx: &StepCtx, world: String) -> Result<u64> {
    happen(&world, "later");
    if ctx.attempt() == 1 {
        Err("come back").retry_after(Duration::from_secs(3600))?;
    }
    Ok(1)
}

#[task]
async fn sleeper(ctx: Ctx, world: String) -> Result<u64> {
    let n = value(&ctx, 41).await?;
    Ok(n + later(&ctx, world).await?)
}

#[task]
async fn quick(ctx: Ctx, n: u64) -> Result<u64> {
    Ok(value(&ctx, n).await?)
}

async fn connection(place: &Place) -> SqliteConnection {
    let options = SqliteConnectOptions::from_str(place.url()).unwrap();
    SqliteConnection::connect_with(&options).await.unwrap()
}

/// Flips one bit of a stored record; returns the bytes it has now.
async fn flip(place: &Place, table: &'static str, run: lobster_core::RunId, at: usize) -> Vec<u8> {
    let mut db = connection(place).await;
    let read = format!("SELECT body FROM lobster_{table} WHERE run = ? LIMIT 1");
    let row = sqlx::query(sqlx::AssertSqlSafe(read)).bind(run.bytes().to_vec()).fetch_one(&mut db).await.unwrap();
    let before: Vec<u8> = row.get(0);
    let mut after = before.clone();
    let at = at % after.len();
    after[at] ^= 1 << (at % 8);
    let write = format!("UPDATE lobster_{table} SET body = ? WHERE run = ? AND body = ?");
    sqlx::query(sqlx::AssertSqlSafe(write))
        .bind(after.clone())
        .bind(run.bytes().to_vec())
        .bind(before)
        .execute(&mut db)
        .await
        .unwrap();
    after
}

async fn stored(place: &Place, table: &'static str, run: lobster_core::RunId) -> Vec<u8> {
    let read = format!("SELECT body FROM lobster_{table} WHERE run = ? LIMIT 1");
    let row = sqlx::query(sqlx::AssertSqlSafe(read)).bind(run.bytes().to_vec()).fetch_one(&mut connection(place).await).await;
    row.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_an_input_or_a_delta_holds_its_run_and_touches_nothing() {
    for (table, record) in [("inputs", "input"), ("deltas", "delta")] {
        for at in [0, 1, 7, 1_000_003] {
            let place = Place::sqlite();
            let world = format!("damage {table} {at} {}", place.url());
            let lobster = place.open().task(sleeper).task(quick).start().await.unwrap();
            let run = lobster.submit(sleeper, world.clone()).await.unwrap();
            until(&world, "later", 1).await;
            // It leaves memory, to come back in an hour.
            eventually(&tiers(&place).await, async || (run.state().await.unwrap() == RunState::Ready).then_some(())).await;
            lobster.shutdown(Duration::from_secs(5)).await;
            let damaged = flip(&place, table, run.id(), at).await;
            let wakes = "UPDATE lobster_runs SET due = 0 WHERE id = ?";
            sqlx::query(wakes).bind(run.id().bytes().to_vec()).execute(&mut connection(&place).await).await.unwrap();

            let lobster = place.open().task(sleeper).task(quick).start().await.unwrap();
            let reason = held(&place, &lobster, run.id()).await;
            assert!(reason.contains(record) && reason.contains(&run.id().to_string()) && reason.contains("seq"), "{reason}");
            assert_eq!(lobster.submit(quick, 5).await.unwrap().outcome().await.unwrap(), 5);
            assert_eq!(happened(&world, "later"), 1, "no body ran");
            assert_eq!(stored(&place, table, run.id()).await, damaged, "the data is untouched");
            if table == "deltas" {
                assert_eq!(lobster.show(run.id()).await.unwrap_err().kind(), ErrorKind::Corrupt);
            }
            lobster.shutdown(Duration::from_secs(5)).await;
        }
    }
}

#[derive(State, Default)]
struct Notes {
    count: Field<u64>,
    words: Log<String>,
}

#[step(durable)]
async fn note(_ctx: &StepCtx, #[state] notes: &mut Notes, n: u64) -> Result<u64> {
    notes.count += n;
    notes.words.push(format!("word {n}"));
    Ok(n)
}

#[task]
async fn noting(ctx: Ctx, world: String) -> Result<u64> {
    note(&ctx, 1).await?;
    note(&ctx, 2).await?;
    gate(&ctx, &world).await?;
    note(&ctx, 3).await?;
    Ok(later(&ctx, world).await?)
}

#[step]
async fn gate(_ctx: &StepCtx, world: &str) -> Result<()> {
    happen(world, "at the gate");
    until(world, "open", 1).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_a_record_of_state_holds_its_run_and_touches_nothing() {
    for (table, record) in [("changes", "change"), ("manifests", "manifest"), ("parts", "part")] {
        for at in [0, 3, 1_000_003] {
            let place = Place::sqlite();
            let world = format!("damage {table} {at} {}", place.url());
            let lobster = place.open().task(noting).task(quick).start().await.unwrap();
            let run = lobster.submit(noting, world.clone()).await.unwrap();
            until(&world, "at the gate", 1).await;
            // A snapshot, and a change that comes after it.
            assert!(lobster.fold(run.id()).await.unwrap());
            happen(&world, "open");
            eventually(&tiers(&place).await, async || (run.state().await.unwrap() == RunState::Ready).then_some(())).await;
            lobster.shutdown(Duration::from_secs(5)).await;
            let damaged = flip(&place, table, run.id(), at).await;
            let wakes = "UPDATE lobster_runs SET due = 0 WHERE id = ?";
            sqlx::query(wakes).bind(run.id().bytes().to_vec()).execute(&mut connection(&place).await).await.unwrap();

            let lobster = place.open().task(noting).task(quick).start().await.unwrap();
            let reason = held(&place, &lobster, run.id()).await;
            assert!(reason.contains(record) && reason.contains(&run.id().to_string()) && reason.contains("seq"), "{reason}");
            assert_eq!(lobster.submit(quick, 5).await.unwrap().outcome().await.unwrap(), 5);
            assert_eq!(happened(&world, "later"), 1, "no body ran");
            assert_eq!(stored(&place, table, run.id()).await, damaged, "the data is untouched");
            let state = lobster.state::<Notes>(run.id(), Notes::NAME).await.map(|_| ()).unwrap_err();
            assert_eq!(state.kind(), ErrorKind::Corrupt);
            lobster.shutdown(Duration::from_secs(5)).await;
        }
    }
}

#[step(irreversible, in_doubt = hold, max_duration = 100ms)]
async fn doubtful(_ctx: &StepCtx) -> Result<u64> {
    Err("nobody knows".into())
}

#[task]
async fn doubting(ctx: Ctx, _world: String) -> Result<u64> {
    Ok(doubtful(&ctx).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_a_verdict_holds_its_run_and_touches_nothing() {
    let place = Place::sqlite();
    let lobster = place.open().task(doubting).start().await.unwrap();
    let run = lobster.submit(doubting, String::new()).await.unwrap();
    held(&place, &lobster, run.id()).await;
    lobster.shutdown(Duration::from_secs(5)).await;
    let client = Lobster::open(place.url()).settings(Settings::test()).connect().await.unwrap();
    let step = client.show(run.id()).await.unwrap().steps[0].id;
    client.resolve(run.id(), step, Fate::Happened(7)).await.unwrap();
    let damaged = flip(&place, "verdicts_in", run.id(), 5).await;
    let lobster = place.open().task(doubting).start().await.unwrap();
    let reason = held(&place, &lobster, run.id()).await;
    assert!(reason.contains("verdict") && reason.contains(&run.id().to_string()), "{reason}");
    assert_eq!(stored(&place, "verdicts_in", run.id()).await, damaged, "the data is untouched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_an_outcome_is_told_to_whoever_asks() {
    let place = Place::sqlite();
    let lobster = place.open().task(quick).start().await.unwrap();
    let run = lobster.submit(quick, 5).await.unwrap();
    run.outcome().await.unwrap();
    lobster.shutdown(Duration::from_secs(5)).await;
    flip(&place, "outcomes", run.id(), 2).await;
    let client = Lobster::open(place.url()).settings(Settings::test()).connect().await.unwrap();
    let Err(RunFailed::Unreadable(error)) = client.run(quick, run.id()).outcome().await else { panic!("it cannot be read") };
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("outcome") && error.to_string().contains(&run.id().to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_a_newer_version_is_refused_and_left_untouched() {
    let place = Place::sqlite();
    place.open().start().await.unwrap().shutdown(Duration::from_secs(5)).await;
    let mut db = connection(&place).await;
    let columns = sqlx::query("SELECT name FROM pragma_table_info('lobster_meta')").fetch_all(&mut db).await.unwrap();
    let columns: Vec<String> = columns.iter().map(|row| row.get(0)).collect();
    let version = if columns.iter().any(|column| column == "version") { "version" } else { "value" };
    let raise = format!("UPDATE lobster_meta SET {version} = 999");
    sqlx::query(sqlx::AssertSqlSafe(raise)).execute(&mut db).await.unwrap();
    db.close().await.unwrap();
    for error in [place.open().start().await.unwrap_err(), place.open().connect().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::NewerVersion);
        assert!(error.to_string().contains("999"), "{error}");
    }
}

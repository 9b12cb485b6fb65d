//! W12: one step, repeated, that is driven by its state.
//!
//! Invariant: the window opens at the first round's call and closes when the finish is acknowledged.

use super::{Stage, Taken};
use crate::{Result, site::Place, work};
use lobster_core::{Ctx, Field, Flow, Lobster, State, StepCtx, step, task};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{path::Path, time::Duration};

/// What is told of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Rounds per second.
    Rate,
    /// Rows that are stored of it at the end.
    Rows,
}

const ROUNDS: u32 = 1_000_000;

#[derive(State, Default)]
struct Count {
    done: Field<u32>,
}

#[step]
async fn count(_ctx: &StepCtx, #[state] count: &mut Count, to: u32) -> lobster_core::Result<Flow<u32>> {
    if *count.done == to {
        return Ok(Flow::Done(to));
    }
    count.done += 1;
    Ok(Flow::Again)
}

#[task]
async fn counting(ctx: Ctx, to: u32) -> lobster_core::Result<u32> {
    work::begin();
    Ok(ctx.repeat(|ctx| count(ctx, to)).await?)
}

/// Rounds per second, or stored rows; `None`: the store has none that can be counted.
pub async fn round(stage: &Stage<'_>, told: Told) -> Result<Option<Taken>> {
    let rounds = stage.options.scaled(ROUNDS);
    let place = stage.site.place();
    let (tiers, meter) = place.open().await?;
    let lobster = Lobster::open("").tiers(tiers).task(counting).start().await?;
    work::watch(&meter);
    let run = lobster.submit(counting, rounds).await?;
    let window = meter.ended(1, work::began).await?;
    if run.outcome().await? != rounds {
        return Err("rounds were lost".into());
    }
    lobster.shutdown(Duration::from_secs(5)).await;
    let value = match (told, &place) {
        (Told::Rate, _) => f64::from(rounds) / window.took.as_secs_f64(),
        (Told::Rows, Place::File(path)) => rows(path).await?,
        (Told::Rows, _) => return Ok(None),
    };
    Ok(Some(Taken { value, syncs: window.syncs, beside: None }))
}

/// Rows of deltas, changes, manifests and parts.
async fn rows(path: &Path) -> Result<f64> {
    let mut store = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path)).await?;
    let mut rows = 0;
    for count in [
        "SELECT count(*) FROM lobster_deltas",
        "SELECT count(*) FROM lobster_changes",
        "SELECT count(*) FROM lobster_manifests",
        "SELECT count(*) FROM lobster_parts",
    ] {
        rows += sqlx::query_scalar::<_, i64>(count).fetch_one(&mut store).await?;
    }
    store.close().await?;
    Ok(rows as f64)
}

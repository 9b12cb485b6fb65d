//! The rule: what the macros make of good code behaves as their documentation says, and no lint of the author's sees it.

#![deny(warnings, missing_docs, unreachable_pub, single_use_lifetimes, unused_lifetimes, clippy::pedantic, clippy::nursery)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;

use lobster_core::expand::{InDoubt, Kind, OnExhausted, Retry, StepInfo, Task};
use lobster_core::{Ctx, Fate, Result, StepCtx, register, step, task};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What is bought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Which.
    pub id: u32,
}

/// What it costs.
#[step]
pub async fn quote(ctx: &StepCtx, order: &Order) -> Result<u32> {
    assert!(ctx.attempt() > 0);
    tokio::task::yield_now().await;
    Ok(order.id * 10)
}

#[step(durable, name = "keep.note", retry(attempts = 3, first = 1ms, factor = 3, cap = "2s", jitter = none), timeout = 5s)]
async fn note(_ctx: &StepCtx, text: &str, mut lines: Vec<String>) -> Result<String> {
    lines.push(text.to_owned());
    Ok(lines.join(" "))
}

static CHARGES: Mutex<u32> = Mutex::new(0);

fn count() -> u32 {
    let mut charges = CHARGES.lock().unwrap();
    *charges += 1;
    *charges
}

#[step(irreversible, in_doubt = probe(found), max_duration = 1m, retry(attempts = 2))]
async fn charge(ctx: &StepCtx, price: u32, order: &Order, note: &str, lines: &[Order], by: &'static str) -> Result<String> {
    tokio::task::yield_now().await;
    if note == "lost" {
        return Err("no answer".into());
    }
    Ok(format!("{}:{price}:{}:{note}:{}:{by}", ctx.idempotency_key(), order.id, lines.len()))
}

async fn found(_: &StepCtx, price: &u32, order: &Order, _: &str, lines: &[Order], by: &'static str) -> Result<Fate<String>> {
    tokio::task::yield_now().await;
    let seen = if count() == 1 { Fate::NotSeen } else { Fate::Happened(format!("{price}:{}:{}:{by}", order.id, lines.len())) };
    Ok(seen)
}

#[step(irreversible, in_doubt = retry, on_exhausted = fail)]
async fn ship(_: &StepCtx) -> Result<()> {
    Ok(())
}

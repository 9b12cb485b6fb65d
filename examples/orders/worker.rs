//! The working process: opens lobster, submits the orders, waits for their outcomes. It keeps nothing of its own: killed
//! and started again, it submits the same keys and gets the same runs.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, bail};
use lobster_core::{Client, Handle, Lobster, RunState, Settings};
use lobster_examples::book::{self, Order};
use lobster_examples::ledger;
use lobster_examples::options::Options;
use lobster_examples::working::{self, asked_to_stop};
use tokio::task::JoinSet;

use crate::checkout::{checkout, use_ledger};

/// Runs executing at once.
const AT_ONCE: usize = 64;
/// Connections to the ledger.
const CONNECTIONS: usize = 4;
/// How long the runs may take to come to a safe point.
const DRAIN: Duration = Duration::from_secs(10);
/// How often to look for runs that wait for a person.
const LOOK: Duration = Duration::from_secs(1);
/// Names the least important log lines of the engine to show.
const LOG: &str = "ORDERS_LOG";

/// Works until every order's run has ended, or the supervisor asks to stop by closing the standard input.
///
/// # Errors
/// Lobster cannot be opened, or runs are left that only a person can let go on.
pub async fn work(options: &Options) -> anyhow::Result<()> {
    working::log_if_asked(LOG);
    let stop = asked_to_stop();
    use_ledger(ledger::Client::open(&options.ledger, CONNECTIONS));
    let lobster = Lobster::open(&options.db).task(checkout).settings(settings(options)).start().await?;
    let orders = orders(options)?.into_iter().map(|order| (key(order.id).into(), order));
    let handles = lobster.submit_all(checkout, orders).await.context("submitting the orders")?;
    let ended = tokio::select! {
        ended = all_ended(&lobster, handles) => ended,
        _ = stop => Ok(()),
    };
    lobster.shutdown(DRAIN).await;
    ended
}

/// Prints `succeeded <order>` for every order whose run is recorded as successful; executes nothing.
///
/// # Errors
/// Lobster's records cannot be read.
pub async fn report(options: &Options) -> anyhow::Result<()> {
    let client = Lobster::open(&options.db).connect().await?;
    let succeeded = client.runs().task("checkout").state(RunState::Succeeded);
    for run in succeeded.limit(usize::MAX).list().await? {
        if let Some(order) = run.key.as_deref().and_then(|key| key.strip_prefix("order-")) {
            println!("succeeded {order}");
        }
    }
    Ok(())
}

fn settings(options: &Options) -> Settings {
    let mut settings = if options.chaos > 0 { Settings::test() } else { Settings::default() };
    settings.run.executing = AT_ONCE;
    settings
}

fn orders(options: &Options) -> anyhow::Result<Vec<Order>> {
    Ok(book::all_orders()?.into_iter().take(options.orders).collect())
}

fn key(order: u32) -> String {
    format!("order-{order}")
}

/// Waits for all outcomes, telling the supervisor how many there are.
async fn all_ended(client: &Client, handles: Vec<Handle<checkout>>) -> anyhow::Result<()> {
    let mut outcomes = JoinSet::new();
    for handle in handles {
        outcomes.spawn(async move { handle.outcome().await });
    }
    let mut finished = 0;
    let mut told = BTreeSet::new();
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            outcome = outcomes.join_next() => match outcome {
                None => return Ok(()),
                Some(outcome) => {
                    match outcome.context("waiting for an outcome")? {
                        Ok(_papers) => finished += 1,
                        Err(failed) => eprintln!("{failed}"),
                    }
                    working::finished(finished);
                }
            },
            _ = look.tick() => {
                let held = client.runs().task("checkout").state(RunState::Held).limit(usize::MAX).list().await?;
                for run in held.iter().filter(|run| told.insert(run.id)) {
                    eprintln!("{} is held: {}", run.key.as_deref().unwrap_or("a run"), run.reason);
                }
                if !held.is_empty() && held.len() == outcomes.len() {
                    bail!("{} runs wait for a person", held.len());
                }
            }
        }
    }
}

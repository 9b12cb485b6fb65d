//! The working process: opens lobster, submits the orders, waits for their outcomes. It keeps nothing of its own: killed
//! and started again, it submits the same keys and gets the same runs.

use std::time::Duration;

use anyhow::Context;
use lobster_core::{Lobster, Settings};
use lobster_examples::book::{self, Order};
use lobster_examples::ledger::Client;
use lobster_examples::options::Options;
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;

use crate::checkout::{checkout, use_ledger};

/// Connections to the ledger.
const CONNECTIONS: usize = 4;
/// How long the runs may take to come to a safe point.
const DRAIN: Duration = Duration::from_secs(10);

/// Works until every order's run has ended, or the supervisor asks to stop by closing the standard input.
pub async fn work(options: &Options) -> anyhow::Result<()> {
    use_ledger(Client::open(&options.ledger, CONNECTIONS));
    let settings = if options.chaos > 0 { Settings::test() } else { Settings::default() };
    let lobster = Lobster::open(&options.db).task(checkout).settings(Settings { runs_at_once: 64, ..settings }).start().await?;
    let orders = orders(options)?;
    let handles = lobster.submit_all(checkout, orders.into_iter().map(|order| (key(order.id), order))).await?;

    let mut outcomes = JoinSet::new();
    for handle in handles {
        outcomes.spawn(async move { handle.outcome().await });
    }
    let all_ended = async {
        let mut finished = 0;
        while let Some(outcome) = outcomes.join_next().await {
            match outcome.context("waiting for an outcome")? {
                Ok(_papers) => finished += 1,
                Err(failed) => eprintln!("{failed}"),
            }
            println!("finished {finished}");
        }
        anyhow::Ok(())
    };
    tokio::select! {
        ended = all_ended => ended?,
        () = asked_to_stop() => {}
    }
    lobster.shutdown(DRAIN).await;
    Ok(())
}

/// Prints `succeeded <order>` for every order whose run is recorded as successful; executes nothing.
pub async fn report(options: &Options) -> anyhow::Result<()> {
    let client = Lobster::open(&options.db).connect().await?;
    for run in client.runs().task("checkout").list().await? {
        let order = run.key().and_then(|key| key.strip_prefix("order-"));
        if let (true, Some(order)) = (run.succeeded(), order) {
            println!("succeeded {order}");
        }
    }
    Ok(())
}

fn orders(options: &Options) -> anyhow::Result<Vec<Order>> {
    Ok(book::all_orders()?.into_iter().take(options.orders).collect())
}

fn key(order: u32) -> String {
    format!("order-{order}")
}

async fn asked_to_stop() {
    let _ended = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
}

//! The working process: takes orders as a shop does, and executes what follows from them. Killed and started again, it takes those that
//! are not written down; of the others it knows that their runs are there too.

use std::time::Duration;

use anyhow::bail;
use lobster_core::{Client, Lobster, RunState, Settings};
use lobster_examples::database::Database;
use lobster_examples::transfers::bank::Bank;
use lobster_examples::transfers::options::Options;
use lobster_examples::working;

use crate::tasks::{live_at_server, receipt, sale, transfer};

/// How long the runs may take to come to a safe point.
const DRAIN: Duration = Duration::from_secs(10);
/// How often to look how far it is.
const LOOK: Duration = Duration::from_millis(20);
/// Names the least important log lines of the engine to show.
const LOG: &str = "TRANSFERS_LOG";

/// Works until every order has its receipt, or the supervisor asks to stop by closing the standard input. Orders after `hold` are not
/// taken: a kill is due before.
///
/// # Errors
/// Lobster or the bank cannot be opened, or a run has failed or waits for a person.
pub async fn work(options: &Options, hold: Option<u64>) -> anyhow::Result<()> {
    working::log_if_asked(LOG);
    let stop = working::asked_to_stop();
    live_at_server(matches!(Database::of(&options.db)?, Database::Server(_)));
    let settings = if options.chaos > 0 { Settings::test() } else { Settings::default() };
    let builder = Lobster::open(&options.db).task(sale).task(transfer).task(receipt);
    let lobster = builder.settings(settings).start().await?;
    let orders = Bank::open(&options.db).await?.missing(options.transfers.min(hold.unwrap_or(u64::MAX))).await?;
    let work = async { tokio::try_join!(take(&lobster, &options.db, orders), all_done(&lobster, options)).map(drop) };
    let ended = tokio::select! {
        ended = work => ended,
        _ = stop => Ok(()),
    };
    lobster.shutdown(DRAIN).await;
    ended
}

/// Takes orders. At a server each is a transaction of the shop's own: its row, and the run that executes it. In a file only a step of a run
/// writes in such a transaction, so that is what takes an order there.
async fn take(client: &Client, db: &str, orders: Vec<i64>) -> anyhow::Result<()> {
    match Bank::open(db).await? {
        Bank::File(_) => {
            let sales = orders.into_iter().map(|number| (format!("sale-{number}").into(), number));
            client.submit_all(sale, sales).await?;
        }
        #[cfg(feature = "postgres")]
        Bank::Server(mut connection) => {
            use lobster_examples::transfers::bank::ADD_ORDER;
            use sqlx::Connection;
            for number in orders {
                let mut tx = connection.begin().await?;
                // Not prepared under a name, as in the steps.
                sqlx::query(ADD_ORDER).bind(number).persistent(false).execute(&mut *tx).await?;
                client.submit_in(&mut tx, transfer, number).key(crate::tasks::transfer_key(number)).await?;
                tx.commit().await?;
                client.nudge();
            }
        }
    }
    Ok(())
}

/// Completes when all receipts are there and every run has ended; tells the supervisor how many there are.
async fn all_done(client: &Client, options: &Options) -> anyhow::Result<()> {
    let mut bank = Bank::open(&options.db).await?;
    let mut look = tokio::time::interval(LOOK);
    loop {
        look.tick().await;
        let receipts = bank.receipts().await?;
        working::finished(receipts);
        let stuck = client.runs().state(RunState::Held).state(RunState::Failed).state(RunState::Quarantined);
        if let Some(run) = stuck.limit(1).list().await?.first() {
            bail!("{} has not come to its end: {:?} {}", run.key.as_deref().unwrap_or("a run"), run.state, run.reason);
        }
        let open = client.runs().state(RunState::Ready).state(RunState::Running);
        if receipts >= options.transfers && open.count().await? == 0 {
            return Ok(());
        }
    }
}

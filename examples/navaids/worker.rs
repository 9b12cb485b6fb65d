//! The working process: opens lobster, submits the import, waits for its outcome. Killed and started again, it submits the same key
//! and gets the same run.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use lobster_core::store::{Tiers, sqlite::Sqlite};
use lobster_core::{Handle, Lobster, OsHost, RunState};
use lobster_examples::database::Database;
use lobster_examples::navaids::options::Options;
use lobster_examples::navaids::rows;
use lobster_examples::navaids::tally::{Counts, Tally};
use lobster_examples::working;

use crate::door::Door;
use crate::import::{Source, World, import, live_in};

/// How long the run may take to come to a safe point.
const DRAIN: Duration = Duration::from_secs(10);
/// How often to look whether the run waits for a person.
const LOOK: Duration = Duration::from_secs(1);
/// Names the least important log lines of the engine to show.
const LOG: &str = "NAVAIDS_LOG";

/// Works until the import has ended, or the supervisor asks to stop by closing the standard input.
///
/// # Errors
/// Lobster cannot be opened, or the import has failed or waits for a person.
pub async fn work(options: &Options, hold: Option<u64>) -> anyhow::Result<()> {
    working::log_if_asked(LOG);
    let stop = working::asked_to_stop();
    let key = Counts::read(&options.tally)?.context("the supervisor names the import in the tally")?.import;
    let tally = Arc::new(Tally::open(&options.tally)?);
    let rows = rows::all_rows()?;
    let source = Source { file: rows::FILE.to_owned(), rows: rows.len() };
    live_in(World { rows, tally: tally.clone(), hold });

    let host = Arc::new(OsHost::current().context("a store is opened inside of a runtime")?);
    let tiers = stores(&options.db, host).await?;
    let lobster = Lobster::open(&options.db).tiers(Door::before(tiers, tally)).task(import).start().await?;
    let run = lobster.submit(import, source).key(key).await.context("submitting the import")?;
    let ended = tokio::select! {
        outcome = run.outcome() => outcome.map(|_rows| ()).map_err(Into::into),
        held = held(&lobster, &run) => held,
        _ = stop => Ok(()),
    };
    lobster.shutdown(DRAIN).await;
    ended
}

/// The stores that a URL names, to put something before them.
async fn stores(db: &str, host: Arc<OsHost>) -> anyhow::Result<Tiers> {
    match Database::of(db)? {
        Database::File(path) => Ok(Tiers::of(Sqlite::open(path, host).await?, db)),
        #[cfg(feature = "postgres")]
        Database::Server(words) => {
            use lobster_core::store::postgres::{Options, Postgres};
            Ok(Tiers::of(Postgres::open(Options::from_url(db)?, host).await?, words))
        }
        #[cfg(not(feature = "postgres"))]
        Database::Server(_) => bail!("this build knows no servers: `cargo run --features postgres ..`"),
    }
}

/// Completes, with the reason, when the run waits for a person.
async fn held(lobster: &Lobster, run: &Handle<import>) -> anyhow::Result<()> {
    let mut look = tokio::time::interval(LOOK);
    loop {
        look.tick().await;
        if run.state().await? == RunState::Held {
            match lobster.why_not_running(run.id()).await? {
                Some(reason) => bail!("the import is held: {reason}"),
                None => continue,
            }
        }
    }
}

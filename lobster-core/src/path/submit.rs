//! Submit: a task, a key and an input become a run, once, whoever asks and however often.
//!
//! Invariant: what is acknowledged is synced, and an unknown outcome is asked for again under the same id.

use crate::{
    engine::Stores,
    error::{Error, ErrorKind},
};
use lobster_store::contract::{Business, Failed, NewRun, RunId, Submitted};
use std::time::Duration;

/// Offers runs in one transaction and waits until what became of each is known.
pub(crate) async fn submit(stores: &Stores, runs: Vec<NewRun>) -> Result<Vec<Result<RunId, Error>>, Error> {
    let offered: Vec<(RunId, Option<String>)> = runs.iter().map(|run| (run.id, run.key.clone())).collect();
    let mut tries = 0;
    let answers = loop {
        stores.point("submit sent");
        match stores.tiers.journal.submit(runs.clone()).await {
            // The same ids again: whatever was inserted the first time is found.
            Err(Failed::Unknown(why)) if tries < 8 => {
                tries += 1;
                tracing::warn!(%why, "a submit was not acknowledged; offered again");
                stores.host.sleep(Duration::from_millis(10) * (1 << tries)).await;
            }
            answers => break answers?,
        }
    };
    if answers.len() != offered.len() {
        return Err(Error::new(ErrorKind::Internal, "the store answered another number of submits"));
    }
    Ok(offered.into_iter().zip(answers).map(|((id, key), answer)| found(id, key, answer)).collect())
}

/// Offers a run inside of a transaction of the caller's, once: whatever goes wrong is the transaction's trouble, and undone with it.
pub(crate) async fn submit_in(stores: &Stores, transaction: &mut Business, run: NewRun) -> Result<RunId, Error> {
    let (id, key) = (run.id, run.key.clone());
    let answer = stores.tiers.journal.submit_in(transaction, run).await?;
    found(id, key, answer)
}

/// The run that a submit has made or found.
fn found(id: RunId, key: Option<String>, answer: Submitted) -> Result<RunId, Error> {
    match answer {
        Submitted::Created => Ok(id),
        Submitted::Existing { id, same: true } => Ok(id),
        Submitted::Existing { id, same: false } => {
            let key = key.unwrap_or_default();
            Err(Error::new(ErrorKind::Conflict, format!("key `{key}` names run {id}, which has another task or input")))
        }
    }
}

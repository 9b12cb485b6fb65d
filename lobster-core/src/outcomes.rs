//! Waiting for outcomes: one reader per process, however many wait.
//!
//! Invariant: an outcome handed out is synced; what this process ended itself is told without a read.

use crate::{engine::Stores, error::Error};
use lobster_store::contract::{Ended, RunId};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// What is known of a run that somebody waits for.
type Word = Option<Result<Option<Ended>, Error>>;

/// Runs that somebody waits for.
#[derive(Default)]
pub(crate) struct Outcomes {
    waiting: Arc<Mutex<Waiting>>,
    bell: Arc<Notify>,
}

#[derive(Default)]
struct Waiting {
    runs: BTreeMap<RunId, watch::Sender<Word>>,
    reading: bool,
}

/// Runs asked for in one read.
const ASKED: usize = 500;

impl Outcomes {
    /// Waits until the run has ended; `None`: there is no such run.
    pub async fn of(&self, stores: &Stores, run: RunId) -> Result<Option<Ended>, Error> {
        let mut word = {
            let mut waiting = self.waiting.lock().expect("no code that can panic runs under this lock");
            let word = waiting.runs.entry(run).or_insert_with(|| watch::channel(None).0).subscribe();
            if !std::mem::replace(&mut waiting.reading, true) {
                stores.host.spawn(Box::pin(read(stores.clone(), self.waiting.clone(), self.bell.clone())));
            }
            word
        };
        self.bell.notify_one();
        let word = word.wait_for(Option::is_some).await.map(|word| word.clone());
        word.ok()
            .flatten()
            .unwrap_or_else(|| Err(Error::new(crate::ErrorKind::Unavailable, "the runtime that served this client is gone")))
    }

    /// A run ended in this process.
    pub fn tell(&self, run: RunId, ended: &Ended) {
        let mut waiting = self.waiting.lock().expect("no code that can panic runs under this lock");
        if let Some(sender) = waiting.runs.remove(&run) {
            sender.send_replace(Some(Ok(Some(ended.clone()))));
        }
    }
}

/// Reads until nobody waits: at hints, when somebody new waits, and now and then.
async fn read(stores: Stores, waiting: Arc<Mutex<Waiting>>, bell: Arc<Notify>) {
    let mut hints = stores.tiers.wake.hints();
    let mut pause = Duration::from_millis(5);
    loop {
        let asked: Vec<RunId> = {
            let mut waiting = waiting.lock().expect("no code that can panic runs under this lock");
            waiting.runs.retain(|_, sender| sender.receiver_count() > 0);
            waiting.reading = !waiting.runs.is_empty();
            if !waiting.reading {
                return;
            }
            waiting.runs.keys().copied().collect()
        };
        let mut ended = 0;
        for some in asked.chunks(ASKED) {
            match stores.tiers.catalog.outcomes(some).await {
                Ok(words) => {
                    let mut waiting = waiting.lock().expect("no code that can panic runs under this lock");
                    for (run, word) in some.iter().zip(words) {
                        let word = match word {
                            Some(None) => continue,
                            Some(Some(ended)) => Some(Ok(Some(ended))),
                            None => Some(Ok(None)),
                        };
                        ended += 1;
                        if let Some(sender) = waiting.runs.remove(run) {
                            sender.send_replace(word);
                        }
                    }
                }
                Err(error) if error.is_transient() => {
                    tracing::warn!(%error, "outcomes could not be read; tried again");
                    break;
                }
                Err(error) => {
                    let mut waiting = waiting.lock().expect("no code that can panic runs under this lock");
                    for run in some {
                        if let Some(sender) = waiting.runs.remove(run) {
                            sender.send_replace(Some(Err(error.clone().into())));
                        }
                    }
                }
            }
        }
        pause = if ended > 0 { Duration::from_millis(5) } else { (pause * 2).min(stores.settings.run.poll) };
        if ended == asked.len() {
            // Whoever waits by now has come meanwhile.
            continue;
        }
        // Hints are many when runs are many: between two reads there is at least a moment, in which more of them end.
        stores.host.sleep(Duration::from_millis(2)).await;
        tokio::select! {
            biased;
            () = bell.notified() => {}
            seen = stores.tiers.wake.hinted(hints) => hints = seen,
            () = stores.host.sleep(pause) => {}
        }
    }
}

//! Business transactions of the memory tier: named numbers, so that engines can be tested with them.
//!
//! Invariant: what a transaction has set and submitted is kept if and only if its row is recorded.

use super::{Memory, state::State};
use crate::contract::{Business, Failed, Hold, NewRun, Offer, Result, Submitted, Transacted, Tx, Work, decide_hold};
use crate::planted;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long a transaction may take, unless its author says otherwise.
pub(super) const MOST: Duration = Duration::from_secs(10);

/// A transaction over the numbers of a memory store.
///
/// ```
/// use lobster_store::memory::MemoryTx;
/// fn deposit(tx: &mut MemoryTx, account: &str, cents: i64) {
///     let before = tx.get(account);
///     tx.set(account, before + cents);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryTx {
    numbers: BTreeMap<String, i64>,
    /// Runs that were submitted in it.
    runs: Vec<NewRun>,
    /// Of the store.
    identity: Arc<()>,
}

impl Tx for MemoryTx {
    fn business(&mut self) -> &mut Business {
        self
    }
}

impl MemoryTx {
    /// The number of this name; 0 if nobody has set it.
    pub fn get(&self, name: &str) -> i64 {
        self.numbers.get(name).copied().unwrap_or(0)
    }

    /// Sets it.
    pub fn set(&mut self, name: &str, number: i64) {
        self.numbers.insert(name.to_owned(), number);
    }
}

impl Memory {
    /// The number of this name, as the last committed transaction left it.
    pub fn number(&self, name: &str) -> i64 {
        self.with(|state| state.numbers.get(name).copied().unwrap_or(0))
    }

    /// One at a time. The run's row is not locked meanwhile: it is looked at again before the commit, which comes to the same.
    pub(super) async fn transact_run(&self, hold: Hold, work: Work) -> Result<Transacted> {
        let _turn = self.business.lock().await;
        let begun = self.with(|state| state.may(&hold).map(|()| state.numbers.clone()));
        let mut tx = match begun {
            Ok(numbers) => MemoryTx { numbers, runs: Vec::new(), identity: self.identity.clone() },
            Err(seen) => return Ok(Transacted::Seen(seen)),
        };
        let Some(row) = work(&mut tx).await else {
            if planted!("undone_is_kept") {
                self.with(|state| state.numbers = tx.numbers);
            }
            return Ok(Transacted::Undone);
        };
        let now = self.clock.wall();
        Ok(self.with(|state| {
            if let Err(seen) = state.may(&hold) {
                return Transacted::Seen(seen);
            }
            if tx.runs.iter().any(|run| state.known(run).is_some()) {
                return Transacted::Failed("a key of a run that was submitted in it was taken meanwhile".to_owned());
            }
            for run in tx.runs {
                state.submit(run, now);
            }
            let (run, epoch, head) = (hold.run, hold.epoch, hold.head);
            let offer = Offer { run, epoch, head, rows: vec![row], progress: true, then: None };
            state.numbers = tx.numbers;
            state.apply(hold.incarnation, true, offer);
            state.sync();
            Transacted::Done
        }))
    }

    pub(super) fn submit_run_in(&self, transaction: &mut Business, new: NewRun) -> Result<Submitted> {
        let mine = transaction.downcast_mut::<MemoryTx>().filter(|tx| Arc::ptr_eq(&tx.identity, &self.identity));
        let tx = mine.ok_or_else(|| Failed::Refused("this is no transaction of this store".to_owned()))?;
        let in_the_way = tx.runs.iter().find(|run| run.id == new.id || (run.key.is_some() && run.key == new.key));
        let known = match in_the_way {
            Some(run) => {
                Some(Submitted::Existing { id: run.id, same: run.task.task == new.task.task && run.digest == new.digest })
            }
            None => self.with(|state| state.known(&new)),
        };
        Ok(known.unwrap_or_else(|| {
            tx.runs.push(new);
            Submitted::Created
        }))
    }
}

impl State {
    fn may(&self, hold: &Hold) -> std::result::Result<(), crate::contract::Seen> {
        if planted!("hold_not_compared") {
            return Ok(());
        }
        decide_hold(self.run(hold.run).map(|run| &run.hot.fence), hold)
    }
}

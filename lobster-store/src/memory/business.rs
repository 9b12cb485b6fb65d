//! Business transactions of the memory tier: named numbers, so that engines can be tested with them.
//!
//! Invariant: what a transaction has set is kept if and only if its row is recorded.

use super::{Memory, state::State};
use crate::contract::{Hold, Offer, Result, Transacted, Work, decide_hold};
use crate::planted;
use std::{collections::BTreeMap, time::Duration};

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
            Ok(numbers) => MemoryTx { numbers },
            Err(seen) => return Ok(Transacted::Seen(seen)),
        };
        let Some(row) = work(&mut tx).await else {
            if planted!("undone_is_kept") {
                self.with(|state| state.numbers = tx.numbers);
            }
            return Ok(Transacted::Undone);
        };
        Ok(self.with(|state| {
            if let Err(seen) = state.may(&hold) {
                return Transacted::Seen(seen);
            }
            let (run, epoch, head) = (hold.run, hold.epoch, hold.head);
            let offer = Offer { run, epoch, head, rows: vec![row], progress: true, then: None };
            state.numbers = tx.numbers;
            state.apply(hold.incarnation, true, offer);
            state.sync();
            Transacted::Done
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

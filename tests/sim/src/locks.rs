//! Rows of runs that somebody has locked: an open transaction, or a person with a statement of their own.
//!
//! Invariant: a lock ends by itself, whatever becomes of whoever asked for it.

use crate::world::{World, sleep};
use lobster_core::RunId;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::sync::Notify;

/// Which rows are locked.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    rows: Mutex<BTreeSet<RunId>>,
    freed: Notify,
}

impl Locks {
    fn rows(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        self.rows.lock().expect("nothing panics under this lock")
    }
    pub fn is_held(&self, run: RunId) -> bool {
        self.rows().contains(&run)
    }
    /// Waits until nobody has the row locked, or for so long.
    pub async fn wait(&self, run: RunId, patience: Duration) {
        let freed = async {
            loop {
                // Made before the look: what is freed between the two is not missed.
                let freed = self.freed.notified();
                if !self.is_held(run) {
                    return;
                }
                freed.await;
            }
        };
        tokio::select! {
            biased;
            () = freed => {}
            () = sleep(patience) => {}
        }
    }
}

/// A locked row.
pub(crate) struct Lock {
    world: Arc<World>,
    run: RunId,
}

impl World {
    /// Locks a run's row, unless somebody else has.
    pub fn lock_row(self: &Arc<Self>, run: RunId) -> Option<Lock> {
        self.locks.rows().insert(run).then(|| Lock { world: self.clone(), run })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.world.locks.rows().remove(&self.run);
        self.world.locks.freed.notify_waiters();
    }
}

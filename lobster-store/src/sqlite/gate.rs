//! The gate: processes that share a file take turns here before they write.
//!
//! Invariant: whoever holds SQLite's writer lock holds the gate, so nobody sleeps in SQLite's busy handler and starves.

use crate::{
    contract::{Failed, Result},
    local,
};
use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use tokio::sync::oneshot;

/// How long a turn is waited for. Somebody who holds the gate longer is frozen inside a transaction.
const PATIENCE: Duration = Duration::from_secs(10);

/// One process's hand on the gate.
pub(super) struct Gate {
    path: PathBuf,
    patience: Duration,
    file: Arc<File>,
    /// Asks the thread that waits; started when the gate is first found closed.
    waiter: Option<mpsc::Sender<oneshot::Sender<io::Result<Turn>>>>,
}

/// A turn: the gate is held until this is dropped.
pub(super) struct Turn {
    file: Arc<File>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // It can only fail if the descriptor is no longer open, and then the lock is gone too.
        self.file.unlock().ok();
    }
}

impl Gate {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = Arc::new(open(path).map_err(|error| local::of_io(path, &error))?);
        Ok(Self { path: path.to_owned(), patience: PATIENCE, file, waiter: None })
    }

    /// Waits for a turn.
    #[allow(clippy::disallowed_methods, reason = "patience with another process, on the real clock")]
    pub(super) async fn enter(&mut self) -> Result<Turn> {
        match self.file.try_lock() {
            Ok(()) => return Ok(Turn { file: self.file.clone() }),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(local::of_io(&self.path, &error)),
        }
        let waiting = self.ask().map_err(|error| local::of_io(&self.path, &error))?;
        let path = self.path.display();
        match tokio::time::timeout(self.patience, waiting).await {
            Ok(Ok(turn)) => turn.map_err(|error| local::of_io(&self.path, &error)),
            Ok(Err(_)) => Err(Failed::Unavailable(format!("{path}: the thread that waits for a turn is gone"))),
            Err(_) => Err(Failed::Unavailable(format!("{path}: another process has been writing for {:?}", self.patience))),
        }
    }

    /// Lets a thread wait. Not one of the runtime's: a runtime could not shut down while it waits.
    #[allow(clippy::disallowed_methods, reason = "a lock of the system can only be waited for on a thread")]
    fn ask(&mut self) -> io::Result<oneshot::Receiver<io::Result<Turn>>> {
        let waiter = match &self.waiter {
            Some(waiter) => waiter,
            None => {
                let (ask, asked) = mpsc::channel::<oneshot::Sender<io::Result<Turn>>>();
                // A file of its own: a wait that outlasted its caller's patience must not touch the lock of a later turn.
                let file = Arc::new(open(&self.path)?);
                let wait = move || {
                    for answer in asked {
                        // If nobody waits any more, dropping the turn gives it back.
                        answer.send(file.lock().map(|()| Turn { file: file.clone() })).ok();
                    }
                };
                thread::Builder::new().name("lobster-gate".to_owned()).spawn(wait)?;
                self.waiter.insert(ask)
            }
        };
        let (answer, waiting) = oneshot::channel();
        // If the thread is gone, so is the sender, and the receiver says it.
        waiter.send(answer).ok();
        Ok(waiting)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    //! A turn belongs to one; a wait that was given up takes nothing and keeps nothing.

    use super::*;

    #[tokio::test]
    async fn a_wait_that_was_given_up_leaves_the_gate_open() {
        let path = std::env::temp_dir().join(format!("lobster-gate-{}", std::process::id()));
        let (mut one, mut other) = (Gate::open(&path).expect("a file can be made"), Gate::open(&path).expect("it is there"));
        other.patience = Duration::from_millis(30);
        let turn = one.enter().await.expect("nobody is in");
        for _ in 0..3 {
            assert!(matches!(other.enter().await, Err(Failed::Unavailable(_))));
        }
        drop(turn);
        // The thread that waited gets the turns it was asked for and gives them back.
        other.patience = PATIENCE;
        for _ in 0..20 {
            drop(other.enter().await.expect("it is free"));
            let turn = one.enter().await.expect("it is free");
            // While it is held, nobody else enters, whatever old waits are answered meanwhile.
            assert!(matches!(open(&path).expect("it is there").try_lock(), Err(TryLockError::WouldBlock)));
            drop(turn);
        }
        std::fs::remove_file(&path).ok();
    }
}

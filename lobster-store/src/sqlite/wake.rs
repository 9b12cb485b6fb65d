//! Hints between the processes of a file.
//!
//! Invariant: a hint is a value in a file that differs from the one before; missing one costs a poll and no more.

use super::Sqlite;
use crate::{
    contract::{Boot, Result, Wake},
    local,
};
use async_trait::async_trait;
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::sync::watch;
use uuid::Uuid;

/// How often the file is looked at while somebody waits.
const LOOK: Duration = Duration::from_millis(20);

/// The hints of one open store.
pub(super) struct Hints {
    file: File,
    /// Last value seen in the file, or written to it.
    seen: AtomicU64,
    /// What the next own hint is: in its upper half it differs from every other store's.
    next: AtomicU64,
    count: watch::Sender<u64>,
}

impl Hints {
    pub(super) fn open(path: &Path, now: Boot) -> Result<Self> {
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = open.map_err(|error| local::of_io(path, &error))?;
        static STORES: AtomicU64 = AtomicU64::new(0);
        let store = STORES.fetch_add(1, Ordering::Relaxed);
        let who = format!("{} {store} {}", std::process::id(), now.nanos());
        let (high, _) = Uuid::new_v5(&Uuid::NAMESPACE_OID, who.as_bytes()).as_u64_pair();
        let hints = Self { file, seen: AtomicU64::new(0), next: AtomicU64::new(high << 32), count: watch::Sender::new(0) };
        hints.seen.store(hints.stored(), Ordering::Relaxed);
        Ok(hints)
    }

    fn stored(&self) -> u64 {
        let mut bytes = [0; 8];
        match self.file.read_exact_at(&mut bytes, 0) {
            Ok(()) => u64::from_le_bytes(bytes),
            Err(_) => 0,
        }
    }

    fn give(&self) {
        let value = self.next.fetch_add(1, Ordering::Relaxed);
        self.look();
        self.seen.store(value, Ordering::Relaxed);
        self.file.write_all_at(&value.to_le_bytes(), 0).ok();
        self.count.send_modify(|count| *count += 1);
    }

    /// Counts a hint of another store.
    fn look(&self) {
        let stored = self.stored();
        let own = stored >> 32 == self.next.load(Ordering::Relaxed) >> 32;
        if self.seen.swap(stored, Ordering::Relaxed) != stored && !own {
            self.count.send_modify(|count| *count += 1);
        }
    }
}

#[async_trait]
impl Wake for Sqlite {
    fn hint(&self) {
        self.hints.give();
    }

    fn hints(&self) -> u64 {
        self.hints.look();
        *self.hints.count.borrow()
    }

    #[allow(clippy::disallowed_methods, reason = "other processes are looked at on the real clock")]
    async fn hinted(&self, seen: u64) -> u64 {
        let mut count = self.hints.count.subscribe();
        loop {
            self.hints.look();
            let now = *count.borrow_and_update();
            if now != seen {
                return now;
            }
            // A hint of another process can only be seen by looking.
            tokio::time::timeout(LOOK, count.changed()).await.ok();
        }
    }

    fn stride(&self) -> u32 {
        1
    }
}

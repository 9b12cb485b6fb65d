//! Where data files lie: on the disk that the build uses, never in memory.
//!
//! Invariant: everything made here is gone when the process ends by itself.

use crate::{
    Result,
    meter::Meter,
    options::{Options, Store},
};
use lobster_core::{
    OsHost,
    store::{Tiers, memory::Memory, sqlite::Sqlite},
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// A directory of this process beside the build's results.
#[derive(Debug)]
pub struct Site {
    dir: PathBuf,
    store: Store,
    made: AtomicU32,
}

impl Site {
    /// Makes the directory.
    pub fn make(options: &Options) -> Result<Self> {
        let program = std::env::current_exe()?;
        let target = program.parent().and_then(Path::parent).ok_or("the program lies in no directory")?;
        let dir = target.join("benches").join(std::process::id().to_string());
        fs::create_dir_all(&dir)?;
        Ok(Self { dir, store: options.store, made: AtomicU32::new(0) })
    }

    /// A path that nothing has used.
    pub fn path(&self) -> PathBuf {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.dir.join(format!("{number}.db"))
    }

    /// A fresh store behind a fresh meter.
    pub async fn store(&self) -> Result<(Tiers, Arc<Meter>)> {
        match self.store {
            Store::Sqlite => sqlite(&self.path()).await,
            Store::Memory => {
                let host = Arc::new(OsHost::current().ok_or("a store is opened inside of a runtime")?);
                Ok(Meter::before(Tiers::of(Memory::new(host), "memory")))
            }
        }
    }
}

/// The store in a file, behind a meter.
pub async fn sqlite(path: &Path) -> Result<(Tiers, Arc<Meter>)> {
    let host = Arc::new(OsHost::current().ok_or("a store is opened inside of a runtime")?);
    Ok(Meter::before(Tiers::of(Sqlite::open(path, host).await?, "sqlite")))
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("{}: {error}", self.dir.display());
        }
    }
}

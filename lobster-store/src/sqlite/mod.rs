//! The SQLite tier: one file, any number of processes of one host.
//!
//! Invariant: whatever changes a run is one writing transaction behind the gate, and no future dropped midway leaves one open.
//!
//! Beside the database file lie `<db>.gate`, which processes lock in turn before they write, and the directory `<db>.nodes`
//! with the beats, locks and the hint of the processes that use it. All of them belong to this tier.

mod append;
mod business;
mod catalog;
mod claim;
mod failure;
mod fold;
mod gate;
mod journal;
mod keeper;
mod members;
#[cfg(test)]
mod plans;
mod reader;
mod recording;
mod revoke;
mod schema;
mod sql;
mod submit;
mod sweep;
mod wake;
mod whole;
mod write;
mod writer;

pub use business::SqliteTx;

use crate::{
    contract::{Clock, Failed, Result, Wake},
    local,
};
use std::{
    ffi::OsString,
    fmt, fs, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A store in one SQLite file, shared by the processes of one host.
///
/// Relaxed writes survive the death of the process, synced ones that of the host. Leases are beats in small files beside the
/// database, judged by the host's clock that counts suspend; a flock tells a dead process from a slow one.
///
/// ```no_run
/// use lobster_store::{Tiers, contract::{Clock, Result}, sqlite::Sqlite};
/// # async fn tiers(clock: std::sync::Arc<dyn Clock>) -> Result<Tiers> {
/// let store = Sqlite::open("shop.db".as_ref(), clock).await?;
/// Ok(Tiers::of(store, "sqlite shop.db"))
/// # }
/// ```
pub struct Sqlite {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    writer: Arc<writer::Writer>,
    readers: reader::Readers,
    nodes: Arc<local::Nodes>,
    hints: wake::Hints,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens the store at `path`; creates or migrates it if needed. Safe from many processes at once.
    ///
    /// # Errors
    /// [`Failed::NewerVersion`] if a newer binary wrote it; [`Failed::Refused`] if there is no such directory, rights are
    /// missing, the file is no database or is damaged, or its file system cannot lock; [`Failed::Unavailable`] if it is busy or
    /// the disk is full. In each of these cases what was stored is left as it was.
    pub async fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        let path = absolute(path)?;
        let nodes_dir = beside(&path, ".nodes");
        local::create_dir(&nodes_dir)?;
        let mut gate = gate::Gate::open(&beside(&path, ".gate"))?;
        let connection = {
            let _turn = gate.enter().await?;
            create_file(&path)?;
            schema::prepare(&path).await?
        };
        let writer = Arc::new(writer::Writer::new(path.clone(), gate, connection)?);
        let readers = reader::Readers::new(path.clone(), writer.identity());
        let nodes = Arc::new(local::Nodes::beside(nodes_dir.clone()));
        let hints = wake::Hints::open(&nodes_dir.join("hint"), clock.boot())?;
        Ok(Arc::new(Self { path, clock, writer, readers, nodes, hints }))
    }

    /// Hints at a change that was committed.
    fn stir(&self) {
        Wake::hint(self);
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    let refused = |why: &str| Failed::Refused(format!("{}: {why}", path.display()));
    let name = path.file_name().ok_or_else(|| refused("not the path of a file"))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = parent.canonicalize().map_err(|error| refused(&format!("its directory cannot be used: {error}")))?;
    let path = parent.join(name);
    if path.is_dir() {
        return Err(refused("it is a directory"));
    }
    if path.to_str().is_none() {
        return Err(refused("its name is not valid UTF-8"));
    }
    Ok(path)
}

/// `<path><suffix>`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Creates the file so that only its owner can read it. An existing one is not even opened: closing a descriptor of it would
/// drop the locks that SQLite holds on it in this process.
fn create_file(path: &Path) -> Result<()> {
    match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(local::of_io(path, &error)),
        Ok(_) => Ok(()),
    }
}

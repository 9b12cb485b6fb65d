//! What processes of one host know of each other without a server: slots, beat files, and what proves a process dead.
//!
//! Invariant: whatever is said here holds on this host only; a tier whose processes live on several takes no word of it for those
//! of another.

mod beat;
mod host;
mod nodes;

pub(crate) use beat::{BeatFile, Header, Place};
pub(crate) use host::Host;
pub(crate) use nodes::{Held, Nodes, Papers, Proof};

use crate::contract::Failed;
use std::{fs, io, os::unix::fs::DirBuilderExt, path::Path};

/// Creates a directory that only its owner can use; one that exists is left as it is.
pub(crate) fn create_dir(dir: &Path) -> Result<(), Failed> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(error) => Err(of_io(dir, &error)),
        Ok(()) => Ok(()),
    }
}

/// An error of one of these files, or of a tier's own, where nothing was stored yet.
pub(crate) fn of_io(path: &Path, error: &io::Error) -> Failed {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {
            Failed::Unavailable(text)
        }
        _ => Failed::Refused(text),
    }
}

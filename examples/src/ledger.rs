//! The ledger: an outside world that the engine does not own. It executes an idempotency key once, answers a repeated
//! key with the first receipt, and writes down everything it is asked, so that losses and repeats can be counted from
//! outside. The one rule to keep: an answer leaves only after what it says is synced in the ledger's own file.
//!
//! It is a process of its own ([`find_or_start`]), reached over loopback with JSON lines ([`wire`]), pipelined, several
//! connections at once. Its port stands in `<file>.port`, its errors in `<file>.log`, and `<file>.lock` is locked while
//! it lives, so that one file has one ledger.

mod clerk;
mod client;
mod process;
mod rules;
mod server;
mod store;
pub mod wire;

use std::path::{Path, PathBuf};

pub use client::{Client, LedgerError};
pub use process::{find, find_or_start};
pub use rules::Fate;
pub use server::{IDLE_MAX, serve};
pub use store::{COUNT_REFUSED, SCHEMA, amount_of, kind_of};
pub use wire::{Act, Begun, Counts, Kind, Receipt};

/// Wall clock, in whole milliseconds since 1970.
pub fn wall_ms() -> u64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// `<file>.<what>`: the ledger's companions stand beside its file.
fn beside(file: &Path, what: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    PathBuf::from(name)
}

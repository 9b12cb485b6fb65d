//! Why a store call did not succeed, in the few kinds that make a caller act differently.
//!
//! Invariant: an outcome that is not known is never reported as a failure that did not apply.

use super::ids::{RunId, Seq};

/// Result of a store call.
pub type Result<T> = std::result::Result<T, Failed>;

/// A failed store call.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Failed {
    /// The call did not apply: the store cannot be reached or refuses work for now. Try again later.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Whether the call applied is not known (connection lost, sync failed, timeout). Offer the same again and look
    /// at the answer; never treat it as "did not happen".
    #[error("the outcome of a store call is unknown: {0}")]
    Unknown(String),
    /// Stored bytes are damaged. The data was left untouched.
    #[error("corrupt {record} of run {run} at seq {seq}: {why}")]
    Corrupt {
        /// The run.
        run: RunId,
        /// The seq of the record; 0 for an input or an outcome.
        seq: Seq,
        /// Which record: `input`, `delta`, `outcome`.
        record: &'static str,
        /// What does not fit.
        why: String,
    },
    /// The stored schema is newer than this code. It was left untouched.
    #[error("the database has schema version {found}, this code knows up to {known}; run a newer binary")]
    NewerVersion {
        /// Version found.
        found: u32,
        /// Newest version this code knows.
        known: u32,
    },
    /// The store refuses for good: another live node has this name, a file is on a network file system, rights are missing.
    #[error("refused: {0}")]
    Refused(String),
    /// The store broke its own rules: a bug here or there.
    #[error("internal store error: {0}")]
    Internal(String),
}

impl Failed {
    /// May the same call succeed later without anybody changing anything?
    pub fn is_transient(&self) -> bool {
        match self {
            Failed::Unavailable(_) | Failed::Unknown(_) => true,
            Failed::Corrupt { .. } | Failed::NewerVersion { .. } | Failed::Refused(_) | Failed::Internal(_) => false,
        }
    }
}

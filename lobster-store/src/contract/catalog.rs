//! What people and callers read: summaries, recordings, outcomes.
//!
//! Invariant: reading changes nothing, and an outcome is handed out only when it is synced.

use super::{
    clock::Wall,
    error::Result,
    ids::{Digest, Epoch, Incarnation, RunId, Seq},
    journal::{Recording, RunState, TaskVersion},
    record::Sealed,
};
use async_trait::async_trait;

/// A run's row, as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Its id.
    pub id: RunId,
    /// The caller's key.
    pub key: Option<String>,
    /// Digest of its input.
    pub digest: Digest,
    /// Its task and version.
    pub task: TaskVersion,
    /// Its tags, sorted.
    pub tags: Vec<String>,
    /// Where it is.
    pub state: RunState,
    /// Why it waits, is held or was set aside; empty if there is nothing to say.
    pub reason: String,
    /// The owner, while it runs.
    pub owner: Option<Incarnation>,
    /// Owners so far.
    pub epoch: Epoch,
    /// Last seq stored.
    pub tail: Seq,
    /// Claims without progress.
    pub attempts: u32,
    /// Deaths without progress.
    pub deaths: u32,
    /// A cancel is asked for.
    pub cancel: bool,
    /// When it was submitted.
    pub submitted: Wall,
    /// When it may be claimed.
    pub due: Wall,
    /// When it ended.
    pub ended: Option<Wall>,
}

/// Which runs to list. Empty fields do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Of this task.
    pub task: Option<String>,
    /// In one of these states.
    pub states: Vec<RunState>,
    /// With all these tags.
    pub tags: Vec<String>,
    /// Submitted at or after.
    pub since: Option<Wall>,
    /// After this id (for paging; ids grow with time).
    pub after: Option<RunId>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// An ended state.
    pub state: RunState,
    /// Its sealed [`Outcome`](super::record::Outcome).
    pub outcome: Sealed,
}

/// A run with its recording and outcome, read under one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its row.
    pub summary: RunSummary,
    /// What is recorded.
    pub recording: Recording,
    /// How it ended, if it did.
    pub ended: Option<Ended>,
}

/// Reads. Lists may be ahead of what is synced; outcomes never are.
///
/// # Errors
/// Of each call: [`Unavailable`](super::Failed::Unavailable), try again; [`Corrupt`](super::Failed::Corrupt), a run whose parts do not
/// belong together; [`Refused`](super::Failed::Refused) and [`Internal`](super::Failed::Internal). That there is no such run is an
/// answer.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    /// The run of a key.
    async fn find(&self, key: &str) -> Result<Option<RunId>>;
    /// Rows in id order, at most `limit`.
    async fn list(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>>;
    /// How many rows match.
    async fn count(&self, filter: RunFilter) -> Result<u64>;
    /// One run, whole. `None`: no such run.
    async fn read(&self, run: RunId) -> Result<Option<Stored>>;
    /// For each run, in order: `None` if there is no such run, `Some(None)` if it has not ended.
    async fn outcomes(&self, runs: &[RunId]) -> Result<Vec<Option<Option<Ended>>>>;
}

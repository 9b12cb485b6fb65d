//! Nodes: their rows, beats, and what proves one dead.
//!
//! Invariant: only a committed revoke makes an incarnation failed, and a failed one never renews.

use super::{
    clock::Boot,
    error::Result,
    ids::{Incarnation, RunId},
    journal::TaskVersion,
};
use async_trait::async_trait;
use std::time::Duration;

/// A node that wants to join.
#[derive(Clone, Debug)]
pub struct NewNode {
    /// Fresh for each start.
    pub incarnation: Incarnation,
    /// A fixed name, refused while a live process of this host holds it; `None`: `<host>-<slot>`, the first free slot.
    pub name: Option<String>,
    /// What it can execute.
    pub tasks: Vec<TaskVersion>,
    /// Runs it executes at once: the number of slots for [`Members::note`].
    pub slots: usize,
    /// Time to live of its lease, told to whoever watches it.
    pub ttl: Duration,
}

/// A node that has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its name.
    pub name: String,
    /// Boot id of the host: two moments on [`Boot`] compare only within one boot.
    pub boot_id: String,
}

/// A renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Grows by one with each attempt.
    pub seq: u64,
    /// When it was sent.
    pub at: Boot,
    /// The lease had lapsed past the self-fence: the renewal must go through the rows that a revoke locks.
    pub lapsed: bool,
}

/// Answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease goes on.
    Good,
    /// This incarnation was revoked, or another process beats in its name: stop.
    Revoked,
}

/// State of a node's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// Claims, runs, renews.
    Active,
    /// Said goodbye.
    Left,
    /// Revoked: final.
    Failed,
}

/// A node as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its name.
    pub name: String,
    /// State of its row.
    pub state: NodeState,
    /// What it can execute.
    pub tasks: Vec<TaskVersion>,
    /// Seq of the last beat seen.
    pub beat: u64,
    /// Age of that beat by the store's clock; `None` if it cannot be told (another boot, a beat from the future).
    pub age: Option<Duration>,
    /// Time to live of its lease.
    pub ttl: Duration,
}

/// Why an incarnation may be revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The process is provably gone ([`Members::proves_dead`]); checked again under the proof's lock.
    Death,
    /// The revoker watched this beat stay unchanged long enough on its own suspend-counting clock. The store checks that it is
    /// still the last one and that its age by the store's clock is at least `age`.
    Silence {
        /// Beat watched.
        beat: u64,
        /// TTL + guard, or twice the TTL + guard.
        age: Duration,
    },
}

/// Answer to a revoke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// It is failed now, or was before. Its runs may be claimed by anybody.
    Failed {
        /// Runs that it was polling when it died, as far as it noted them, and that made no progress since their claim: a death
        /// was counted against each.
        suspects: Vec<RunId>,
    },
    /// The evidence does not hold (any more).
    Refused,
}

/// The members of one installation.
///
/// # Errors
/// Of each call, as of those of the [`Journal`](super::Journal). A renewal that fails is none: the lease goes on as long as the last
/// one permits.
#[async_trait]
pub trait Members: Send + Sync + 'static {
    /// Takes a slot or the fixed name and writes an active row, synced.
    ///
    /// # Errors
    /// [`Failed::Refused`](super::Failed::Refused) if a live process of this host has that fixed name.
    async fn join(&self, node: NewNode) -> Result<Joined>;

    /// Renews. Called on the lease's own thread and runtime; must not wait behind the journal's writer unless `beat.lapsed`.
    async fn renew(&self, incarnation: Incarnation, beat: Beat) -> Result<Renewed>;

    /// All node rows as the last renewal of this incarnation read them in passing, once. `None`: it does not read them, or they were
    /// asked for since.
    fn renewed_peers(&self, incarnation: Incarnation) -> Option<Vec<Peer>>;

    /// All node rows.
    async fn peers(&self) -> Result<Vec<Peer>>;

    /// Is this incarnation's process provably gone? Cheap, conservative: `false` means "cannot tell".
    fn proves_dead(&self, incarnation: Incarnation) -> bool;

    /// Makes an incarnation failed, in one committed, synced statement that locks its row and checks the evidence.
    async fn revoke(&self, incarnation: Incarnation, evidence: Evidence) -> Result<Revoked>;

    /// A number that changes when the store may have lost what it had acknowledged as synced: another server of it is spoken to, which may
    /// not have had the newest. Looked at after each renewal. From then on the store gives nobody a run until every node that lives has
    /// had the time of its lease to [vouch](super::Journal::vouch) for what it holds; as long as that lasts, each renewal changes the
    /// number. Always the same where nothing is ever lost.
    fn history(&self) -> u64;

    /// Lets go of slot, name and beat of an incarnation that is over, and leaves its row as it is: it may be that of a twin of this process.
    fn release(&self, incarnation: Incarnation);

    /// Makes one's own row left, and lets go of slot, name and beat.
    async fn leave(&self, incarnation: Incarnation) -> Result<()>;

    /// Notes which run's code slot `slot` is about to poll, or that it polls none; found by whoever revokes this incarnation after
    /// its death. Must survive the death of the process, not of the host. Costs about a microsecond; a failure is ignored.
    fn note(&self, incarnation: Incarnation, slot: usize, run: Option<RunId>);
}

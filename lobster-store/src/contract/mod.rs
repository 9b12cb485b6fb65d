//! What a store must promise, in values and traits.
//!
//! Invariant: this module imports nothing else of the crate, so every tier and the engine can stand on it alone.

pub mod catalog;
pub mod clock;
pub mod error;
pub mod ids;
pub mod journal;
pub mod limits;
pub mod members;
pub mod record;
pub mod wake;

pub use catalog::{Catalog, Ended, RunFilter, RunSummary, Stored};
pub use clock::{Boot, Clock, Wall};
pub use error::{Failed, Result};
pub use ids::{Digest, Epoch, Incarnation, Mark, RunId, Seq};
pub use journal::{
    Answer, Attention, Batch, Business, BusinessKind, Cancelled, Claim, FORKED, Fold, Folded, Grant, Hold, Journal, Lacking,
    NewRun, NewVerdict, Offer, Origin, Recording, Restored, Row, RunRow, RunState, Seen, Snapshot, StoredPart, StoredRow,
    StoredVerdict, Submitted, TaskVersion, Then, Transacted, Tx, VerdictAnswer, Vouched, Work, decide, decide_fold, decide_hold,
};
pub use members::{Beat, Evidence, Joined, Members, NewNode, NodeState, Peer, Renewed, Revoked};
pub use record::Sealed;
pub use wake::Wake;

//! Every limit on what a user may hand in, with its reason and the place of its check.
//!
//! Invariant: a value over a limit is refused before anything is written.

/// Bytes of a caller's key, a task name, a step name, a step key, a scope and a tag. 200 bytes fit any index page many times
/// over. Checked when a task or step is named (`lobster-core/src/name.rs`).
pub const NAME_BYTES: usize = 200;

/// Tags of one run. More belongs into the user's own tables. Checked at submit.
pub const TAGS: usize = 32;

/// Bytes of one encoded value: an input, a result, an error's data. Larger ones belong into an object store.
/// Checked when the value is encoded, before its delta exists.
pub const PAYLOAD_BYTES: usize = 8 << 20;

/// Bytes of a state that was migrated, which the first step that changes it records as a whole. With what that step changes it fits a
/// row that a reader accepts. Checked before the step begins, so that a run whose state is larger is held as it was.
pub const MIGRATED_BYTES: usize = 16 << 20;

/// Bytes of an error text kept in a record; the rest is cut. Checked when a failure is recorded.
pub const ERROR_BYTES: usize = 16 << 10;

/// Bytes at which deltas are cut into rows. Keeps a statement's memory bounded; a single larger delta gets its own row.
/// Checked by the committer.
pub const ROW_BYTES: usize = 1 << 20;

/// Bytes of one stored record that a reader accepts: a payload at its limit, its frame, and room for an error's text.
pub const RECORD_BYTES: usize = 16 << 20;

/// Runs in one statement of a committer, a submit or a restore. Bounds the time a writer lock is held.
pub const BATCH_RUNS: usize = 1024;

/// Bytes at which a batch is full, whatever else waits: what a statement may hold on its way and in the memory of a server, and what a
/// slow line carries in the time that a statement has. A single run's part may be larger. Checked by the committer.
pub const BATCH_BYTES: usize = 16 << 20;

/// Runs of a process that are offered alone at once: most of its connections are for everything else.
pub const BATCHES_APART: usize = 3;

/// Batches of a process on their way at once, where the store works on several ([`Journal::beside`](super::Journal::beside)).
pub const BATCHES_ABREAST: usize = 2;

/// Runs that one bulk submit writes in one transaction.
pub const SUBMIT_RUNS: usize = 4096;

/// Deaths of a run's process while its code was being polled, without progress: from here it is executed alone.
pub const DEATHS_ALONE: u32 = 3;

/// How far the epoch of a run leaps where claims of it may be lost: above every token that was given out. Below it lie the claims of a
/// run, so that the rest of an epoch counts them.
pub const EPOCH_LEAP: u64 = 1 << 20;

/// Such deaths at which a run is quarantined: three in company, two alone.
pub const DEATHS_QUARANTINE: u32 = 5;

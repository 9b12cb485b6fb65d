//! The journal: runs, their deltas, and the fence on the run's row.
//!
//! Invariant: every change of a run is decided on its *locked* row; whoever is not the owner under its epoch appends nothing.

use super::{
    clock::Wall,
    error::Result,
    ids::{Digest, Epoch, Incarnation, Mark, RunId, Seq},
    record::{self, Sealed, StepName},
};
use async_trait::async_trait;
use bytes::Bytes;
use std::{
    any::{Any, TypeId},
    future::Future,
    pin::Pin,
    time::Duration,
};

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunState {
    /// Free to be claimed once its due time has come. An evicted run is ready with a later due time.
    Ready,
    /// Owned by an incarnation under an epoch.
    Running,
    /// Waiting for a person.
    Held,
    /// Ended with a value.
    Succeeded,
    /// Ended with a failure.
    Failed,
    /// Ended by a cancel.
    Cancelled,
    /// Set aside because it kept killing its process or made no progress.
    Quarantined,
}

impl RunState {
    /// All states, in the order of their stored numbers.
    pub const ALL: [RunState; 7] = [
        RunState::Ready,
        RunState::Running,
        RunState::Held,
        RunState::Succeeded,
        RunState::Failed,
        RunState::Cancelled,
        RunState::Quarantined,
    ];
    /// Has it ended? An ended run never changes by itself.
    pub fn ended(self) -> bool {
        match self {
            RunState::Ready | RunState::Running | RunState::Held => false,
            RunState::Succeeded | RunState::Failed | RunState::Cancelled | RunState::Quarantined => true,
        }
    }
    /// Stored number.
    pub fn number(self) -> u8 {
        self as u8
    }
    /// From its stored number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// A task's name and a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskVersion {
    /// Name of the task.
    pub task: String,
    /// Version.
    pub version: u32,
}

/// A run to be submitted.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its id, made by the submitter.
    pub id: RunId,
    /// The caller's key: at most one run per key, at any time.
    pub key: Option<String>,
    /// Digest of the canonical input, compared when the key exists.
    pub digest: Digest,
    /// The task, and the version that submitted it.
    pub task: TaskVersion,
    /// Tags, sorted, without doubles.
    pub tags: Vec<String>,
    /// Not to be claimed before.
    pub due: Wall,
    /// The sealed [`Input`](super::record::Input).
    pub input: Sealed,
}

/// Answer to a submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The run is new and synced.
    Created,
    /// The key names this run already; nothing was written. Also the answer when the same id is offered again.
    Existing {
        /// The run of that key.
        id: RunId,
        /// Is its task (by name, whatever its version) and input digest the one offered?
        same: bool,
    },
}

/// What a worker asks for.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Who asks. Its node row must be active.
    pub incarnation: Incarnation,
    /// The tasks it can execute, each up to a version.
    pub tasks: Vec<TaskVersion>,
    /// At most so many runs.
    pub limit: usize,
    /// `false`: runs with fewer than [`DEATHS_ALONE`](super::limits::DEATHS_ALONE) deaths. `true`: only the others.
    pub alone: bool,
    /// By the store's clock on SQLite and memory; ignored by servers with a clock of their own.
    pub now: Wall,
}

/// A claimed run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The run.
    pub run: RunId,
    /// The new epoch.
    pub epoch: Epoch,
    /// Its tail at the claim.
    pub tail: Seq,
    /// The mark of that tail.
    pub mark: Mark,
    /// Its task and the version that submitted it.
    pub task: TaskVersion,
    /// Claims since the last recorded step result, this one included.
    pub attempts: u32,
    /// Deaths of its process while it was being polled, since the last recorded step result.
    pub deaths: u32,
    /// A cancel is asked for.
    pub cancel: bool,
    /// Its wake counter.
    pub wake: u64,
    /// The store may have lost what happened to the run up to this epoch: each call that it could have made is in doubt, unless its
    /// intent is of a later one. `None`: nothing is lost.
    pub doubt: Option<Epoch>,
}

/// A row, as offered: deltas, changes, or both. Every seq of it has at least one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its first seq.
    pub from: Seq,
    /// Its last seq.
    pub to: Seq,
    /// Encoded [`Deltas`](super::record::Deltas); they stay to the end of the run.
    pub deltas: Option<Sealed>,
    /// Encoded [`Changes`](super::record::Changes); a fold replaces them.
    pub changes: Option<Sealed>,
    /// [`row_mark`](super::record::row_mark) of it: the run's mark once it is applied.
    pub mark: Mark,
    /// Is it an intent? Such a row is refused once a cancel is asked for.
    pub intent: bool,
}

/// What becomes of the run after its rows, in the same statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    /// Ready again at `due`, unless woken (or cancelled) since `wake` was read. Gives the attempt back.
    Evict {
        /// When it is due.
        due: Wall,
        /// Wake counter as read before the last look at what it waits for.
        wake: u64,
        /// Why it waits, for people.
        reason: String,
    },
    /// Ready now, for whoever claims it. Gives the attempt back.
    Release,
    /// Held for a person, unless a cancel is asked for, or woken since `wake` was read.
    Hold {
        /// Why, for people.
        reason: String,
        /// Wake counter as read before the last look at the verdicts.
        wake: u64,
    },
    /// Ended, with this state and sealed [`Outcome`](super::record::Outcome).
    Finish {
        /// An ended state.
        state: RunState,
        /// The outcome.
        outcome: Sealed,
        /// When, by the engine's wall clock.
        at: Wall,
    },
}

/// One run's part of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The run.
    pub run: RunId,
    /// The holder's epoch.
    pub epoch: Epoch,
    /// First seq of the run in this batch (tail + 1 if it has no rows): the stored tail must be one less.
    pub head: Seq,
    /// At most two: what precedes an intent, and the intent. Contiguous from `head`.
    pub rows: Vec<Row>,
    /// Do the rows hold a step's result? Then claims and deaths are counted anew.
    pub progress: bool,
    /// What becomes of the run, if every row was applied.
    pub then: Option<Then>,
}

impl Offer {
    /// Encoded bytes in it.
    pub fn bytes(&self) -> usize {
        let halves = self.rows.iter().flat_map(|row| [&row.deltas, &row.changes]).flatten();
        let outcome = match &self.then {
            Some(Then::Finish { outcome, .. }) => Some(outcome),
            Some(Then::Evict { .. } | Then::Release | Then::Hold { .. }) | None => None,
        };
        halves.chain(outcome).map(|sealed| sealed.body.len()).sum()
    }
}

/// What the holder of a run was told that the store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vouched {
    /// The run.
    pub run: RunId,
    /// The holder's epoch.
    pub epoch: Epoch,
    /// The last seq that a synced answer has covered.
    pub tail: Seq,
    /// It has ended.
    pub ended: bool,
    /// Who executes it, under a lease that never was in question: nobody else can have done anything to it.
    pub held: Option<Incarnation>,
}

/// A run of which the store has less than its holder was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// The run.
    pub run: RunId,
    /// Nobody executes it any more by what the store knows. `false`: somebody has locked it; ask again.
    pub taken: bool,
}

/// How the reason of a hold begins that no verdict releases, only a cancel: the store and a holder of the run know different things of it.
/// Calls may have been made that nothing tells of, whatever is said of one of them.
pub const FORKED: &str = "forked recording: ";

/// What a committer sends as one statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The owner.
    pub incarnation: Incarnation,
    /// Acknowledge only what survives a crash of the store. Otherwise the acknowledgement survives the process only.
    pub synced: bool,
    /// How long to wait for a row that somebody else has locked, instead of answering [`Busy`](Answer::Busy) at once. Such a batch has one
    /// offer. Tiers whose rows are never busy ignore it.
    pub patient: Option<Duration>,
    /// At most one per run.
    pub offers: Vec<Offer>,
}

/// Answer to one offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Someone else has locked the run's row; offer it again.
    Busy,
    /// The row was locked and looked at.
    Seen(Seen),
}

/// What the locked row said, after this batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Rows applied by this call, counted from the first.
    pub rows: usize,
    /// Was `then` applied by this call?
    pub then: bool,
    /// Does the row name this owner and epoch, and run? (Read before `then`.)
    pub mine: bool,
    /// State of the run, after `then`.
    pub state: RunState,
    /// Tail, after the rows.
    pub tail: Seq,
    /// Mark of that tail.
    pub mark: Mark,
    /// A cancel is asked for.
    pub cancel: bool,
    /// Wake counter.
    pub wake: u64,
}

/// What [`decide`] looks at: the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// The owner, if any.
    pub owner: Option<Incarnation>,
    /// Grows with each owner.
    pub epoch: Epoch,
    /// Where it is.
    pub state: RunState,
    /// Last seq stored.
    pub tail: Seq,
    /// Mark of the tail.
    pub mark: Mark,
    /// A cancel is asked for.
    pub cancel: bool,
    /// Grows whenever something may concern a waiting run.
    pub wake: u64,
}

/// The rule of `append`, on a locked row. Tiers that decide in the process call this; tiers that decide in SQL say the same there.
///
/// `None` is a run that does not exist: to its holder that is a lost fence.
pub fn decide(row: Option<&RunRow>, offer: &Offer, incarnation: Incarnation) -> Seen {
    let Some(row) = row else {
        let state = RunState::Ready;
        return Seen { rows: 0, then: false, mine: false, state, tail: 0, mark: 0, cancel: false, wake: 0 };
    };
    let mine = row.owner == Some(incarnation) && row.epoch == offer.epoch && row.state == RunState::Running;
    let chained = mine && row.tail == offer.head.wrapping_sub(1);
    let rows = if chained { offer.rows.iter().take_while(|row_offered| !(row_offered.intent && row.cancel)).count() } else { 0 };
    let last = offer.rows[..rows].last();
    let complete = rows == offer.rows.len();
    let (then, state) = match &offer.then {
        None => (false, row.state),
        Some(Then::Evict { wake, .. }) if chained && complete && *wake == row.wake && !row.cancel => (true, RunState::Ready),
        Some(Then::Release) if chained && complete => (true, RunState::Ready),
        Some(Then::Finish { state, .. }) if chained && complete => (true, *state),
        // A hold without rows asks only for the fence: it is how a run whose recording cannot be trusted is set aside.
        Some(Then::Hold { wake, .. })
            if mine && complete && (chained || offer.rows.is_empty()) && *wake == row.wake && !row.cancel =>
        {
            (true, RunState::Held)
        }
        Some(_) => (false, row.state),
    };
    Seen {
        rows,
        then,
        mine,
        state,
        tail: last.map_or(row.tail, |row| row.to),
        mark: last.map_or(row.mark, |row| row.mark),
        cancel: row.cancel,
        wake: row.wake,
    }
}

impl Row {
    /// A row of what it holds; `None` twice is no row.
    pub fn new(run: RunId, epoch: Epoch, from: Seq, to: Seq, deltas: Option<Bytes>, changes: Option<Bytes>) -> Self {
        let deltas = deltas.map(|body| Sealed { crc: record::delta_crc(run, epoch, from, to, &body), body });
        let changes = changes.map(|body| Sealed { crc: record::change_crc(run, epoch, from, to, &body), body });
        let mark = record::row_mark(deltas.as_ref().map(|half| half.crc), changes.as_ref().map(|half| half.crc));
        Self { from, to, deltas, changes, mark, intent: false }
    }
    /// The same, as the row of an intent.
    pub fn intent(self) -> Self {
        Self { intent: true, ..self }
    }
}

/// What a business transaction holds: the run's row, as its holder believes it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The owner.
    pub incarnation: Incarnation,
    /// The run.
    pub run: RunId,
    /// The holder's epoch.
    pub epoch: Epoch,
    /// Seq of the record that the transaction is to make: the stored tail must be one less.
    pub head: Seq,
    /// The store ends a transaction that waits for a lock, or for its process, for longer than this.
    pub most: Duration,
}

/// The transaction that a store hands to business code: a value of the type that [`Journal::business`] names.
pub type Business = dyn Any + Send;

/// A transaction that a run can be submitted in: one that a store hands to business code, or one of the application's own where its store
/// knows of such. Whoever writes a tier says so for its types.
pub trait Tx: Send {
    /// The value that [`Journal::submit_in`] knows it by.
    fn business(&mut self) -> &mut Business;
}

/// Business code: works in the transaction, and returns the row to be recorded with it, or `None` to undo everything.
pub type Work = Box<dyn for<'t> FnOnce(&'t mut Business) -> Pin<Box<dyn Future<Output = Option<Row>> + Send + 't>> + Send>;

/// Answer to a business transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transacted {
    /// What the work wrote and its row are committed together, synced.
    Done,
    /// The work wanted nothing kept, and nothing was.
    Undone,
    /// The store refused it in the end (a deferred constraint, a conflict): nothing was kept.
    Failed(String),
    /// The run's row is not as its holder believes (or a cancel is asked for): the work did not begin.
    Seen(Seen),
    /// Somebody else has locked the run's row: the work did not begin.
    Busy,
}

/// The rule of [`transact`](Journal::transact), on a locked row: may the work begin?
///
/// # Errors
/// What the row says instead.
pub fn decide_hold(row: Option<&RunRow>, hold: &Hold) -> std::result::Result<(), Seen> {
    let offer = Offer { run: hold.run, epoch: hold.epoch, head: hold.head, rows: Vec::new(), progress: false, then: None };
    let seen = decide(row, &offer, hold.incarnation);
    if seen.mine && seen.tail + 1 == hold.head && !seen.cancel { Ok(()) } else { Err(seen) }
}

/// What a store's business transactions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusinessKind {
    /// The type of the value that work is given.
    pub of: TypeId,
    /// How long one may take, unless its author says otherwise.
    pub most: Duration,
}

/// A row of deltas or of changes, as stored. Not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    /// Epoch under which it was appended.
    pub epoch: Epoch,
    /// First seq.
    pub from: Seq,
    /// Last seq.
    pub to: Seq,
    /// Its encoded list, and the stored checksum.
    pub sealed: Sealed,
}

/// A part of a snapshot, as stored. Not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPart {
    /// Its id within the run.
    pub id: u64,
    /// The sealed [`Part`](super::record::Part).
    pub sealed: Sealed,
}

/// A snapshot, as stored. Not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Everything up to here is in it.
    pub seq: Seq,
    /// The sealed [`Manifest`](super::record::Manifest).
    pub manifest: Sealed,
    /// Its parts, by id.
    pub parts: Vec<StoredPart>,
}

/// What makes a snapshot current.
#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    /// The owner.
    pub incarnation: Incarnation,
    /// The run.
    pub run: RunId,
    /// The holder's epoch.
    pub epoch: Epoch,
    /// Seq of the snapshot that it replaces; 0: there is none.
    pub base: Seq,
    /// Its own seq: the end of a row that the store has acknowledged, beyond `base`.
    pub seq: Seq,
    /// The sealed [`Manifest`](super::record::Manifest).
    pub manifest: Sealed,
    /// Parts that are new.
    pub parts: Vec<StoredPart>,
    /// Ids of parts that are not needed any more.
    pub dropped: Vec<u64>,
}

/// Answer to a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Folded {
    /// The snapshot is current, and the changes it covers are gone.
    Done,
    /// The store lost what the fold builds on: its tail is before `seq`, or its snapshot is not the one at `base`. Nothing changed.
    Behind,
    /// The run's row does not name this owner and epoch any more. Nothing changed.
    Fenced,
    /// Someone else has locked the run's row. Nothing changed.
    Busy,
}

/// The rule of [`fold`](Journal::fold), on a locked row, and seq and manifest checksum of the run's snapshot. Never
/// [`Busy`](Folded::Busy).
///
/// A fold whose snapshot is there already was offered before, and its answer was lost: it is done, and the same bytes again change
/// nothing.
pub fn decide_fold(row: Option<&RunRow>, snapshot: Option<(Seq, u32)>, fold: &Fold) -> Folded {
    match row {
        Some(row) if row.owner == Some(fold.incarnation) && row.epoch == fold.epoch && row.state == RunState::Running => {
            let there = snapshot == Some((fold.seq, fold.manifest.crc));
            let builds = snapshot.map_or(0, |(seq, _)| seq) == fold.base;
            if row.tail >= fold.seq && (builds || there) { Folded::Done } else { Folded::Behind }
        }
        _ => Folded::Fenced,
    }
}

/// A verdict, as stored. Not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVerdict {
    /// Seq of the intent it speaks of.
    pub intent: Seq,
    /// The sealed [`Fate`](super::record::Fate).
    pub fate: Sealed,
}

/// What the store holds for a run, read under one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The sealed input.
    pub input: Sealed,
    /// The snapshot, if it was folded.
    pub snapshot: Option<Snapshot>,
    /// Rows of deltas in seq order, from the first.
    pub deltas: Vec<StoredRow>,
    /// Rows of changes in seq order, from the snapshot on.
    pub changes: Vec<StoredRow>,
    /// Verdicts on intents.
    pub verdicts: Vec<StoredVerdict>,
    /// Tail of the run's row in that snapshot.
    pub tail: Seq,
    /// Mark of it.
    pub mark: Mark,
}

/// Answer to a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The recording, under the grant's owner and epoch.
    Recording(Recording),
    /// The run's row no longer names this owner and epoch, whatever its rows look like.
    Fenced,
}

/// Who states a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The holder of the intent, after it lost the run: the late result of its own call.
    Settle,
    /// A person.
    Person,
}

/// A verdict to be stored.
#[derive(Clone, Debug)]
pub struct NewVerdict {
    /// The run.
    pub run: RunId,
    /// The step, for people.
    pub step: StepName,
    /// Seq of its intent, which the caller found unresolved and not armed again below `tail`.
    pub intent: Seq,
    /// The tail of the recording that the caller looked at.
    pub tail: Seq,
    /// Who says so.
    pub origin: Origin,
    /// The sealed [`Fate`](super::record::Fate).
    pub fate: Sealed,
    /// When, by the engine's wall clock.
    pub at: Wall,
}

/// Answer to a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictAnswer {
    /// Stored and synced; the run was woken (a held run is ready again).
    Accepted,
    /// The run has gone on since the caller looked: look again.
    Moved,
    /// There is a verdict on this intent already. It stays.
    Exists,
    /// The run has ended.
    Ended,
    /// No such run.
    NotFound,
}

/// Answer to a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It was not running, and has ended now.
    Done,
    /// It is running: its holder will see it.
    Asked,
    /// It had ended before, like this.
    Ended(RunState),
    /// No such run.
    NotFound,
}

/// A run of mine that somebody wants something from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// The run.
    pub run: RunId,
    /// Its epoch.
    pub epoch: Epoch,
    /// A cancel is asked for.
    pub cancel: bool,
    /// Its wake counter.
    pub wake: u64,
}

/// The journal of one installation.
///
/// Every call either applies whole or not at all. A call whose future is dropped may still apply: callers keep store
/// calls on tasks that always finish. Except for a relaxed [`append`](Journal::append) and a [`fold`](Journal::fold), whatever is
/// acknowledged is synced.
///
/// # Errors
/// Of each call: [`Unavailable`](super::Failed::Unavailable), it did not apply; [`Unknown`](super::Failed::Unknown), whether it
/// applied is not known, and the same call again finds out; [`Refused`](super::Failed::Refused), it never will apply;
/// [`Internal`](super::Failed::Internal), a bug. Losing the fence is an answer and no error.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// From how many runs on a second batch is worth sending beside one that is on its way; `None`: never, batches would only wait for each
    /// other. No run is in both.
    fn beside(&self) -> Option<usize>;

    /// Inserts runs, one answer each in order. Two runs of one key within the call: the second finds the first.
    async fn submit(&self, runs: Vec<NewRun>) -> Result<Vec<Submitted>>;

    /// Inserts a run inside of a transaction, which somebody else begins and ends: the run is there if and only if that is committed, and is
    /// acknowledged by nothing else. Nobody is hinted at it before. Keys are compared as by [`submit`](Journal::submit), also with those that
    /// the transaction itself has inserted, and one that is taken is an answer that leaves the transaction as it was. A key that another open
    /// transaction has inserted is waited for, or is what the commit fails at.
    ///
    /// # Errors
    /// [`Refused`](super::Failed::Refused): it is no transaction of this store, or has ended, and nothing was written.
    /// Never [`Unknown`](super::Failed::Unknown) about the run: after any other error the transaction is to be rolled back.
    async fn submit_in(&self, transaction: &mut Business, run: NewRun) -> Result<Submitted>;

    /// Takes ready runs that are due, and running ones whose owner is failed, has left or is unknown: owner and epoch are set,
    /// the claim is counted. Oldest due time first, then by id. An incarnation that is not active gets nothing.
    async fn claim(&self, claim: Claim) -> Result<Vec<Grant>>;

    /// Reads recordings of granted runs, each under one snapshot begun after its claim committed. One answer per grant.
    async fn restore(&self, incarnation: Incarnation, grants: &[Grant]) -> Result<Vec<Restored>>;

    /// The committer's statement; see [`decide`] for its rule. One answer per offer, in order. A synced batch always writes
    /// each locked row, so that everything appended to it before is synced with it.
    async fn append(&self, batch: Batch) -> Result<Vec<Answer>>;

    /// Which transactions business code can have here; `None`: none.
    fn business(&self) -> Option<BusinessKind>;

    /// Runs `work` in a transaction that holds the run's row, and commits what it wrote together with the row it returns: both, or
    /// neither. Nothing of the run may be offered meanwhile. The store ends the transaction if this future, or the process, goes away
    /// before its commit.
    ///
    /// # Errors
    /// [`Unavailable`](super::Failed::Unavailable): nothing was committed. [`Unknown`](super::Failed::Unknown): an offer without rows says
    /// what became of it, by tail and mark. [`Refused`](super::Failed::Refused): there are none here, or the
    /// work ended the transaction by itself, so that nothing is recorded.
    async fn transact(&self, hold: Hold, work: Work) -> Result<Transacted>;

    /// Makes a snapshot current, in one transaction: its new parts are stored, dropped ones and the changes up to `seq` go. See
    /// [`decide_fold`] for its rule. The same fold again, after an unknown outcome, finds what it stored and leaves it so. Acknowledged like a relaxed append: a crash of the store may take the whole of it back.
    async fn fold(&self, fold: Fold) -> Result<Folded>;

    /// Reads parts of the current snapshot, in the order asked for; fewer if some are not there any more.
    async fn parts(&self, run: RunId, ids: &[u64]) -> Result<Vec<StoredPart>>;

    /// Asks for the end of a run. One that is not running ends at once with `outcome`.
    async fn cancel(&self, run: RunId, outcome: Sealed, at: Wall) -> Result<Cancelled>;

    /// Stores a verdict on an intent in doubt and wakes the run; one that is held as [`FORKED`] stays so.
    async fn verdict(&self, verdict: NewVerdict) -> Result<VerdictAnswer>;

    /// Running runs of `incarnation` with a cancel asked for, or woken since they were claimed.
    async fn attend(&self, incarnation: Incarnation) -> Result<Vec<Attention>>;

    /// Called when [`Members::history`](super::Members::history) has changed: of which of these runs does the store have less than their
    /// holder was told it has? They are [taken](Lacking::taken) from whom the store takes for their owner, under the holder's epoch:
    /// held as [`FORKED`], or, if a cancel of them was asked for, free for whoever carries that out. One that has a higher epoch, or has
    /// ended, is somebody else's by now or nobody's, and is left alone. Of one that is [held](Vouched::held), and lacks nothing, nothing
    /// is in [doubt](Grant::doubt) later. A store that loses nothing answers that it lacks nothing.
    async fn vouch(&self, vouched: Vec<Vouched>) -> Result<Vec<Lacking>>;

    /// Removes up to `limit` runs that ended before `before`, each with everything it has, and rows of failed and left nodes
    /// that no run names.
    /// Returns how many runs it removed.
    async fn sweep(&self, before: Wall, limit: usize) -> Result<usize>;
}

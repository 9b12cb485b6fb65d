//! A run in memory: its open calls, what its body is to be shown, and the deltas that the store does not hold yet.
//!
//! Invariant: everything a run does between claim and finish is decided under this one lock, in seq order.

use crate::{
    engine::Shared,
    error::StepFailed,
    image::{BySteps, Image, Known, Shown},
    state::{
        loan::{Loans, States},
        plan::{self, Folding, Tally},
    },
};
use bytes::Bytes;
use lobster_store::contract::{
    Boot, Epoch, Incarnation, Mark, RunId, Seq, Then, Vouched, Wall,
    record::{Came, Changed, StateChange, StepName, StepResult},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    task::Waker,
};
use tokio::sync::Notify;

/// Why a body is not polled any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// The run's row names another owner: nothing may be written.
    Fenced,
    /// A cancel is asked for.
    Cancel,
    /// The run waits for a person.
    Hold(String),
    /// The run goes back, for whoever claims it.
    Release,
    /// The store holds rows that this holder never sent.
    Forked(String),
    /// A state of the run is recorded in a newer version than this code knows: it waits for a node that knows it.
    Newer(String),
    /// The run left memory; whoever still waits here may go.
    Gone,
}

impl Interrupt {
    fn rank(&self) -> u8 {
        match self {
            Interrupt::Cancel | Interrupt::Hold(_) | Interrupt::Release | Interrupt::Newer(_) | Interrupt::Gone => 0,
            Interrupt::Forked(_) => 1,
            Interrupt::Fenced => 2,
        }
    }
}

/// A run in memory.
pub(crate) struct Live {
    pub run: RunId,
    pub epoch: Epoch,
    pub incarnation: Incarnation,
    /// Version that submitted the run.
    pub version: u32,
    pub slot: usize,
    /// What happened up to this epoch may be lost: see [`Grant::doubt`](lobster_store::contract::Grant::doubt).
    pub doubt: Option<Epoch>,
    pub shared: Arc<Shared>,
    inner: Mutex<Inner>,
    /// How much of the author's code the engine's tasks are in at this moment.
    acting: Mutex<usize>,
    /// Rings for the driver of this run.
    pub bell: Arc<Notify>,
    /// Rings for everybody else who waits for this run: acknowledged deltas, interrupts.
    pub turned: Notify,
}

/// What surrounds a change in its row: tags, lengths and its seq, at their longest.
const FRAME_BYTES: usize = 24;

/// A seq that is not known to be synced: its delta, its changes, or both.
#[derive(Clone)]
pub(crate) struct Pending {
    pub deltas: Bytes,
    /// Shared with what is to be folded; encoded when they are put into a row.
    pub changes: Vec<Arc<Changed>>,
    /// Encoded bytes of the changes, or a few more.
    pub changes_bytes: usize,
    /// Of an intent: what takes its place if the store refuses it.
    pub refused: Option<Bytes>,
    pub progress: bool,
}

impl Pending {
    pub fn new(deltas: Bytes, changes: Vec<Arc<Changed>>, progress: bool) -> Self {
        let changes_bytes = changes.iter().map(|changed| plan::size(changed) + FRAME_BYTES).sum();
        Self { deltas, changes, changes_bytes, refused: None, progress }
    }
    /// Encoded bytes, or a few more.
    pub fn bytes(&self) -> usize {
        self.deltas.len() + self.changes_bytes
    }
}

/// The end of a row that this holder was given or has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowEnd {
    pub seq: Seq,
    pub mark: Mark,
    /// Of all rows up to it.
    pub tally: Tally,
}

/// What became of the last thing that was to become of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThenState {
    /// Nothing is asked for.
    Idle,
    /// It will be offered with the last rows.
    Asked,
    /// The store has it.
    Done,
    /// The store refused: woken, or a cancel is asked for.
    Refused,
}

/// What a step hands in.
#[derive(Debug, Clone)]
pub(crate) struct Completed {
    pub result: StepResult,
    /// What it changed.
    pub changes: Vec<StateChange>,
    /// A round that is not the last: recorded as such, for a fold to replace.
    pub passing: bool,
}

/// State of an open call.
#[derive(Debug, Clone)]
pub(crate) enum CallState {
    /// Made, not polled yet.
    Called,
    /// Waits to be shown its recorded result.
    Replay,
    /// Waits until everything recorded was shown (or a drain to end the run here).
    Unstarted,
    /// Its body runs in the body's polls.
    Running,
    /// Waits until no other step has the states of these names.
    Queued(Vec<String>),
    /// Waits for its next attempt.
    Backoff(Wall, String),
    /// An engine task conducts it.
    Conducted,
    /// Has its result, waits for its turn.
    Ready(Box<Completed>),
    /// Its result is recorded, waits for its turn.
    Landed(Came),
    /// The body dropped it in an earlier life: waits to be dropped again.
    Detached,
    /// Asks again, by key, for a dropped call that has this result.
    Attaching(Came),
}

/// An open call of the body.
pub(crate) struct Open {
    pub step: Arc<StepName>,
    /// Scope and name, of a call without a key.
    pub unkeyed: Option<(Arc<str>, &'static str)>,
    pub state: CallState,
    pub waker: Option<Waker>,
    pub durable: bool,
    /// It runs in a transaction of the store: dropped before it began, it is begun all the same.
    pub transactional: bool,
    /// States of a step that completed, until its changes are recorded.
    pub loans: Loans,
    /// It is a round of a repeated step that is not the last one.
    pub passing: bool,
    /// Poll of the body in which it was first polled.
    pub since: Option<u64>,
}

/// An engine task that conducts a step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conducted {
    /// The open call that waits for it, unless it was dropped.
    pub call: Option<u64>,
    /// Until when it only waits, and why.
    pub waits: Option<(Wall, String)>,
    /// An irreversible call is between its intent and its record.
    pub calling: bool,
    /// What has begun comes to its end by then, on the boot clock.
    pub ends: Option<Boot>,
}

/// Calls of one step in one scope.
#[derive(Default)]
pub(crate) struct Named {
    pub next: u32,
    pub site: &'static str,
    /// Unkeyed calls that are open.
    pub open: u32,
    /// Some of them were made after another one was polled: blocks of a body run side by side.
    pub side_by_side: bool,
    /// An unkeyed irreversible call was dropped before its result was seen.
    pub dropped: bool,
}

pub(crate) struct Inner {
    // ---- the recording
    /// Seq of the next delta.
    pub next: Seq,
    /// Deltas `synced + 1 .. next`.
    pub pending: VecDeque<Pending>,
    pub pending_bytes: usize,
    /// Bytes of `pending` beyond `stored`.
    pub lag_bytes: usize,
    /// The last row end that the store acknowledged.
    pub stored: RowEnd,
    /// Last seq that a synced statement acknowledged.
    pub synced: Seq,
    /// Everything up to here is to be synced.
    pub sync_to: Seq,
    /// A part of a batch is at the store.
    pub in_flight: bool,
    /// It is in the committer's queue.
    pub queued: bool,
    /// Answers in a row that found the run's row locked by somebody else.
    pub busy: u32,
    /// A transaction has this seq for its record: nothing from it on is offered until it has ended.
    pub alone: Option<Seq>,
    /// Row ends that this holder was given or has sent, from `synced` on.
    pub marks: VecDeque<RowEnd>,
    /// Row ends that the store has acknowledged, beyond `synced`: should it lose them, they are offered as the same rows again.
    pub ends: VecDeque<Seq>,
    /// The snapshot, and what is to go into the next one.
    pub folding: Folding,
    /// The tail of a recording that this holder did not send, where the store was seen to have one.
    pub foreign: Seq,
    pub then: Option<Then>,
    pub then_state: ThenState,
    pub cancel: bool,
    pub wake: u64,
    // ---- state
    pub states: States,
    /// Rounds done of repeated steps without a result.
    pub rounds: BTreeMap<Arc<StepName>, u64>,
    // ---- the body
    pub replay: VecDeque<(Seq, Shown)>,
    pub known: BySteps<Known>,
    pub names: BTreeMap<(Arc<str>, &'static str), Named>,
    pub calls: BTreeMap<u64, Open>,
    pub next_call: u64,
    pub conducts: BTreeMap<Arc<StepName>, Conducted>,
    /// Calls with a result, in the order in which they got it.
    pub ready: VecDeque<u64>,
    /// Calls whose results an engine task recorded, in seq order.
    pub landed: BTreeMap<Seq, u64>,
    /// The call that is recorded and waits to be synced before its turn.
    pub syncing: Option<(u64, Seq)>,
    /// The one call that may be shown its result in this poll.
    pub turn: Option<u64>,
    /// A result was shown in this poll.
    pub shown: bool,
    pub polls: u64,
    pub ambiguous: Option<StepFailed>,
    pub interrupt: Option<Interrupt>,
    pub draining: bool,
    /// An engine task had to leave its call unresolved.
    pub unresolved: bool,
    /// The first new result of this holder.
    pub progress: Option<Seq>,
    /// The store has it: the run is suspected of nothing any more.
    pub progressed: bool,
}

impl Live {
    #[allow(clippy::too_many_arguments, reason = "made in one place, from a grant and its image")]
    pub fn new(
        shared: Arc<Shared>,
        incarnation: Incarnation,
        grant: &lobster_store::contract::Grant,
        slot: usize,
        image: Image,
    ) -> Arc<Self> {
        let stored = RowEnd { seq: image.tail, mark: image.mark, tally: image.tally };
        let inner = Inner {
            next: image.tail + 1,
            pending: VecDeque::new(),
            pending_bytes: 0,
            lag_bytes: 0,
            stored,
            // A tail that this holder only read may be relaxed: the first synced row of this epoch covers it.
            synced: image.tail,
            sync_to: 0,
            in_flight: false,
            busy: 0,
            alone: None,
            queued: false,
            marks: VecDeque::from([stored]),
            ends: VecDeque::new(),
            folding: image.folding,
            states: States::of(image.states),
            rounds: image.rounds,
            foreign: 0,
            then: None,
            then_state: ThenState::Idle,
            cancel: false,
            wake: grant.wake,
            replay: image.replay,
            known: image.known,
            names: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            conducts: BTreeMap::new(),
            ready: VecDeque::new(),
            landed: BTreeMap::new(),
            syncing: None,
            turn: None,
            shown: false,
            polls: 0,
            ambiguous: None,
            interrupt: None,
            draining: false,
            unresolved: false,
            progress: None,
            progressed: false,
        };
        Arc::new(Self {
            run: grant.run,
            epoch: grant.epoch,
            incarnation,
            version: grant.task.version,
            slot,
            doubt: grant.doubt,
            shared,
            inner: Mutex::new(inner),
            acting: Mutex::new(0),
            bell: Arc::default(),
            turned: Notify::new(),
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code that can panic runs under a run's lock")
    }

    /// Stops the body at once. The first interrupt counts, unless a graver one follows.
    pub fn interrupt(&self, interrupt: Interrupt) {
        self.lock().interrupt(interrupt);
        self.ring();
    }

    /// Rings for the driver and for whoever waits.
    pub fn ring(&self) {
        self.bell.notify_one();
        self.turned.notify_waiters();
    }

    /// Waits until `look` finds something.
    pub async fn until<T>(&self, mut look: impl FnMut(&mut Inner) -> Option<T>) -> T {
        loop {
            let mut turned = std::pin::pin!(self.turned.notified());
            // Registered before the look: a ring in between is not lost.
            turned.as_mut().enable();
            if let Some(found) = look(&mut self.lock()) {
                return found;
            }
            turned.await;
        }
    }

    /// Waits until `seq` is synced; `false` if the run was interrupted before.
    pub async fn synced(&self, seq: Seq) -> bool {
        self.until(|inner| match inner.synced >= seq {
            true => Some(true),
            false if inner.interrupt.is_some() => Some(false),
            false => None,
        })
        .await
    }

    /// A task of the engine goes into code of this run's author: noted until it comes out, for whoever finds this process dead.
    pub fn acting(&self) -> Acting<'_> {
        self.count(|acting| *acting += 1);
        Acting(self)
    }

    /// Several may be in it at once: the first one notes the run, and the last one takes the note away.
    fn count(&self, change: impl FnOnce(&mut usize)) {
        let mut acting = self.acting.lock().expect("no code that can panic runs under this lock");
        let before = *acting;
        change(&mut acting);
        if (before == 0) != (*acting == 0) {
            self.shared.note(self.shared.calls_slot(self.slot), (*acting > 0).then_some(self.run));
        }
    }

    /// Waits until the run is interrupted.
    pub async fn interrupted(&self) -> Interrupt {
        self.until(|inner| inner.interrupt.clone()).await
    }

    /// Somebody wants something from this run. `true`: that is news.
    pub fn attend(&self, cancel: bool, wake: u64) -> bool {
        let mut inner = self.lock();
        let news = (cancel && !inner.cancel) || wake > inner.wake;
        inner.cancel |= cancel;
        if cancel {
            inner.interrupt(Interrupt::Cancel);
        } else if wake > inner.wake {
            // What woke it is read by a restore: one path for news, whether they came before or after the claim.
            inner.interrupt(Interrupt::Release);
        }
        drop(inner);
        self.ring();
        news
    }

    /// Is this incarnation the one that executes it, and nobody else since? Not from the moment when it was offered to others.
    pub fn is_held_by(&self, incarnation: Option<Incarnation>) -> bool {
        let inner = self.lock();
        let fenced = matches!(inner.interrupt, Some(Interrupt::Fenced));
        Some(self.incarnation) == incarnation && !fenced && inner.then.is_none() && inner.then_state == ThenState::Idle
    }

    /// What the store was said to have of this run.
    pub fn vouched(&self) -> Vouched {
        let inner = self.lock();
        let ended = matches!((&inner.then, inner.then_state), (Some(Then::Finish { .. }), ThenState::Done));
        Vouched { run: self.run, epoch: self.epoch, tail: inner.synced, ended, held: None }
    }

    /// The moment by which everything that has begun on tasks of the engine comes to its end.
    pub fn ends(&self) -> Option<Boot> {
        self.lock().conducts.values().filter_map(|conducted| conducted.ends).max()
    }

    /// No step starts any more; the run goes back as soon as nothing is under way.
    pub fn drain(&self) {
        self.lock().draining = true;
        self.ring();
    }
}

/// Noted: a task of the engine is in code of the run's author.
pub(crate) struct Acting<'a>(&'a Live);

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        self.0.count(|acting| *acting -= 1);
    }
}

impl Inner {
    /// As [`Live::interrupt`], for whoever has the lock, and rings when he has let go of it: no body is shown what came with the interrupt.
    pub fn interrupt(&mut self, interrupt: Interrupt) {
        if self.interrupt.as_ref().is_none_or(|current| current.rank() < interrupt.rank()) {
            self.interrupt = Some(interrupt);
        }
    }

    /// Deltas that the store has not acknowledged.
    pub fn lag(&self) -> u64 {
        self.next - 1 - self.stored.seq
    }

    /// May a call begin its first attempt now?
    pub fn may_start(&self) -> bool {
        self.replay.is_empty() && !self.draining
    }
}

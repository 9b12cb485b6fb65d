//! The engine of one process: what its runs, its committer, its worker and its lease share.
//!
//! Invariant: whatever an engine starts ends with it.

use crate::{
    client::Client,
    committer::Committer,
    crash,
    error::{Error, ErrorKind},
    host::HostRef,
    lease::Lease,
    live::{Interrupt, Live},
    path::fold,
    registry::Registry,
    settings::Settings,
    worker::Slots,
};
use lobster_store::{
    Tiers,
    contract::{Boot, Epoch, Incarnation, RunId, Vouched},
    planted,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Deref,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// Runs that have left memory and are remembered: those of about a second of a busy process, more than a standby is behind.
const REMEMBERED: usize = 4096;

/// What a process needs to reach its runs, whether it executes any or not.
#[derive(Clone)]
pub(crate) struct Stores {
    pub host: HostRef,
    pub tiers: Tiers,
    pub settings: Settings,
}

impl Stores {
    pub fn point(&self, name: &str) {
        crash::point(name);
    }
}

/// This process as a member of its installation.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub incarnation: Incarnation,
    pub name: String,
    pub boot_id: String,
}

/// The one that knows more of their run.
fn most(one: Vouched, other: Vouched) -> Vouched {
    let knows = |of: Vouched| (of.epoch, of.tail, of.ended);
    if knows(one) < knows(other) { other } else { one }
}

/// What was stored of the runs that left last.
#[derive(Clone, Debug, Default)]
struct GoneBy {
    /// With the number of its last leave.
    of: BTreeMap<RunId, (u64, Vouched)>,
    order: BTreeMap<u64, RunId>,
    leaves: u64,
}

impl GoneBy {
    fn note(&mut self, vouched: Vouched) {
        self.leaves += 1;
        let place = self.of.entry(vouched.run).or_insert((self.leaves, vouched));
        self.order.remove(&place.0);
        self.order.insert(self.leaves, vouched.run);
        *place = (self.leaves, most(place.1, vouched));
        if self.of.len() > REMEMBERED
            && let Some((_, first)) = self.order.pop_first()
        {
            self.of.remove(&first);
        }
    }
}

/// The shared parts of an engine.
pub(crate) struct Shared {
    pub host: HostRef,
    pub tiers: Tiers,
    pub settings: Settings,
    pub registry: Registry,
    pub lease: Lease,
    pub committer: Committer,
    pub client: Client,
    pub slots: Slots,
    /// Rings when there may be work, or a slot.
    pub work: Notify,
    member: RwLock<Arc<Member>>,
    /// By run and epoch: a frozen predecessor may still record a call while its successor runs in the same process.
    runs: Mutex<BTreeMap<(RunId, Epoch), Arc<Live>>>,
    /// Runs of which is said what becomes of them, without that they were executed.
    pub asides: Mutex<BTreeSet<(RunId, Epoch)>>,
    /// Runs whose recordings could not be read, and how often.
    pub unread: Mutex<BTreeMap<RunId, u32>>,
    /// A store that loses its newest may have lost what these runs had, too.
    gone_by: Mutex<GoneBy>,
    stopping: AtomicBool,
    /// The worker may still take runs into memory: a claim of it may be under way.
    working: AtomicBool,
    gone: AtomicBool,
    /// A look for strays must come after this moment, on the boot clock in nanoseconds; 0: there are none.
    strays: AtomicU64,
    /// A node was revoked: its runs may be suspects.
    pub revoked: AtomicBool,
    /// Rings when a run of this node may be wanted.
    pub attention: Notify,
    /// Rings when a run has left, and when the engine stops.
    pub left: Notify,
}

impl Shared {
    pub fn new(stores: Stores, registry: Registry, client: Client, member: Member) -> Arc<Self> {
        let slots = Slots::new(stores.settings.run.executing);
        let committer = Committer::new(stores.tiers.journal.beside());
        let lease = Lease::default();
        lease.joined(stores.host.boot());
        Arc::new(Self {
            host: stores.host,
            tiers: stores.tiers,
            settings: stores.settings,
            registry,
            lease,
            committer,
            client,
            slots,
            work: Notify::new(),
            member: RwLock::new(Arc::new(member)),
            runs: Mutex::default(),
            asides: Mutex::default(),
            unread: Mutex::default(),
            gone_by: Mutex::default(),
            stopping: AtomicBool::new(false),
            working: AtomicBool::new(true),
            gone: AtomicBool::new(false),
            strays: AtomicU64::new(0),
            revoked: AtomicBool::new(false),
            attention: Notify::new(),
            left: Notify::new(),
        })
    }
    pub fn stores(&self) -> Stores {
        Stores { host: self.host.clone(), tiers: self.tiers.clone(), settings: self.settings.clone() }
    }
    pub fn member(&self) -> Arc<Member> {
        self.member.read().expect("no code that can panic runs under this lock").clone()
    }
    pub fn point(&self, name: &str) {
        crash::point(name);
    }
    /// Notes which run's code slot `slot` polls: found by whoever takes over after a death.
    pub fn note(&self, slot: usize, run: Option<RunId>) {
        self.tiers.members.note(self.member().incarnation, slot, run);
    }
    /// The slot in which the engine's tasks note the calls of a run that executes in `slot`.
    pub fn calls_slot(&self, slot: usize) -> usize {
        self.settings.run.executing + slot
    }

    // ---- runs in memory ---------------------------------------------------------------------------------------------

    /// Takes a run into memory.
    pub fn enter(&self, live: &Arc<Live>) {
        let mut runs = self.runs.lock().expect("no code that can panic runs under this lock");
        runs.insert((live.run, live.epoch), live.clone());
    }
    pub fn leave(&self, live: &Live) {
        let vouched = live.vouched();
        self.gone_by.lock().expect("no code that can panic runs under this lock").note(vouched);
        let mut runs = self.runs.lock().expect("no code that can panic runs under this lock");
        runs.remove(&(live.run, live.epoch));
        drop(runs);
        self.left.notify_waiters();
        self.work.notify_one();
    }
    /// The run, under its highest epoch.
    pub fn run(&self, run: RunId) -> Option<Arc<Live>> {
        let runs = self.runs.lock().expect("no code that can panic runs under this lock");
        runs.range((run, 0)..=(run, Epoch::MAX)).next_back().map(|(_, live)| live.clone())
    }
    /// What was stored, as far as it is known here, of the runs in memory and of those that left last: each under its highest epoch.
    /// `held`: by this incarnation, whose lease never was in question.
    pub fn vouched(&self, held: Option<Incarnation>) -> Vec<Vouched> {
        // In this order: one that leaves meanwhile is among both, and held no more.
        let of = |live: &Arc<Live>| Vouched { held: held.filter(|_| live.is_held_by(held)), ..live.vouched() };
        let here: Vec<_> = self.runs().iter().map(of).collect();
        let gone_by = self.gone_by.lock().expect("no code that can panic runs under this lock").clone();
        let mut known: BTreeMap<_, _> = gone_by.of.into_iter().map(|(run, (_, vouched))| (run, vouched)).collect();
        for of in here {
            known.entry(of.run).and_modify(|known| *known = most(*known, of)).or_insert(of);
        }
        known.into_values().collect()
    }
    /// Is any run in memory?
    pub fn has_runs(&self) -> bool {
        !self.runs.lock().expect("no code that can panic runs under this lock").is_empty()
    }
    pub fn runs(&self) -> Vec<Arc<Live>> {
        self.runs.lock().expect("no code that can panic runs under this lock").values().cloned().collect()
    }

    // ---- the end ----------------------------------------------------------------------------------------------------

    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.work.notify_one();
        self.left.notify_waiters();
    }
    /// The worker's task has ended, or was dropped with its runtime.
    pub fn went(&self) {
        self.gone.store(!self.stopping(), Ordering::SeqCst);
        self.working.store(false, Ordering::SeqCst);
        self.stop();
    }
    /// Was the engine dropped with its runtime?
    pub fn gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }
    /// A claim's answer was lost: it may have taken runs that nobody executes, or may take them yet, where a commit can be held and
    /// decided later.
    pub fn look_for_strays(&self) {
        let until = self.host.boot() + self.settings.lease.ttl.saturating_mul(2);
        self.strays.fetch_max(until.nanos(), Ordering::SeqCst);
    }
    pub fn may_have_strays(&self) -> bool {
        self.strays.load(Ordering::SeqCst) > 0 && !planted!("strays_forgotten")
    }
    /// A look that began at `looked` found none left. Only one after the moment counts: this process may have been stopped until then.
    pub fn no_strays(&self, looked: Boot) {
        let enough = |after: u64| (looked.nanos() >= after).then_some(0);
        // Nothing to do if it was too early.
        let _ = self.strays.fetch_update(Ordering::SeqCst, Ordering::SeqCst, enough);
    }
    /// This incarnation was revoked: its runs are somebody else's. It goes on as another.
    pub fn replace(&self, member: Member) {
        self.lease.joined(self.host.boot());
        for live in self.runs() {
            live.interrupt(Interrupt::Fenced);
        }
        *self.member.write().expect("no code that can panic runs under this lock") = Arc::new(member);
    }
    /// Is no run in memory, and does none come any more?
    pub fn idle(&self) -> bool {
        // In this order: a run that the worker took last is seen.
        !self.working.load(Ordering::SeqCst) && self.runs.lock().expect("no code that can panic runs under this lock").is_empty()
    }
    /// Is a call or a transaction under way that has its time yet?
    fn acts(&self) -> bool {
        let now = self.host.boot();
        self.runs().iter().any(|live| live.ends().is_some_and(|ends| now < ends))
    }
    /// Waits until no run is in memory and none comes any more, at most so long.
    pub async fn empty(&self, within: Duration) -> bool {
        let empty = async {
            loop {
                let mut left = std::pin::pin!(self.left.notified());
                left.as_mut().enable();
                if self.idle() {
                    return;
                }
                left.await;
            }
        };
        tokio::select! {
            biased;
            () = empty => true,
            () = self.host.sleep(within) => false,
        }
    }
}

/// An engine that executes runs. Cheap to clone; every method of [`Client`] is available on it.
///
/// Dropping it stops nothing: call [`shutdown`](Lobster::shutdown) before the process ends, or let the process be killed; both
/// are fine, the first is faster for whoever takes over.
///
/// ```
/// use lobster_core::{Ctx, Lobster, Result, task};
///
/// #[task]
/// async fn greet(_ctx: Ctx, name: String) -> Result<String> {
///     Ok(format!("hello {name}"))
/// }
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
/// let lobster = Lobster::open("memory:").task(greet).start().await?;
/// let run = lobster.submit(greet, "world".to_owned()).key("greeting-1").await?;
/// assert_eq!(run.outcome().await?, "hello world");
/// lobster.shutdown(std::time::Duration::from_secs(5)).await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Lobster {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Lobster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lobster").field("node", &self.shared.member().name).field("store", &self.shared.tiers.label).finish()
    }
}

impl Deref for Lobster {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.shared.client
    }
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Runs that were in memory when it began.
    pub runs: usize,
    /// Runs that could not be handed over, because the store did not answer or their code did not return: what they record from here on
    /// is refused, and whoever takes them over goes on from what is stored.
    pub left_behind: usize,
}

impl Lobster {
    /// Name of this node.
    pub fn node(&self) -> String {
        self.shared.member().name.clone()
    }

    /// Claims nothing more, lets every step that runs come to its end, hands the runs over and leaves.
    ///
    /// Steps that have not ended after `deadline` are frozen: an ordinary one runs again elsewhere; a started irreversible call, or
    /// transactional step, is awaited (at most its `max_duration`, and then a TTL for the store to record it) and recorded all the same.
    /// Then the node's row says that it has left, so that its runs are claimed at once. Calling it a second time waits as well.
    ///
    /// ```
    /// # use lobster_core::{Ctx, Lobster, Result, task};
    /// # #[task] async fn greet(_ctx: Ctx, name: String) -> Result<String> { Ok(format!("hello {name}")) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// # let lobster = Lobster::open("memory:").task(greet).start().await?;
    /// # lobster.submit(greet, "world".to_owned()).await?.outcome().await?;
    /// // When the process is asked to end:
    /// let drained = lobster.shutdown(std::time::Duration::from_secs(30)).await;
    /// assert_eq!(drained.left_behind, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn shutdown(self, deadline: Duration) -> Drained {
        let shared = &self.shared;
        shared.stop();
        let runs = shared.runs();
        for live in &runs {
            live.drain();
        }
        if !shared.empty(deadline).await {
            for live in shared.runs() {
                live.interrupt(Interrupt::Release);
            }
            // The lease is renewed until then: nobody takes a run with a call under way. What ends last has its time to be recorded.
            let mut acts = true;
            while acts {
                acts = shared.acts();
                acts &= !shared.empty(shared.settings.lease.ttl).await;
            }
        }
        let left_behind = shared.runs().len();
        if shared.idle() {
            shared.committer.stop();
        }
        if let Err(error) = shared.tiers.members.leave(shared.member().incarnation).await {
            tracing::warn!(%error, "this node could not say that it leaves");
        }
        Drained { runs: runs.len(), left_behind }
    }

    /// Folds the changes of a run that is being executed in this process into a snapshot, now. Folds come by themselves
    /// ([`SnapshotSettings`](crate::SnapshotSettings)); this is for whoever wants the next resume to be short. `true`: a snapshot covers
    /// everything that the store had acknowledged; `false`: there was nothing to fold, or the run left meanwhile.
    ///
    /// # Errors
    /// `NotFound`: the run is not being executed here. `Unavailable`: the store did not answer.
    pub async fn fold(&self, id: RunId) -> Result<bool, Error> {
        let not_here = || Error::new(ErrorKind::NotFound, format!("run {id} is not being executed here"));
        let live = self.shared.run(id).ok_or_else(not_here)?;
        let to = {
            let mut inner = live.lock();
            let stored = inner.stored.seq;
            match inner.folding.want(stored) {
                Some(to) => to,
                None => return Ok(false),
            }
        };
        for _ in 0..2 {
            fold::consider(&live);
            // One that was under way may have been about less.
            let folded = live.until(|inner| match &inner.interrupt {
                _ if inner.folding.seq() >= to => Some(true),
                Some(_) => Some(false),
                None => (!inner.folding.busy).then_some(false),
            });
            if folded.await {
                return Ok(true);
            }
        }
        let inner = live.lock();
        match (&inner.interrupt, inner.folding.unsure) {
            (Some(_), _) | (_, true) => Ok(false),
            (None, false) => Err(Error::new(ErrorKind::Unavailable, format!("run {id} could not be folded now"))),
        }
    }

    /// Opens a store: `memory:`, `sqlite://file.db`, a path ending in `.db`, or `postgres://..` with the feature `postgres`. Nothing happens before
    /// [`start`](crate::Builder::start) or [`connect`](crate::Builder::connect).
    pub fn open(url: &str) -> crate::Builder {
        crate::Builder::new(url)
    }
}

/// The result type of calls on an engine.
pub(crate) type Outcome<T> = Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    fn left(n: u64, epoch: Epoch, tail: u64) -> Vouched {
        Vouched { run: RunId(uuid::Uuid::from_u64_pair(0, n)), epoch, tail, ended: false, held: None }
    }

    #[test]
    fn the_runs_that_left_last_are_remembered_with_the_most_that_was_known_of_each() {
        let (mut gone_by, all) = (GoneBy::default(), REMEMBERED as u64);
        (0..all).for_each(|n| gone_by.note(left(n, 1, n)));
        // It comes and goes, and keeps one place: the newest.
        (0..all).for_each(|_| gone_by.note(left(0, 2, 7)));
        gone_by.note(left(0, 1, 900));
        assert_eq!((gone_by.of.len(), gone_by.order.len()), (REMEMBERED, REMEMBERED));
        (all..2 * all - 1).for_each(|n| gone_by.note(left(n, 1, n)));
        let known: Vec<_> = gone_by.of.values().map(|(_, vouched)| *vouched).collect();
        let expected: Vec<_> = [left(0, 2, 7)].into_iter().chain((all..2 * all - 1).map(|n| left(n, 1, n))).collect();
        assert!(known == expected, "the others left before it");
        assert_eq!(gone_by.order.len(), REMEMBERED);
    }
}

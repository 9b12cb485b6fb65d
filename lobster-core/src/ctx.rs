//! What bodies hold: [`Ctx`] in a task, [`StepCtx`] in a step.
//!
//! Invariant: a `Ctx` is not `Clone`, and nothing that goes through it happens after the run was interrupted.

use crate::{
    call::Rounds,
    error::StepFailed,
    host::uuid_v7,
    live::{Interrupt, Live},
    name,
    state::loan::{Fate, Found, Held, States},
    step_future::Step,
};
use lobster_store::contract::{RunId, record::StepName};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};
use tokio::sync::Notify;
use uuid::Uuid;

/// Whether a repeated step goes on: what it returns to [`Ctx::repeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flow<T = ()> {
    /// Another round.
    Again,
    /// It is done, with this value.
    Done(T),
}

/// A task's view of its run. Handed to the body; not `Clone`, so that no detached task can go on with it.
///
/// ```
/// use lobster_core::{Ctx, Result, StepCtx, step, task};
///
/// #[step]
/// async fn double(_ctx: &StepCtx, n: u32) -> Result<u32> {
///     Ok(2 * n)
/// }
///
/// #[task]
/// async fn twice(ctx: Ctx, n: u32) -> Result<u32> {
///     let once = double(&ctx, n).await?;
///     Ok(double(&ctx, once).await?)
/// }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// // In a unit test a task is a plain function:
/// assert_eq!(twice(Ctx::detached(), 5).await.unwrap(), 20);
/// # });
/// ```
pub struct Ctx {
    pub(crate) home: Home,
    pub(crate) scope: Arc<str>,
}

/// Where calls go.
#[derive(Clone)]
pub(crate) enum Home {
    /// A run.
    Live(Arc<Live>),
    /// A unit test: nothing is recorded.
    Detached(Arc<Detached>),
}

/// A run that exists only in a unit test.
pub(crate) struct Detached {
    pub run: RunId,
    pub occurrences: Mutex<BTreeMap<&'static str, u32>>,
    states: Mutex<States>,
    /// Steps that wait for states, in the order in which they asked.
    queue: Mutex<BTreeMap<u64, Vec<String>>>,
    given: Notify,
}

impl Detached {
    /// Waits until no other step has these states and none that asked before waits for one of them, and takes them.
    pub async fn checkout(&self, names: &[String]) -> Vec<Found> {
        let place = Place::last(self, names);
        loop {
            let mut given = std::pin::pin!(self.given.notified());
            given.as_mut().enable();
            {
                let queue = self.queue.lock().expect("no code that can panic runs under this lock");
                let earlier =
                    |(at, queued): (&u64, &Vec<String>)| *at < place.at && queued.iter().any(|name| names.contains(name));
                let mut states = self.states.lock().expect("no code that can panic runs under this lock");
                if states.free(names) && !queue.iter().any(earlier) {
                    return states.take(names);
                }
            }
            given.await;
        }
    }
}

/// A place in the queue for the states of a unit test.
struct Place<'d> {
    detached: &'d Detached,
    at: u64,
}

impl<'d> Place<'d> {
    fn last(detached: &'d Detached, names: &[String]) -> Self {
        let mut queue = detached.queue.lock().expect("no code that can panic runs under this lock");
        let at = queue.last_key_value().map_or(0, |(last, _)| last + 1);
        queue.insert(at, names.to_vec());
        Self { detached, at }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.detached.queue.lock().expect("no code that can panic runs under this lock").remove(&self.at);
        self.detached.given.notify_waiters();
    }
}

impl Home {
    /// Takes a state back from a step.
    pub fn give(&self, name: &str, held: Option<Box<dyn Held>>, fate: Fate) {
        match self {
            Home::Live(live) => {
                live.lock().states.give(name, held, fate);
                live.bell.notify_one();
            }
            Home::Detached(detached) => {
                detached.states.lock().expect("no code that can panic runs under this lock").give(name, held, fate);
                detached.given.notify_waiters();
            }
        }
    }
}

impl Ctx {
    pub(crate) fn new(live: Arc<Live>) -> Self {
        Self { home: Home::Live(live), scope: Arc::from("") }
    }
    /// A context for unit tests: steps run, nothing is recorded, delays between attempts are left out, and a call that ends in
    /// doubt under `in_doubt = hold` returns a [`StepFailed`](crate::StepFailed) with code `InDoubt`.
    pub fn detached() -> Self {
        let run = match crate::host::OsHost::current() {
            Some(host) => RunId(uuid_v7(&host)),
            None => RunId(Uuid::nil()),
        };
        let (occurrences, states, queue) = (Mutex::default(), Mutex::default(), Mutex::default());
        let detached = Detached { run, occurrences, states, queue, given: Notify::new() };
        Self { home: Home::Detached(Arc::new(detached)), scope: Arc::from("") }
    }
    /// Id of the run: the same on every node and every resume.
    pub fn run_id(&self) -> RunId {
        match &self.home {
            Home::Live(live) => live.run,
            Home::Detached(detached) => detached.run,
        }
    }
    /// Version of the task that submitted the run: a body may keep old runs on an old path. 0 when detached.
    pub fn version(&self) -> u32 {
        match &self.home {
            Home::Live(live) => live.version,
            Home::Detached(_) => 0,
        }
    }
    /// Runs one step again and again until it returns [`Flow::Done`], with a history that does not grow: of ten rounds or of ten million
    /// nothing stays but their number, what they left in the state, and the result of the last.
    ///
    /// The step is driven by state (`#[state]`): a round finds what the one before it left. Killed anywhere, a `durable` step runs at most
    /// one round again, an ordinary one at most what had not reached the store; what an undone round changed is undone with it. All
    /// rounds are one step of the run, with one name and, if it has one, one key; failed attempts are retried by the step's policy, round
    /// by round. Waiting between rounds is the step's own business.
    ///
    /// # Errors
    /// [`StepFailed`] of the round that failed for good: its failure is the result of the repeated step. Code `NotRepeated`: the step is
    /// irreversible, or rounds call different steps.
    ///
    /// ```
    /// use lobster_core::{Ctx, Field, Flow, Lobster, Result, State, StepCtx, step, task};
    ///
    /// #[derive(State, Default)]
    /// struct Sum {
    ///     next: Field<u64>,
    ///     sum: Field<u64>,
    /// }
    ///
    /// #[step]
    /// async fn add(_ctx: &StepCtx, #[state] sum: &mut Sum, up_to: u64) -> Result<Flow<u64>> {
    ///     if *sum.next > up_to {
    ///         return Ok(Flow::Done(*sum.sum));
    ///     }
    ///     let next = *sum.next;
    ///     sum.sum += next;
    ///     sum.next += 1;
    ///     Ok(Flow::Again)
    /// }
    ///
    /// #[task]
    /// async fn sum(ctx: Ctx, up_to: u64) -> Result<u64> {
    ///     Ok(ctx.repeat(|ctx| add(ctx, up_to)).await?)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let lobster = Lobster::open("memory:").task(sum).start().await?;
    /// assert_eq!(lobster.submit(sum, 1000).await?.outcome().await?, 500_500);
    /// # Ok(())
    /// # }
    /// ```
    pub fn repeat<'c, T, Fut>(
        &'c self,
        mut step: impl FnMut(&'c Ctx) -> Step<Fut> + Send,
    ) -> impl Future<Output = Result<T, StepFailed>> + Send
    where
        Fut: Future<Output = Result<Flow<T>, StepFailed>> + Send,
        T: Send,
    {
        let rounds = Arc::new(Rounds::default());
        // The name is taken at the call, like any step's.
        let mut round = rounds.next(|| step(self));
        async move {
            loop {
                match round.await? {
                    Flow::Done(value) => return Ok(value),
                    Flow::Again => round = rounds.next(|| step(self)),
                }
            }
        }
    }
    /// Was the run submitted by version `n` of the task or a later one? Always true when detached.
    pub fn since(&self, n: u32) -> bool {
        matches!(self.home, Home::Detached(_)) || self.version() >= n
    }
}

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx").field("run", &self.run_id()).finish_non_exhaustive()
    }
}

/// A step's view of one call.
///
/// ```
/// use lobster_core::{Result, StepCtx, step};
///
/// #[step(irreversible, in_doubt = retry)]
/// async fn charge(ctx: &StepCtx, cents: u64) -> Result<String> {
///     // The same key at every attempt, in every process: whoever executes a key once charges once.
///     Ok(format!("{cents} cents under {}, attempt {}", ctx.idempotency_key(), ctx.attempt()))
/// }
/// ```
pub struct StepCtx {
    pub(crate) home: Home,
    pub(crate) step: Arc<StepName>,
    pub(crate) generation: u32,
    pub(crate) attempt: AtomicU32,
    pub(crate) in_doubt: bool,
    key: OnceLock<String>,
}

impl StepCtx {
    pub(crate) fn new(home: Home, step: Arc<StepName>, generation: u32, attempt: u32, in_doubt: bool) -> Self {
        Self { home, step, generation, attempt: AtomicU32::new(attempt), in_doubt, key: OnceLock::new() }
    }
    /// Id of the run.
    pub fn run_id(&self) -> RunId {
        match &self.home {
            Home::Live(live) => live.run,
            Home::Detached(detached) => detached.run,
        }
    }
    /// Public id of this step of this run: the same on every node, attempt and resume.
    pub fn step_id(&self) -> Uuid {
        name::step_id(self.run_id(), &self.step)
    }
    /// The key to hand to the outside world: 32 hexadecimal digits, the same for every attempt, node and resume of this call. It
    /// changes only after the remote, or a person, closed the key. Another call of the same step has another key.
    pub fn idempotency_key(&self) -> &str {
        self.key.get_or_init(|| name::idempotency_key(self.run_id(), &self.step, self.generation))
    }
    /// Grows with each owner of the run: a remote may refuse a smaller one than it has seen. It orders owners of one run and
    /// nothing else. 0 when detached.
    pub fn fencing_token(&self) -> u64 {
        match &self.home {
            Home::Live(live) => live.epoch,
            Home::Detached(_) => 0,
        }
    }
    /// Number of this attempt, from 1. Failed attempts of earlier processes count.
    pub fn attempt(&self) -> u32 {
        self.attempt.load(Ordering::Relaxed)
    }
    /// May an earlier attempt of this call have happened? One that the store has lost, too.
    pub fn in_doubt(&self) -> bool {
        self.in_doubt
    }
    /// Completes when a cancel of the run was asked for and seen here. An irreversible call may then stop waiting for a slow
    /// remote; whatever it returns is still recorded. Bodies of other steps are simply not polled any more. Never completes
    /// when detached.
    pub async fn cancelled(&self) {
        match &self.home {
            Home::Live(live) => {
                live.until(|inner| (inner.cancel || inner.interrupt == Some(Interrupt::Cancel)).then_some(())).await
            }
            Home::Detached(_) => std::future::pending().await,
        }
    }
}

impl fmt::Debug for StepCtx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepCtx")
            .field("run", &self.run_id())
            .field("step", &name::display(&self.step))
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

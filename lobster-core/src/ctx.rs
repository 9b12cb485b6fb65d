//! What bodies hold: [`Ctx`] in a task, [`StepCtx`] in a step.
//!
//! Invariant: a `Ctx` is not `Clone`, and nothing that goes through it happens after the run was interrupted.

use crate::{
    host::uuid_v7,
    live::{Interrupt, Live},
    name,
};
use lobster_store::contract::{RunId, record::StepName};
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};
use uuid::Uuid;

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
    pub occurrences: std::sync::Mutex<std::collections::BTreeMap<&'static str, u32>>,
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
        let occurrences = std::sync::Mutex::default();
        Self { home: Home::Detached(Arc::new(Detached { run, occurrences })), scope: Arc::from("") }
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
    /// May an earlier attempt of this call have happened?
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

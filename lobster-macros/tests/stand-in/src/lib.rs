//! A stand-in for `lobster_core`: what the expansions name, with a memory in place of an engine.
//!
//! The one invariant: the signatures in [`expand`] are those of `lobster_core::expand`, bounds included.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

pub use expand::Task;
pub use lobster_macros::{step, task};

pub mod expand;
pub mod sample;

/// What authors return.
pub type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// A body's context. Not `Clone`, as the real one.
pub struct Ctx {
    pub(crate) memory: Memory,
}

/// What has been recorded and what was called, shared by a run's contexts.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    results: HashMap<String, String>,
    occurrences: HashMap<&'static str, u32>,
    log: Vec<String>,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().expect("no test panics while it holds the memory")
    }

    pub(crate) fn log(&self, line: String) {
        self.lock().log.push(line);
    }

    pub(crate) fn occurrence(&self, name: &'static str) -> u32 {
        let mut recorded = self.lock();
        let next = recorded.occurrences.entry(name).or_default();
        *next += 1;
        *next - 1
    }

    pub(crate) fn result(&self, id: &str) -> Option<String> {
        self.lock().results.get(id).cloned()
    }

    pub(crate) fn record(&self, id: &str, value: String) {
        self.lock().results.insert(id.to_owned(), value);
    }
}

impl Ctx {
    /// A context without a run.
    #[must_use]
    pub fn detached() -> Self {
        Self { memory: Memory::default() }
    }

    /// The same run after a crash: what was recorded is known, nothing was called yet.
    #[must_use]
    pub fn resumed(&self) -> Self {
        let results = self.memory.lock().results.clone();
        Self { memory: Memory(Arc::new(Mutex::new(Recorded { results, ..Recorded::default() }))) }
    }

    /// What was called and recorded, in order.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.memory.lock().log.clone()
    }
}

/// A step's context.
pub struct StepCtx {
    pub(crate) id: String,
    pub(crate) attempt: u32,
}

impl StepCtx {
    /// The same for every attempt of one step.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        &self.id
    }

    /// From 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

/// What a probe found out.
pub enum Fate<V> {
    /// It happened.
    Happened(V),
    /// It was not seen so far.
    NotSeen,
    /// It never will.
    Closed,
    /// Nobody can say.
    Unknown,
}

/// A step's recorded failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepFailed {
    /// What the author's error said.
    pub message: String,
}

impl fmt::Display for StepFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for StepFailed {}

/// A step that was called and is to be awaited.
#[must_use = "a step does nothing until it is awaited"]
pub struct Step<F>(Pin<Box<F>>);

impl<F> Step<F> {
    /// From the future that makes the call.
    pub fn new(future: F) -> Self {
        Self(Box::pin(future))
    }
}

impl<F: Future> Future for Step<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(cx)
    }
}

/// A task's body, with its marker in the type.
#[must_use = "a body does nothing until it is awaited"]
pub struct TaskRun<M, F> {
    future: Pin<Box<F>>,
    marker: std::marker::PhantomData<fn() -> M>,
}

impl<M, F> TaskRun<M, F> {
    /// From the future of the body.
    pub fn new(future: F) -> Self {
        Self { future: Box::pin(future), marker: std::marker::PhantomData }
    }
}

impl<M, F: Future> Future for TaskRun<M, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.future.as_mut().poll(cx)
    }
}

/// What registering a task finds out about it.
pub struct Registered {
    /// Its durable name.
    pub name: &'static str,
    /// Its version.
    pub version: u32,
    /// The rest of it.
    pub options: expand::TaskOptions,
}

/// Takes a task as `Builder::task` does.
pub fn register<M, F, Fut>(_task: F) -> Registered
where
    M: Task,
    F: Fn(Ctx, M::Input) -> TaskRun<M, Fut> + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: expand::TaskOutput<Value = M::Output>,
{
    Registered { name: M::NAME, version: M::VERSION, options: M::options() }
}

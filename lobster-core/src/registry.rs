//! Tasks by name: what this process can execute.
//!
//! Invariant: no name from storage becomes code except through here.

use crate::{
    codec::{self, Returned},
    ctx::Ctx,
    drive::Body,
    error::{BoxError, Error, StepFailed, body_failure},
    name,
    spec::Spec,
};
use lobster_store::contract::{
    TaskVersion,
    record::{FailureKind, Payload},
};
use pin_project_lite::pin_project;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// A task's name, version and types. `#[task]` implements it for a marker type of the function's name.
pub trait Task: 'static {
    /// Durable name.
    const NAME: &'static str;
    /// Version, from 1. A process executes runs of its own version and of older ones; the body asks `ctx.since(n)`.
    const VERSION: u32;
    /// What a run is submitted with.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// What a run ends with.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// The rest of what its author says.
    fn options() -> TaskOptions {
        TaskOptions::default()
    }
}

/// Options of a task.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskOptions {
    /// Claims without a newly recorded result before a run is quarantined; `None`: `Settings::run.attempts_max`.
    pub max_attempts: Option<u32>,
    /// The steps it calls, if listed: then they are checked at start.
    pub steps: Option<&'static [&'static Spec]>,
}

pin_project! {
    /// A task's body, and which task it is of.
    #[must_use = "a task does nothing until it is awaited or registered"]
    pub struct TaskRun<M, F> {
        #[pin]
        body: F,
        task: PhantomData<fn() -> M>,
    }
}

impl<M, F> TaskRun<M, F> {
    /// Wraps a body.
    pub fn new(body: F) -> Self {
        Self { body, task: PhantomData }
    }
}

impl<M, F: Future> Future for TaskRun<M, F> {
    type Output = F::Output;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().body.poll(cx)
    }
}

impl<M, F> std::fmt::Debug for TaskRun<M, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TaskRun")
    }
}

/// A function marked `#[task]`. Implemented by every function of that shape; nothing to implement by hand.
#[diagnostic::on_unimplemented(
    message = "this is not a task",
    label = "not a function marked `#[task]`",
    note = "a task is `#[task] async fn name(ctx: Ctx, input: Input) -> Result<Output>`; its body must be `Send`"
)]
pub trait TaskFn<M: Task, Fut>: Send + Sync + 'static {
    /// Starts the body.
    fn body(&self, ctx: Ctx, input: M::Input) -> TaskRun<M, Fut>;
}

impl<M, F, R, Fut> TaskFn<M, Fut> for F
where
    M: Task,
    F: Fn(Ctx, M::Input) -> R + Send + Sync + 'static,
    R: IsTaskRun<M, Fut>,
    Fut: Future + Send + 'static,
    Fut::Output: Returned<Value = M::Output>,
    <Fut::Output as Returned>::Error: Into<BoxError>,
{
    fn body(&self, ctx: Ctx, input: M::Input) -> TaskRun<M, Fut> {
        self(ctx, input).itself()
    }
}

/// Says of a function that returns anything else that it is not a task.
#[diagnostic::on_unimplemented(
    message = "this is not a task",
    label = "not a function marked `#[task]`",
    note = "a task is `#[task] async fn name(ctx: Ctx, input: Input) -> Result<Output>`"
)]
pub trait IsTaskRun<M, Fut> {
    /// The same, by its name.
    fn itself(self) -> TaskRun<M, Fut>;
}

impl<M, Fut> IsTaskRun<M, Fut> for TaskRun<M, Fut> {
    fn itself(self) -> Self {
        self
    }
}

/// Starts a body on an encoded input.
type Start = dyn Fn(Ctx, &Payload) -> Result<Body, codec::CodecError> + Send + Sync;

/// A registered task, erased.
pub(crate) struct Registered {
    pub name: &'static str,
    pub version: u32,
    pub options: TaskOptions,
    start: Box<Start>,
    fits: fn(&Payload) -> Result<(), codec::CodecError>,
}

impl Registered {
    pub fn new<M, F, Fut>(task: F) -> Self
    where
        M: Task,
        F: TaskFn<M, Fut>,
        Fut: Future + Send + 'static,
        Fut::Output: Returned<Value = M::Output>,
        <Fut::Output as Returned>::Error: Into<BoxError>,
    {
        Self {
            name: M::NAME,
            version: M::VERSION,
            options: M::options(),
            fits: |input| codec::decode::<M::Input>(input).map(|_| ()),
            start: Box::new(move |ctx, input| {
                let input: M::Input = codec::decode(input)?;
                let body = task.body(ctx, input);
                Ok(Box::pin(async move {
                    let value = body.await.split().map_err(|error| body_failure(error.into()))?;
                    codec::encode(&value).map_err(|error| {
                        StepFailed::new(FailureKind::Encoding, "", format!("the outcome: {error}"), "").record().clone()
                    })
                }))
            }),
        }
    }

    /// Does an encoded input decode?
    pub fn fits(&self, input: &Payload) -> Result<(), codec::CodecError> {
        (self.fits)(input)
    }

    /// Decodes the input and calls the task's function: its author's code, which may panic.
    pub fn start(&self, ctx: Ctx, input: &Payload) -> Result<Body, codec::CodecError> {
        (self.start)(ctx, input)
    }
}

/// The tasks of one engine.
#[derive(Default)]
pub(crate) struct Registry(BTreeMap<&'static str, Arc<Registered>>);

impl Registry {
    /// Checks and registers.
    pub fn build(tasks: Vec<Registered>) -> Result<Self, Error> {
        let mut registry = Self::default();
        for task in tasks {
            check(&task)?;
            let name = task.name;
            if registry.0.insert(name, Arc::new(task)).is_some() {
                return Err(Error::invalid(format!("task `{name}` is registered twice: give one of them `name = \"..\"`")));
            }
        }
        Ok(registry)
    }
    pub fn get(&self, name: &str) -> Option<&Arc<Registered>> {
        self.0.get(name)
    }
    pub fn versions(&self) -> Vec<TaskVersion> {
        self.0.values().map(|task| TaskVersion { task: task.name.into(), version: task.version }).collect()
    }
}

fn check(task: &Registered) -> Result<(), Error> {
    name::check("the name of a task", task.name)?;
    if task.version == 0 {
        return Err(Error::invalid(format!("task `{}` has version 0; versions start at 1", task.name)));
    }
    let mut sites: BTreeMap<&str, &str> = BTreeMap::new();
    for spec in task.options.steps.unwrap_or_default() {
        name::check(&format!("the name of a step of task `{}`", task.name), spec.name)?;
        if let Some(site) = sites.insert(spec.name, spec.site)
            && site != spec.site
        {
            return Err(Error::invalid(format!(
                "task `{}`: `{site}` and `{}` are both named `{}`: give one of them `name = \"..\"`",
                task.name, spec.site, spec.name
            )));
        }
    }
    Ok(())
}

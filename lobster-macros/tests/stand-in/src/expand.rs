//! What the macros write calls to.
//!
//! Invariant: nothing here is weaker than the real one, so that what compiles here compiles there.

use std::fmt::Display;
use std::pin::Pin;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Ctx, Fate, Memory, StepCtx, StepFailed};

/// Sees through aliases of `Result`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a step returns",
    note = "a step returns a `Result` of a value that implements `Serialize` and `DeserializeOwned`"
)]
pub trait StepOutput {
    /// What is recorded.
    type Value: Serialize + DeserializeOwned + Send + 'static;
    /// The value, or what the error says.
    fn split(self) -> Result<Self::Value, String>;
}

impl<T, E> StepOutput for Result<T, E>
where
    T: Serialize + DeserializeOwned + Send + 'static,
    E: Display,
{
    type Value = T;

    fn split(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// The same for a task.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a task returns",
    note = "a task returns a `Result` of a value that implements `Serialize` and `DeserializeOwned`"
)]
pub trait TaskOutput {
    /// What is recorded.
    type Value: Serialize + DeserializeOwned + Send + 'static;
}

impl<T, E> TaskOutput for Result<T, E>
where
    T: Serialize + DeserializeOwned + Send + 'static,
    E: Display,
{
    type Value = T;
}

/// A value that can be a key.
pub trait StepKey {
    /// As text.
    fn text(&self) -> String;
}

macro_rules! keys {
    ($($ty:ty),*) => { $(impl StepKey for $ty { fn text(&self) -> String { self.to_string() } })* };
}
keys!(u32, u64, i32, usize, str, String);

impl<K: StepKey + ?Sized> StepKey for &K {
    fn text(&self) -> String {
        (**self).text()
    }
}

impl<A: StepKey, B: StepKey> StepKey for (A, B) {
    fn text(&self) -> String {
        format!("({},{})", self.0.text(), self.1.text())
    }
}

/// A key.
pub struct Key(String);

/// Makes a key.
pub fn key<K: StepKey + ?Sized>(key: &K) -> Key {
    Key(key.text())
}

/// Implemented by a step's marker.
pub trait StepInfo {
    /// What is known of the step.
    const SPEC: Spec;
}

/// What is known of a step before it is called.
#[derive(Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its durable name.
    pub name: &'static str,
    /// Where it was written.
    pub site: &'static str,
    /// What it promises.
    pub kind: Kind,
    /// How it is called again.
    pub retry: Retry,
    /// How long one attempt may last.
    pub timeout_ms: Option<u64>,
    /// How long an irreversible call may last.
    pub max_duration_ms: Option<u64>,
    /// What to do in doubt.
    pub in_doubt: InDoubt,
    /// What to do when retries are used up in doubt.
    pub on_exhausted: OnExhausted,
    /// Whether calls carry a key.
    pub keyed: bool,
}

impl Spec {
    const fn of(kind: Kind, in_doubt: InDoubt) -> Self {
        Self {
            name: "",
            site: "",
            kind,
            retry: Retry::DEFAULT,
            timeout_ms: None,
            max_duration_ms: None,
            in_doubt,
            on_exhausted: OnExhausted::Hold,
            keyed: false,
        }
    }

    /// Of an ordinary step.
    #[must_use]
    pub const fn ordinary() -> Self {
        Self::of(Kind::Ordinary, InDoubt::Hold)
    }

    /// Of a durable step.
    #[must_use]
    pub const fn durable() -> Self {
        Self::of(Kind::Durable, InDoubt::Hold)
    }

    /// Of an irreversible step.
    #[must_use]
    pub const fn irreversible(in_doubt: InDoubt) -> Self {
        Self::of(Kind::Irreversible, in_doubt)
    }
}

/// What a step promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Recorded behind.
    Ordinary,
    /// Recorded before it returns.
    Durable,
    /// Announced before it is called.
    Irreversible,
}

/// What to do in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InDoubt {
    /// Call again.
    Retry,
    /// Ask.
    Probe,
    /// Wait for a person.
    Hold,
}

/// What to do when retries are used up in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExhausted {
    /// Wait for a person.
    Hold,
    /// Fail the step.
    Fail,
}

/// How a step is called again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in all.
    pub attempts: u32,
    /// The first pause.
    pub first_ms: u64,
    /// By what it grows.
    pub factor: u32,
    /// The longest pause.
    pub cap_ms: u64,
    /// Whether pauses are spread.
    pub jitter: bool,
}

impl Retry {
    /// What holds unless a step says otherwise.
    pub const DEFAULT: Self = Self { attempts: 5, first_ms: 200, factor: 2, cap_ms: 30_000, jitter: true };
}

/// One call of a step. Not `Clone`.
pub struct Call {
    memory: Memory,
    attempts: u32,
    ctx: StepCtx,
}

/// Takes the identity of a call.
pub fn call(ctx: &Ctx, spec: &'static Spec, key: Option<Key>) -> Call {
    let memory = ctx.memory.clone();
    assert_eq!(key.is_some(), spec.keyed, "a spec knows whether its calls carry a key");
    let id = match key {
        Some(Key(key)) => format!("{}/{key}", spec.name),
        None => format!("{}#{}", spec.name, memory.occurrence(spec.name)),
    };
    memory.log(format!("called {id}"));
    Call { memory, attempts: spec.retry.attempts, ctx: StepCtx { id, attempt: 1 } }
}

impl Call {
    fn recorded<V: DeserializeOwned>(&self) -> Option<V> {
        let text = self.memory.result(&self.ctx.id)?;
        Some(serde_json::from_str(&text).expect("what was recorded reads back"))
    }

    fn settle<O: StepOutput>(&self, attempt: u32, output: O) -> Option<Result<O::Value, StepFailed>> {
        match output.split() {
            Ok(value) => {
                self.memory.record(&self.ctx.id, serde_json::to_string(&value).expect("test values can be written"));
                Some(Ok(value))
            }
            Err(message) => {
                self.memory.log(format!("{} failed: {message}", self.ctx.id));
                (attempt == self.attempts).then_some(Err(StepFailed { message }))
            }
        }
    }
}

/// Makes the call in the caller's future.
///
/// # Errors
/// When every attempt failed.
pub async fn inline<'c, O: StepOutput, Fut: Future<Output = O>>(
    call: &'c Call,
    mut body: impl FnMut(&'c StepCtx) -> Fut,
) -> Result<O::Value, StepFailed> {
    if let Some(value) = call.recorded() {
        return Ok(value);
    }
    let mut attempt = 1;
    loop {
        let output = body(&call.ctx).await;
        if let Some(settled) = call.settle(attempt, output) {
            return settled;
        }
        attempt += 1;
    }
}

/// Makes an argument owned.
pub fn own<T: ?Sized + ToOwned>(arg: &T) -> T::Owned {
    arg.to_owned()
}

/// Asks what became of a call.
pub type Probe<V> = Box<dyn FnMut(StepCtx) -> Pin<Box<dyn Future<Output = Option<Fate<V>>> + Send>> + Send>;

/// Sees through aliases of `Result<Fate<V>, E>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a probe returns",
    note = "a probe returns a `Result` of a `Fate` of what the step returns"
)]
pub trait FateOutput {
    /// What the step returns.
    type Value;
    /// The answer, if there is one.
    fn answer(self) -> Option<Fate<Self::Value>>;
}

impl<V, E> FateOutput for Result<Fate<V>, E> {
    type Value = V;

    fn answer(self) -> Option<Fate<V>> {
        self.ok()
    }
}

/// Makes a probe.
pub fn probe<R: FateOutput, Fut: Future<Output = R> + Send + 'static>(
    mut ask: impl FnMut(StepCtx) -> Fut + Send + 'static,
) -> Probe<R::Value> {
    Box::new(move |ctx| {
        let asked = ask(ctx);
        Box::pin(async move { asked.await.answer() })
    })
}

/// Makes the call on a task of the engine; here, as if it did, with a probe after each failure.
///
/// # Errors
/// When every attempt failed.
pub async fn spawned<O: StepOutput, Fut>(
    call: Call,
    mut body: impl FnMut(StepCtx) -> Fut + Send + 'static,
    mut probe: Option<Probe<O::Value>>,
) -> Result<O::Value, StepFailed>
where
    Fut: Future<Output = O> + Send + 'static,
{
    if let Some(value) = call.recorded() {
        return Ok(value);
    }
    let mut attempt = 1;
    loop {
        let output = body(StepCtx { id: call.ctx.id.clone(), attempt }).await;
        let settled = call.settle(attempt, output);
        if let Some(settled) = settled {
            return settled;
        }
        if let Some(ask) = &mut probe {
            let answer = ask(StepCtx { id: call.ctx.id.clone(), attempt }).await;
            if let Some(Fate::Happened(value)) = answer {
                call.memory.log(format!("{} happened", call.ctx.id));
                return Ok(value);
            }
        }
        attempt += 1;
    }
}

/// Implemented by a task's marker.
pub trait Task {
    /// Its durable name.
    const NAME: &'static str;
    /// Its version.
    const VERSION: u32;
    /// What it is given.
    type Input;
    /// What it returns.
    type Output;
    /// The rest of its options.
    fn options() -> TaskOptions;
}

/// The rest of a task's options.
pub struct TaskOptions {
    /// How often it may be claimed.
    pub max_attempts: Option<u32>,
    /// Its steps, if it lists them.
    pub steps: Option<&'static [&'static Spec]>,
}

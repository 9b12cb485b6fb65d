//! What callers and bodies are told when something went wrong.
//!
//! Invariant: the engine's own trouble never travels as a step's error, and a failure a body sees is always one that was recorded.

use lobster_store::contract::{
    Failed, limits,
    record::{self, FailureKind, Payload},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    error::Error as StdError,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

/// The error type that step and task bodies may use when they have no preference: any error fits by `?`.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// A `Result` for bodies. Any other alias works as well, as long as its error converts into a boxed error (every
/// `std::error::Error` does, and anyhow-like types do).
///
/// ```
/// fn parse(text: &str) -> lobster_core::Result<u32> {
///     Ok(text.parse()?)
/// }
/// assert!(parse("12").is_ok() && parse("x").is_err());
/// ```
pub type Result<T, E = BoxError> = std::result::Result<T, E>;

/// What went wrong with a call of [`Client`](crate::Client) or [`Builder`](crate::Builder). Each kind says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is wrong (empty or oversized key, unusable setting, a task registered twice). Fix the call.
    Invalid,
    /// The key names a run with another task or input. Choose another key, or look at that run.
    Conflict,
    /// No such run or step. It may have been removed by retention.
    NotFound,
    /// The store cannot be reached, or whether it did the work is not known. Try the same call again: it is idempotent.
    Unavailable,
    /// The run is held or its step is not in doubt (any more): look at `show` first.
    Held,
    /// An encoded value is over its limit. Nothing was written.
    TooLarge,
    /// The database was written by a newer version. It was left untouched: run a newer binary.
    NewerVersion,
    /// Stored bytes are damaged. They were left untouched; the message names run, seq and record.
    Corrupt,
    /// Refused for good: a live node has this name, the file is on a network file system, rights are missing, a transaction to submit in is
    /// not one of this store.
    Refused,
    /// A broken promise of lobster itself. Please report it.
    Internal,
}

/// A failed call of [`Client`](crate::Client) or [`Builder`](crate::Builder).
///
/// ```
/// use lobster_core::{ErrorKind, Lobster};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let error = Lobster::open("no-such-store:").start().await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// # });
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl StdError for Error {}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        let kind = match &failed {
            Failed::Unavailable(_) | Failed::Unknown(_) => ErrorKind::Unavailable,
            Failed::Corrupt { .. } => ErrorKind::Corrupt,
            Failed::NewerVersion { .. } => ErrorKind::NewerVersion,
            Failed::Refused(_) => ErrorKind::Refused,
            Failed::Internal(_) => ErrorKind::Internal,
            _ => ErrorKind::Internal,
        };
        Self::new(kind, failed.to_string())
    }
}

/// Why a step failed, built from its record: the same value on the first run and on every resume.
///
/// ```
/// use lobster_core::{Ctx, StepCtx, StepErrorExt, StepFailedKind};
/// # use lobster_core::step;
/// #[step]
/// async fn pick(_ctx: &StepCtx, shelf: u32) -> lobster_core::Result<u32> {
///     if shelf == 0 {
///         return Err("there is no shelf 0").code("no_shelf").fatal()?;
///     }
///     Ok(shelf)
/// }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let failed = pick(&Ctx::detached(), 0).await.unwrap_err();
/// assert_eq!((failed.kind(), failed.code()), (StepFailedKind::Fatal, "no_shelf"));
/// # });
/// ```
#[derive(Clone, PartialEq)]
pub struct StepFailed(Box<Cause>);

/// Kinds of [`StepFailed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StepFailedKind {
    /// A body of a task returned an error of its own.
    Body,
    /// The step's author marked the error `.fatal()`.
    Fatal,
    /// Every attempt failed; the message is the last one's.
    Exhausted,
    /// The last attempt panicked.
    Panic,
    /// The last attempt took longer than its `timeout`.
    Timeout,
    /// A value could not be encoded or decoded, or is over its limit.
    Encoding,
    /// The engine refused the call; [`StepFailed::code`] says why: `StepInsideStep`, `StepOutsideBody`, `DuplicateStepKey`,
    /// `EarlierCallDropped`, `AmbiguousStep`, `SameName`, `InvalidName`, `NotRepeated`. Never recorded: fix the code. So is `WrongStore`: a
    /// transactional step wants another transaction than the store has.
    Refused,
}

/// The innermost node of a failure: found again behind any wrapper by walking the source chain.
#[derive(Clone, PartialEq)]
struct Cause(record::Failure);

impl StepFailed {
    pub(crate) fn from_record(failure: record::Failure) -> Self {
        Self(Box::new(Cause(failure)))
    }
    pub(crate) fn new(kind: FailureKind, code: &str, message: impl Into<String>, step: &str) -> Self {
        Self::from_record(record::Failure {
            kind: kind as i32,
            code: code.into(),
            message: cut(message.into()),
            data: None,
            step: step.into(),
            attempts: 0,
        })
    }
    pub(crate) fn refused(code: &str, message: impl Into<String>, step: &str) -> Self {
        Self::new(FailureKind::Refused, code, message, step)
    }
    pub(crate) fn record(&self) -> &record::Failure {
        &self.0.0
    }
    /// What kind of failure.
    pub fn kind(&self) -> StepFailedKind {
        match FailureKind::try_from(self.0.0.kind).unwrap_or(FailureKind::Unspecified) {
            FailureKind::Unspecified => StepFailedKind::Body,
            FailureKind::Fatal => StepFailedKind::Fatal,
            FailureKind::Exhausted => StepFailedKind::Exhausted,
            FailureKind::Panic => StepFailedKind::Panic,
            FailureKind::Timeout => StepFailedKind::Timeout,
            FailureKind::Encoding => StepFailedKind::Encoding,
            FailureKind::Refused => StepFailedKind::Refused,
        }
    }
    /// The code given by [`StepErrorExt::code`], or the engine's own for [`StepFailedKind::Refused`]; empty if there is none.
    pub fn code(&self) -> &str {
        &self.0.0.code
    }
    /// The error's text with its sources, cut at 16 KiB.
    pub fn message(&self) -> &str {
        &self.0.0.message
    }
    /// The step that failed, as shown to people; empty for a body's own error.
    pub fn step(&self) -> &str {
        &self.0.0.step
    }
    /// Attempts made; 0 if the step was never started.
    pub fn attempts(&self) -> u32 {
        self.0.0.attempts
    }
    /// The data given by [`StepErrorExt::data`], if it decodes as `T`.
    pub fn data<T: DeserializeOwned>(&self) -> Option<T> {
        crate::codec::decode(self.0.0.data.as_ref()?).ok()
    }
}

impl fmt::Display for StepFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.step(), self.kind()) {
            ("", _) => f.write_str(self.message()),
            (step, StepFailedKind::Exhausted) => {
                write!(f, "step {step} failed {} times: {}", self.attempts(), self.message())
            }
            (step, _) => write!(f, "step {step} failed: {}", self.message()),
        }
    }
}

impl fmt::Debug for StepFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepFailed")
            .field("kind", &self.kind())
            .field("code", &self.code())
            .field("step", &self.step())
            .field("message", &self.message())
            .finish()
    }
}

impl StdError for StepFailed {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl StdError for Cause {}

/// Why a run has no value for its caller.
///
/// ```
/// use lobster_core::{Ctx, Lobster, Result, RunFailed, task};
///
/// #[task]
/// async fn fails(_ctx: Ctx) -> Result<()> {
///     Err("sold out")?
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let lobster = Lobster::open("memory:").task(fails).start().await?;
/// let run = lobster.submit(fails, ()).await?;
/// match run.outcome().await {
///     Err(RunFailed::Failed(failed)) => assert!(failed.to_string().contains("sold out")),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunFailed {
    /// The body returned an error, or panicked.
    #[error("the run failed: {0}")]
    Failed(StepFailed),
    /// It was cancelled; the reason given, if any.
    #[error("the run was cancelled: {0}")]
    Cancelled(String),
    /// It kept killing its process, or made no progress in too many claims; the reason.
    #[error("the run was quarantined: {0}")]
    Quarantined(String),
    /// It is not there: never submitted, or removed by retention.
    #[error("there is no such run (any more)")]
    Purged,
    /// Its outcome cannot be read: damaged, of another type, or the store refuses. The run itself is not affected.
    #[error("the outcome cannot be read: {0}")]
    Unreadable(Error),
}

/// Marks an error with what the engine should do about it. Works on every `Result` whose error fits a boxed error.
///
/// Marks survive `?` into a boxed error, `anyhow::Error` and similar types. They may be combined.
///
/// ```
/// use lobster_core::StepErrorExt;
/// fn read(text: &str) -> lobster_core::Result<u32> {
///     // Trying again will not help: the text stays as it is.
///     Ok(text.parse::<u32>().code("not_a_number").fatal()?)
/// }
/// assert!(read("x").is_err());
/// ```
pub trait StepErrorExt<T>: Sized {
    /// No further attempt. For an irreversible step it says as well: the call definitely failed, nothing is in doubt.
    ///
    /// # Errors
    /// The error it is called on, marked.
    fn fatal(self) -> Result<T, Marked>;
    /// The next attempt, if there is one, comes no earlier than `after`.
    ///
    /// # Errors
    /// The error it is called on, marked.
    fn retry_after(self, after: Duration) -> Result<T, Marked>;
    /// For an irreversible step: the call certainly had no effect, so it may be made again with the same key. For other steps it
    /// says nothing.
    ///
    /// # Errors
    /// The error it is called on, marked.
    fn did_not_happen(self) -> Result<T, Marked>;
    /// A code for programs, found in [`StepFailed::code`].
    ///
    /// # Errors
    /// The error it is called on, marked.
    fn code(self, code: impl Into<String>) -> Result<T, Marked>;
    /// Data for programs, found by [`StepFailed::data`]. Data that cannot be encoded, or is over 8 MiB, is left out.
    ///
    /// # Errors
    /// The error it is called on, marked.
    fn data<D: Serialize>(self, data: &D) -> Result<T, Marked>;
}

/// An error with the marks of [`StepErrorExt`].
pub struct Marked(Box<Mark>);

#[derive(Default)]
pub(crate) struct Marks {
    pub fatal: bool,
    pub did_not_happen: bool,
    pub retry_after: Option<Duration>,
    pub code: String,
    pub data: Option<Payload>,
}

/// The node that carries the marks: it sits in the source chain, where a wrapper that hides its own type still shows it.
struct Mark {
    error: BoxError,
    marks: Marks,
}

fn mark<T, E: Into<BoxError>>(result: std::result::Result<T, E>, set: impl FnOnce(&mut Marks)) -> Result<T, Marked> {
    result.map_err(|error| {
        let mut marked = match error.into().downcast::<Marked>() {
            Ok(marked) => *marked,
            Err(error) => Marked(Box::new(Mark { error, marks: Marks::default() })),
        };
        set(&mut marked.0.marks);
        marked
    })
}

impl<T, E: Into<BoxError>> StepErrorExt<T> for std::result::Result<T, E> {
    fn fatal(self) -> Result<T, Marked> {
        mark(self, |marks| marks.fatal = true)
    }
    fn retry_after(self, after: Duration) -> Result<T, Marked> {
        mark(self, |marks| marks.retry_after = Some(after))
    }
    fn did_not_happen(self) -> Result<T, Marked> {
        mark(self, |marks| marks.did_not_happen = true)
    }
    fn code(self, code: impl Into<String>) -> Result<T, Marked> {
        mark(self, |marks| marks.code = code.into())
    }
    fn data<D: Serialize>(self, data: &D) -> Result<T, Marked> {
        mark(self, |marks| marks.data = crate::codec::encode(data).ok())
    }
}

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.error.fmt(f)
    }
}
impl fmt::Debug for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.error, f)
    }
}
impl StdError for Marked {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}
impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}
impl StdError for Mark {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

/// What an author's error amounts to.
#[derive(Debug)]
pub(crate) struct Told {
    pub fatal: bool,
    pub did_not_happen: bool,
    pub retry_after: Option<Duration>,
    /// `kind` is still to be chosen by whoever knows the attempt.
    pub failure: record::Failure,
}

/// Reads marks, message and an inner [`StepFailed`] out of any error. An error's texts and sources are its author's code: one that panics
/// is told by what it panicked with.
pub(crate) fn tell(error: BoxError) -> Told {
    let mut told = Told { fatal: false, did_not_happen: false, retry_after: None, failure: record::Failure::default() };
    let cut_short = catch_unwind(AssertUnwindSafe(|| {
        read(&*error, &mut told);
        if told.failure.message.is_empty() {
            told.failure.message = cut(chain(&*error));
        }
        drop(error);
    }));
    if let Err(panic) = cut_short
        && told.failure.message.is_empty()
    {
        told.failure.message = cut(format!("an error that cannot be shown: it {}", panic_text(&*panic)));
    }
    told
}

/// What it is marked with, and the failure that it hands on, if any.
fn read(error: &(dyn StdError + 'static), told: &mut Told) {
    let mut next = Some(error);
    while let Some(node) = next {
        if let Some(mark) = node.downcast_ref::<Mark>() {
            told.fatal |= mark.marks.fatal;
            told.did_not_happen |= mark.marks.did_not_happen;
            told.retry_after = told.retry_after.or(mark.marks.retry_after);
            if told.failure.code.is_empty() {
                told.failure.code.clone_from(&mark.marks.code);
            }
            if told.failure.data.is_none() {
                told.failure.data.clone_from(&mark.marks.data);
            }
            // What was marked may itself carry more; a marked error's own type hides behind the mark.
            next = Some(&*mark.error);
            continue;
        }
        if let Some(cause) = node.downcast_ref::<Cause>() {
            told.failure = cause.0.clone();
            break;
        }
        next = node.source();
    }
}

/// The failure of a run whose body returned `error`: a step's failure handed on by `?` stays that failure.
pub(crate) fn body_failure(error: BoxError) -> record::Failure {
    tell(error).failure
}

/// The message of an error and of its sources, each said once.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(node) = next {
        let said = node.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = node.source();
    }
    text
}

/// Cuts a text at the limit for error texts, at a character boundary.
pub(crate) fn cut(mut text: String) -> String {
    if text.len() > limits::ERROR_BYTES {
        let mut end = limits::ERROR_BYTES;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(" .. (cut)");
    }
    text
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", said.unwrap_or("(a panic without a text)"))
}

/// Did the author mark that the call had no effect?
pub(crate) fn marks_did_not_happen(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(node) = next {
        if let Some(mark) = node.downcast_ref::<Mark>() {
            if mark.marks.did_not_happen {
                return true;
            }
            next = Some(&*mark.error);
        } else {
            next = node.source();
        }
    }
    false
}

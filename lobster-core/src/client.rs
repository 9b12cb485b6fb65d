//! The front door: submit, look, wait, cancel, resolve. For processes that execute runs and for those that only submit.
//!
//! Invariant: everything here is idempotent by key or id, and what it acknowledges is synced.

use crate::{
    codec,
    engine::{Shared, Stores},
    error::{Error, ErrorKind, RunFailed, StepFailed},
    host::Ids,
    image,
    irreversible::Fate,
    name::{self, Key},
    outcomes::Outcomes,
    path::submit,
    registry::{Task, TaskFn},
    settle,
    state::{State, loan, migrate::Unfit},
    view::{Reason, RunView, run_view, why},
};
use lobster_store::contract::{
    Cancelled, Ended, NewRun, RunFilter, RunId, RunState, RunSummary, Sealed, TaskVersion, Wall, limits,
    record::{Came, Ending, Input, Kind, Outcome},
};
use serde::Serialize;
use std::{
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

/// Submits and looks. Cheap to clone. [`Lobster`](crate::Lobster) derefs to it; a process that executes nothing gets one from
/// [`Builder::connect`](crate::Builder::connect).
///
/// ```
/// # use lobster_core::{Ctx, Lobster, Result, task};
/// # #[task] async fn greet(_ctx: Ctx, name: String) -> Result<String> { Ok(format!("hello {name}")) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let lobster = Lobster::open("memory:").task(greet).start().await?;
/// let client = lobster_core::Client::clone(&lobster);
/// let run = client.submit(greet, "world".to_owned()).key("greeting-1").await?;
/// run.outcome().await?;
/// assert_eq!(client.find("greeting-1").await?, Some(run.id()));
/// assert!(client.show(run.id()).await?.steps.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    stores: Stores,
    ingress: Ingress,
    outcomes: Outcomes,
    ids: Ids,
    /// The engine of this process, if it has one.
    engine: Mutex<Weak<Shared>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("store", &self.inner.stores.tiers.label).finish()
    }
}

/// Where the answer to a submit goes.
type Answer = oneshot::Sender<Result<RunId, Error>>;

/// Submits that wait to share a transaction.
#[derive(Default)]
struct Ingress {
    queue: Mutex<Vec<(NewRun, Answer)>>,
    bell: Notify,
}

impl Client {
    pub(crate) fn new(stores: Stores) -> Self {
        let inner = Inner {
            stores: stores.clone(),
            ingress: Ingress::default(),
            outcomes: Outcomes::default(),
            ids: Ids::default(),
            engine: Mutex::new(Weak::new()),
        };
        let client = Self { inner: Arc::new(inner) };
        stores.host.spawn(Box::pin(ingress(Arc::downgrade(&client.inner))));
        client
    }
    pub(crate) fn serve(&self, engine: &Arc<Shared>) {
        *self.inner.engine.lock().expect("no code that can panic runs under this lock") = Arc::downgrade(engine);
    }
    fn engine(&self) -> Option<Arc<Shared>> {
        self.inner.engine.lock().expect("no code that can panic runs under this lock").upgrade()
    }
    pub(crate) fn stores(&self) -> &Stores {
        &self.inner.stores
    }
    /// A run ended in this process.
    pub(crate) fn ended(&self, run: RunId, ended: &Ended) {
        self.inner.outcomes.tell(run, ended);
    }

    // ---- submit -----------------------------------------------------------------------------------------------------

    /// Submits a run of a task: await what it returns. With a key, a repeated submit returns the same run.
    ///
    /// The input is encoded and checked before anything is written. What is acknowledged is synced.
    ///
    /// # Errors
    /// `Invalid`: an empty, oversized or hostile key or tag. `TooLarge`: the encoded input is over 8 MiB. `Conflict`: the key names a
    /// run with another task or input (compared by a digest of the canonical encoding: the order of map entries does not matter).
    /// `Unavailable`: the store did not answer; with a key, submit again.
    pub fn submit<M, Fut>(&self, task: impl TaskFn<M, Fut>, input: M::Input) -> Submit<M>
    where
        M: Task,
    {
        let _ = task;
        Submit { client: self.clone(), input, key: None, tags: Vec::new(), due: None, task: PhantomData }
    }

    /// Submits many runs of one task, a few thousand per transaction. Already submitted keys are found again, so after an error the
    /// whole call may be repeated.
    ///
    /// # Errors
    /// As [`submit`](Client::submit); the first error ends it, with earlier transactions done.
    pub async fn submit_all<M, Fut>(
        &self,
        task: impl TaskFn<M, Fut>,
        all: impl IntoIterator<Item = (Key, M::Input)>,
    ) -> Result<Vec<Handle<M>>, Error>
    where
        M: Task,
    {
        let _ = task;
        let runs = all
            .into_iter()
            .map(|(key, input)| self.new_run::<M>(Some(key), Vec::new(), &input))
            .collect::<Result<Vec<_>, _>>()?;
        let mut handles = Vec::with_capacity(runs.len());
        for some in runs.chunks(limits::SUBMIT_RUNS) {
            for answer in submit::submit(self.stores(), some.to_vec()).await? {
                handles.push(self.run_of::<M>(answer?));
            }
        }
        self.wake();
        Ok(handles)
    }

    fn new_run<M: Task>(&self, key: Option<Key>, mut tags: Vec<String>, input: &M::Input) -> Result<NewRun, Error> {
        let host = &self.stores().host;
        let id = RunId(self.inner.ids.next(&**host));
        if let Some(key) = &key {
            name::check("the key", key.as_str())?;
        }
        tags.sort_unstable();
        tags.dedup();
        if tags.len() > limits::TAGS {
            return Err(Error::invalid(format!("{} tags; the limit is {}", tags.len(), limits::TAGS)));
        }
        tags.iter().try_for_each(|tag| name::check("a tag", tag))?;
        name::check("the name of a task", M::NAME)?;
        let payload = codec::encode(input).map_err(|error| {
            let kind = if matches!(error, codec::CodecError::TooLarge { .. }) { ErrorKind::TooLarge } else { ErrorKind::Invalid };
            Error::new(kind, format!("the input of task `{}`: {error}", M::NAME))
        })?;
        Ok(NewRun {
            id,
            key: key.map(|key| key.as_str().to_owned()),
            digest: codec::digest(&payload),
            task: TaskVersion { task: M::NAME.into(), version: M::VERSION },
            tags,
            due: host.wall(),
            input: Sealed::new(Kind::Input, id, &Input { payload: Some(payload) }),
        })
    }

    async fn enqueue(&self, run: NewRun) -> Result<RunId, Error> {
        let (sender, answer) = oneshot::channel();
        self.inner.ingress.queue.lock().expect("no code that can panic runs under this lock").push((run, sender));
        self.inner.ingress.bell.notify_one();
        let id =
            answer.await.map_err(|_| Error::new(ErrorKind::Unavailable, "the runtime that served this client is gone"))??;
        self.wake();
        Ok(id)
    }

    pub(crate) fn wake(&self) {
        if let Some(engine) = self.engine() {
            engine.work.notify_one();
        }
    }

    // ---- look -------------------------------------------------------------------------------------------------------

    /// A handle on a run by id, from any process. Nothing is read: an id that does not exist shows at its first use.
    pub fn run<M, Fut>(&self, task: impl TaskFn<M, Fut>, id: RunId) -> Handle<M>
    where
        M: Task,
    {
        let _ = task;
        self.run_of(id)
    }

    pub(crate) fn run_of<M: Task>(&self, id: RunId) -> Handle<M> {
        Handle { client: self.clone(), id, task: PhantomData }
    }

    /// The run of a key; `None` if there is none, or not any more.
    ///
    /// # Errors
    /// `Invalid`: what no key can be. `Unavailable`: the store did not answer.
    pub async fn find(&self, key: impl Into<Key>) -> Result<Option<RunId>, Error> {
        let key = key.into();
        name::check("the key", key.as_str())?;
        Ok(self.stores().tiers.catalog.find(key.as_str()).await?)
    }

    /// Runs to list or count: `.task()`, `.state()`, `.tag()`, `.since()`, `.limit()`.
    pub fn runs(&self) -> Query {
        Query { client: self.clone(), filter: RunFilter::default(), limit: 100 }
    }

    /// A run with its steps, their attempts, times and results. An observation: it may be ahead of what is synced, and marks what is
    /// not known to be.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt`: a record is damaged, named in the message; `Unavailable`.
    pub async fn show(&self, id: RunId) -> Result<RunView, Error> {
        let stored = self.stores().tiers.catalog.read(id).await?.ok_or_else(|| not_found(id))?;
        let synced = match (self.engine().and_then(|engine| engine.run(id)), stored.summary.state) {
            (Some(live), RunState::Running) if live.epoch == stored.summary.epoch => live.lock().synced,
            (None, RunState::Running) => 0,
            _ => stored.recording.tail,
        };
        run_view(&stored, synced)
    }

    /// A state of a run as it is recorded; `None`: no step recorded anything of it. An observation, like [`show`](Client::show); kept as
    /// long as the run is. A state of an older version is migrated for the caller, and left as it is in the store.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt`: a record is damaged; `NewerVersion`: the state is recorded in a newer version than this code knows;
    /// `Invalid`: it does not fit `S`; `Unavailable`.
    pub async fn state<S: State>(&self, id: RunId, name: &str) -> Result<Option<S>, Error> {
        let stored = self.stores().tiers.catalog.read(id).await?.ok_or_else(|| not_found(id))?;
        let mut image = image::fold(id, &stored.recording)?;
        let Some(content) = image.states.remove(name) else { return Ok(None) };
        match loan::read::<S>(content) {
            Ok(state) => Ok(Some(state)),
            Err(Unfit::Newer(version)) => Err(Error::new(
                ErrorKind::NewerVersion,
                format!("state `{name}` of run {id} is of version {version}, this code knows up to {}", S::VERSION),
            )),
            Err(Unfit::Misfit(why)) => Err(Error::invalid(format!("state `{name}` of run {id}: {why}"))),
        }
    }

    /// The one reason why a run does not go on at this moment; `None` if it is being executed, or has ended.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable`.
    pub async fn why_not_running(&self, id: RunId) -> Result<Option<Reason>, Error> {
        let stores = self.stores();
        let stored = stores.tiers.catalog.read(id).await?.ok_or_else(|| not_found(id))?;
        let peers = stores.tiers.members.peers().await?;
        Ok(why(&stored.summary, &peers, stores.host.wall()))
    }

    // ---- act --------------------------------------------------------------------------------------------------------

    /// Asks for the end of a run. One that is not being executed ends at once; otherwise its body is frozen as soon as its holder
    /// sees it (within a second), started irreversible calls are still recorded, and no further one begins. Cancelling a run that has
    /// ended changes nothing.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable`.
    pub async fn cancel(&self, id: RunId) -> Result<(), Error> {
        let stores = self.stores();
        let ending = Outcome { ending: Some(Ending::Cancelled(String::new())) };
        stores.point("cancel sent");
        let outcome = Sealed::new(Kind::Outcome, id, &ending);
        let answer = stores.tiers.journal.cancel(id, outcome.clone(), stores.host.wall()).await?;
        stores.point("cancel acknowledged");
        match answer {
            Cancelled::NotFound => Err(not_found(id)),
            Cancelled::Done => {
                self.ended(id, &Ended { state: RunState::Cancelled, outcome });
                Ok(())
            }
            Cancelled::Asked | Cancelled::Ended(_) => {
                if let Some(engine) = self.engine() {
                    engine.attention.notify_one();
                }
                Ok(())
            }
        }
    }

    /// States what became of an irreversible call in doubt, for a run that is held: `Happened(value)`, with the value that the step
    /// returns, or `Closed`. The run goes on by itself. `Closed` counts only after the end of the call's window.
    ///
    /// `step` is the step's public id, from [`show`](Client::show) or [`StepCtx::step_id`](crate::StepCtx::step_id). A value whose
    /// JSON does not fit the step's type is refused by the run's holder: the run is held again, says so, and takes another verdict.
    ///
    /// # Errors
    /// `Invalid`: `NotSeen` and `Unknown` resolve nothing, or the value cannot be encoded. `Held`: the step is not in doubt, or the
    /// run is being executed, has ended, or is held as forked, which only a cancel ends. `Conflict`: there is a verdict on this call already. `Corrupt`: the recording is
    /// damaged. `TooLarge`, `NotFound`, `Unavailable`.
    pub async fn resolve<V: Serialize>(&self, id: RunId, step: Uuid, fate: Fate<V>) -> Result<(), Error> {
        self.verdict(id, step, fate, false).await
    }

    /// The same, with `Closed` counting at once: only for somebody who knows that no request is on its way any more.
    ///
    /// # Errors
    /// As [`resolve`](Client::resolve).
    pub async fn resolve_now<V: Serialize>(&self, id: RunId, step: Uuid, fate: Fate<V>) -> Result<(), Error> {
        self.verdict(id, step, fate, true).await
    }

    async fn verdict<V: Serialize>(&self, id: RunId, step: Uuid, fate: Fate<V>, forced: bool) -> Result<(), Error> {
        let fate = match fate {
            Fate::Happened(value) => Fate::Happened(Came::Value(codec::encode(&value).map_err(|error| match error {
                codec::CodecError::TooLarge { .. } => Error::new(ErrorKind::TooLarge, error.to_string()),
                error => Error::invalid(error.to_string()),
            })?)),
            Fate::NotSeen => Fate::NotSeen,
            Fate::Closed => Fate::Closed,
            Fate::Unknown => Fate::Unknown,
        };
        self.stores().point("resolve sent");
        settle::resolve(self.stores(), id, step, fate, forced).await?;
        self.stores().point("resolve acknowledged");
        self.wake();
        Ok(())
    }

    async fn outcome(&self, id: RunId) -> Result<Outcome, RunFailed> {
        let ended = self.inner.outcomes.of(self.stores(), id).await.map_err(RunFailed::Unreadable)?.ok_or(RunFailed::Purged)?;
        ended.outcome.open(Kind::Outcome, id).map_err(|damage| RunFailed::Unreadable(damage.into()))
    }
}

fn not_found(id: RunId) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no run {id}"))
}

/// Gathers submits: the next transaction leaves when the previous one returned. Ends with the last clone of its client.
async fn ingress(inner: Weak<Inner>) {
    loop {
        let Some(strong) = inner.upgrade() else { return };
        // Whoever was just answered may submit again and share the next transaction.
        tokio::task::yield_now().await;
        let waiting = {
            let mut queue = strong.ingress.queue.lock().expect("no code that can panic runs under this lock");
            let count = queue.len().min(limits::SUBMIT_RUNS);
            queue.drain(..count).collect::<Vec<_>>()
        };
        if waiting.is_empty() {
            // Without a strong reference: the client may go away meanwhile.
            let bell = Bell(Arc::downgrade(&strong));
            let host = strong.stores.host.clone();
            drop(strong);
            bell.rung(&*host).await;
            continue;
        }
        let (runs, senders): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
        match submit::submit(&strong.stores, runs).await {
            Ok(answers) => {
                for (sender, answer) in senders.into_iter().zip(answers) {
                    // A caller that does not wait any more has submitted all the same.
                    drop(sender.send(answer));
                }
            }
            Err(error) => senders.into_iter().for_each(|sender| drop(sender.send(Err(error.clone())))),
        }
    }
}

/// Waits for the ingress bell, letting go of the client now and then to see whether it is still there.
struct Bell(Weak<Inner>);

impl Bell {
    async fn rung(&self, host: &dyn crate::host::Host) {
        let Some(strong) = self.0.upgrade() else { return };
        tokio::select! {
            biased;
            () = strong.ingress.bell.notified() => {}
            () = host.sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// A submit that is awaited: [`Client::submit`] says what its errors are. Before that nothing is written.
///
/// ```
/// # use lobster_core::{Ctx, Lobster, Result, task};
/// # #[task] async fn greet(_ctx: Ctx, name: String) -> Result<String> { Ok(format!("hello {name}")) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let lobster = Lobster::open("memory:").task(greet).start().await?;
/// let run = lobster.submit(greet, "world".to_owned()).key("greeting-1").tag("polite").await?;
/// let again = lobster.submit(greet, "world".to_owned()).key("greeting-1").await?;
/// assert_eq!(again.id(), run.id());
/// let other = lobster.submit(greet, "moon".to_owned()).key("greeting-1").await;
/// assert_eq!(other.unwrap_err().kind(), lobster_core::ErrorKind::Conflict);
/// # Ok(())
/// # }
/// ```
#[must_use = "a submit does nothing until it is awaited"]
pub struct Submit<M: Task> {
    client: Client,
    input: M::Input,
    key: Option<Key>,
    tags: Vec<String>,
    due: Option<Wall>,
    task: PhantomData<fn() -> M>,
}

impl<M: Task> Submit<M> {
    /// Not executed before so much time has passed, by the wall clock. A run that exists already under the key keeps its own time.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.due = Some(self.client.stores().host.wall().plus(delay));
        self
    }
    /// Not executed before this moment, by the wall clock of the store; one that is past does not wait. The last of `delay` and `at` counts.
    ///
    /// ```
    /// # use lobster_core::{Ctx, Lobster, Result, RunState, Wall, task};
    /// # #[task] async fn greet(_ctx: Ctx, name: String) -> Result<String> { Ok(format!("hello {name}")) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// # let lobster = Lobster::open("memory:").task(greet).start().await?;
    /// let new_year = Wall(4_102_444_800_000); // 2100-01-01T00:00:00Z, in milliseconds
    /// let run = lobster.submit(greet, "world".to_owned()).at(new_year).await?;
    /// assert_eq!(run.state().await?, RunState::Ready);
    /// # Ok(())
    /// # }
    /// ```
    pub fn at(mut self, moment: Wall) -> Self {
        self.due = Some(moment);
        self
    }
    /// The caller's key: 1 to 200 bytes without control characters. At most one run per key at any time.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }
    /// A tag to find the run by; up to 32, of up to 200 bytes each.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }
    /// Checks and encodes what is asked for.
    pub(crate) fn prepare(self) -> Result<(Client, NewRun), Error> {
        let mut run = self.client.new_run::<M>(self.key, self.tags, &self.input)?;
        run.due = self.due.unwrap_or(run.due);
        Ok((self.client, run))
    }
}

impl<M: Task> fmt::Debug for Submit<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submit").field("task", &M::NAME).field("key", &self.key).finish_non_exhaustive()
    }
}

impl<M: Task> IntoFuture for Submit<M> {
    type Output = Result<Handle<M>, Error>;
    type IntoFuture = crate::host::BoxFuture<'static, Self::Output>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (client, run) = self.prepare()?;
            let id = client.enqueue(run).await?;
            Ok(client.run_of(id))
        })
    }
}

/// A run of a known task. Cheap to clone; dropping it changes nothing about the run.
///
/// ```
/// # use lobster_core::{Ctx, Lobster, Result, task};
/// # #[task] async fn greet(_ctx: Ctx, name: String) -> Result<String> { Ok(format!("hello {name}")) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let lobster = Lobster::open("memory:").task(greet).start().await?;
/// # let id = lobster.submit(greet, "world".to_owned()).await?.id();
/// // With an id that was kept somewhere, in any process:
/// let run = lobster.run(greet, id);
/// assert_eq!(run.outcome().await?, "hello world");
/// assert_eq!(run.state().await?, lobster_core::RunState::Succeeded);
/// # Ok(())
/// # }
/// ```
pub struct Handle<M: Task> {
    client: Client,
    id: RunId,
    task: PhantomData<fn() -> M>,
}

impl<M: Task> Clone for Handle<M> {
    fn clone(&self) -> Self {
        self.client.run_of(self.id)
    }
}

impl<M: Task> fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("task", &M::NAME).field("id", &self.id).finish()
    }
}

impl<M: Task> Handle<M> {
    /// Its id.
    pub fn id(&self) -> RunId {
        self.id
    }
    /// Waits until the run has ended, wherever it is executed; a store that is away for a while is waited for. Dropping the
    /// future changes nothing about the run.
    ///
    /// # Errors
    /// [`RunFailed`]: how it ended instead, or why its outcome cannot be read.
    pub async fn outcome(&self) -> Result<M::Output, RunFailed> {
        match self.client.outcome(self.id).await?.ending {
            Some(Ending::Value(payload)) => {
                codec::decode(&payload).map_err(|error| RunFailed::Unreadable(Error::invalid(error.to_string())))
            }
            Some(Ending::Failure(failure)) => Err(RunFailed::Failed(StepFailed::from_record(failure))),
            Some(Ending::Cancelled(reason)) => Err(RunFailed::Cancelled(reason)),
            Some(Ending::Quarantined(reason)) => Err(RunFailed::Quarantined(reason)),
            None => Err(RunFailed::Unreadable(Error::new(ErrorKind::Corrupt, "an outcome of a kind this code does not know"))),
        }
    }
    /// Where it is now.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable`.
    pub async fn state(&self) -> Result<RunState, Error> {
        let stored = self.client.stores().tiers.catalog.read(self.id).await?;
        Ok(stored.ok_or_else(|| not_found(self.id))?.summary.state)
    }
}

/// Runs to list or count, from [`Client::runs`].
///
/// ```
/// # use lobster_core::{Ctx, Lobster, Result, task};
/// # #[task] async fn greet(_ctx: Ctx, name: String) -> Result<String> { Ok(format!("hello {name}")) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let lobster = Lobster::open("memory:").task(greet).start().await?;
/// # lobster.submit(greet, "world".to_owned()).tag("polite").await?.outcome().await?;
/// # use lobster_core::RunState;
/// assert_eq!(lobster.runs().task("greet").state(RunState::Held).count().await?, 0);
/// let mut query = lobster.runs().tag("polite").limit(50);
/// while let Some(last) = query.clone().list().await?.last() {
///     println!("{} {:?}", last.id, last.state);
///     query = query.after(last.id);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a query does nothing until it is listed or counted"]
pub struct Query {
    client: Client,
    filter: RunFilter,
    limit: usize,
}

impl Query {
    /// Of this task.
    pub fn task(mut self, name: impl Into<String>) -> Self {
        self.filter.task = Some(name.into());
        self
    }
    /// In this state; several calls: in one of them.
    pub fn state(mut self, state: RunState) -> Self {
        self.filter.states.push(state);
        self
    }
    /// With this tag; several calls: with all of them.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.filter.tags.push(tag.into());
        self
    }
    /// Submitted at this time or later (milliseconds since 1970, UTC).
    pub fn since(mut self, time: Wall) -> Self {
        self.filter.since = Some(time);
        self
    }
    /// After this run, in the order of ids, which is that of submission: for paging.
    pub fn after(mut self, run: RunId) -> Self {
        self.filter.after = Some(run);
        self
    }
    /// At most so many; 100 by default.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
    /// Lists them in the order of submission.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn list(self) -> Result<Vec<RunSummary>, Error> {
        Ok(self.client.stores().tiers.catalog.list(self.filter, self.limit).await?)
    }
    /// Counts them, whatever the limit.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn count(self) -> Result<u64, Error> {
        Ok(self.client.stores().tiers.catalog.count(self.filter).await?)
    }
}

/// A future of the client, for the types above.
#[allow(dead_code, reason = "asserts that waiting for an outcome may move between threads")]
fn outcomes_are_send<M: Task>(handle: &Handle<M>) -> impl Future<Output = Result<M::Output, RunFailed>> + Send {
    handle.outcome()
}

//! Transactional steps: what the step writes and its record are one transaction of the store, on a task of the engine.
//!
//! Invariant: the record of the step has its place in the run before the transaction begins, and nothing of the run is offered until it
//! has ended: what the store holds up to that place is what the transaction builds on.

use crate::{
    call::{Begin, Call, Start},
    conduct::{self, Interrupted, Theirs},
    ctx::{Home, StepCtx},
    error::StepFailed,
    host::BoxFuture,
    live::{Interrupt, Live},
    name,
    path::{
        commit, flush,
        step::{Next, Trouble, after, misfit, read},
    },
    spec::Spec,
};
use lobster_store::contract::{
    Answer, Batch, Boot, Business, BusinessKind, Failed, Hold, Offer, Row, Seen, Seq, Transacted, Wall, Work,
    record::{self, Attempt, Came, Fact, Failure, Payload, StepName, StepResult, encode_delta},
};
use lobster_store::planted;
use serde::de::DeserializeOwned;
use std::{
    any::TypeId,
    future::{pending, poll_fn},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

/// One attempt, erased: its value encoded, or how it went wrong.
pub(crate) type Act = Box<dyn for<'t> FnMut(StepCtx, &'t mut Business) -> BoxFuture<'t, Result<Payload, Trouble>> + Send>;

/// An attempt of a function that works in the transaction it is given.
pub(crate) fn act(
    act: impl for<'t> FnMut(StepCtx, &'t mut Business) -> BoxFuture<'t, Result<Payload, Trouble>> + Send + 'static,
) -> Act {
    Box::new(act)
}

/// The type of the transaction that a step asks for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub id: TypeId,
    pub name: &'static str,
}

/// Runs a transactional step, or gives what is recorded.
pub(crate) async fn transactional<V: DeserializeOwned>(call: Call, wanted: Wanted, act: Act) -> Result<V, StepFailed> {
    let refuse = |why: String| Err(StepFailed::refused("WrongStore", why, &name::display(&call.cx.step)));
    let (start, attended) = match call.begin().await {
        Begin::Recorded(came) => return read(&call, came).await,
        Begin::Refused(failed) => return Err(failed),
        Begin::Run(start) => (start, true),
        Begin::Resolve(start) => (start, false),
    };
    if start.doubt.is_some() {
        return misfit(&call, "is in doubt as an irreversible step, and is another kind of step now").await;
    }
    let Some(live) = call.live().cloned() else {
        return refuse("a transactional step needs a store: test it in an engine".to_owned());
    };
    let kind = match live.shared.tiers.journal.business() {
        Some(kind) if kind.of == wanted.id => kind,
        Some(_) => return refuse(format!("the step wants a `{}`, which is not the transaction of this store", wanted.name)),
        None => return refuse("this store has no transactions for steps".to_owned()),
    };
    launch(&live, &call, start, act, kind, attended);
    match attended {
        true => read(&call, call.outcome().await).await,
        false => pending().await,
    }
}

fn launch(live: &Arc<Live>, call: &Call, start: Start, act: Act, kind: BusinessKind, attended: bool) {
    let step = conduct::begin(live, call, attended);
    let conductor = Conductor {
        live: live.clone(),
        spec: call.spec,
        step,
        act: Arc::new(Mutex::new(act)),
        most: call.spec.max_duration_ms.map_or(kind.most, Duration::from_millis),
        attempts: start.attempts,
        began: live.shared.host.wall(),
        place: AtomicU64::new(0),
    };
    live.shared.host.spawn(Box::pin(conductor.run(start)));
}

/// Sees one transactional step through, whatever happens to the body.
struct Conductor {
    live: Arc<Live>,
    spec: &'static Spec,
    step: Arc<StepName>,
    /// Behind a lock only to be shared with the store; one transaction at a time calls it.
    act: Arc<Mutex<Act>>,
    /// The longest time of one attempt.
    most: Duration,
    attempts: u32,
    began: Wall,
    /// The place in the run that it has taken last.
    place: AtomicU64,
}

impl Drop for Conductor {
    fn drop(&mut self) {
        // Given back by now, unless something panicked: the rest of the run does not wait for it.
        self.take_back(self.place.load(Ordering::SeqCst));
    }
}

/// What the work of one transaction came to.
enum Outcome {
    /// It was too late to begin: the lease has lapsed, or the run was interrupted.
    NotBegun,
    Returned(Result<Came, Trouble>),
}

/// Where the work leaves what it came to, with the row to be recorded, for the conductor to find.
type Told = Arc<Mutex<Option<(Outcome, Option<Row>)>>>;

/// What became of one transaction.
enum Ended {
    /// It is committed, and its result is where the body finds it.
    Done,
    /// It did not begin, because the lease has lapsed or the run was interrupted.
    NotBegun,
    /// It is not, and this is the step's own fault.
    Troubled(Trouble),
    /// It is not: try again, after a while.
    Again(Duration),
}

/// A pause before the store is asked again.
const PAUSE: Duration = Duration::from_millis(20);

impl Conductor {
    async fn run(mut self, start: Start) {
        let (live, step) = (self.live.clone(), self.step.clone());
        let whole = async {
            let ended = self.conduct(start).await;
            // Its slot may be another run's by now: what this does is noted nowhere.
            conduct::gone(&live, self);
            ended
        };
        conduct::run(&live, &step, whole).await;
    }

    async fn conduct(&mut self, start: Start) -> Result<(), Interrupted> {
        if let Some(due) = start.due {
            let reason = format!("waits for attempt {} of {}", self.attempts + 1, name::display(&self.step));
            conduct::wait(&self.live, &self.step, due, reason).await?;
        }
        'attempts: loop {
            conduct::until_lease(&self.live, &self.step).await?;
            let seq = self.reserve().await?;
            let trouble = loop {
                match self.transact(seq).await {
                    Ok(Ended::Done) => return Ok(()),
                    Ok(Ended::NotBegun) => {
                        // The run's rows do not wait for a lease.
                        self.take_back(seq);
                        continue 'attempts;
                    }
                    Ok(Ended::Troubled(trouble)) => break trouble,
                    Ok(Ended::Again(pause)) => self.pause(seq, pause).await?,
                    Err(Interrupted) => {
                        self.take_back(seq);
                        return Err(Interrupted);
                    }
                }
            };
            self.attempts += 1;
            let shared = self.live.shared.clone();
            let (cx, random) = (self.context(), shared.host.random());
            let next = conduct::enter(&self.live, || after(self.spec, &cx, self.attempts, trouble, random));
            match next.unwrap_or_else(|panic| after(self.spec, &cx, self.attempts, Trouble::Panic(panic), random)) {
                Next::Failed(failure) => {
                    let came = Came::Failure(failure);
                    let result = Fact::Result(self.result(came.clone()));
                    let mut inner = self.live.lock();
                    commit::fill(&self.live, &mut inner, seq, result, true);
                    conduct::land(&mut inner, &self.step, seq, came);
                    return Ok(());
                }
                Next::Again(failure, delay) => {
                    let due = shared.host.wall().plus(delay);
                    let reason =
                        format!("{} failed {} times, last: {}", name::display(&self.step), self.attempts, failure.message);
                    self.fill(seq, Fact::Attempt(self.attempt(Some(failure), due)), false);
                    conduct::wait(&self.live, &self.step, due, reason).await?;
                }
            }
        }
    }

    fn context(&self) -> StepCtx {
        StepCtx::new(Home::Live(self.live.clone()), self.step.clone(), 0, self.attempts + 1, false)
    }

    // ---- the place in the run ---------------------------------------------------------------------------------------

    /// Takes the next seq for the record of this step, and waits until the store holds everything before it.
    async fn reserve(&self) -> Result<Seq, Interrupted> {
        let live = &self.live;
        // Calls that have begun are recorded first: their results must not wait for this transaction.
        let seq = live.until(|inner| match inner.interrupt {
            Some(_) => Some(Err(Interrupted)),
            None if inner.alone.is_some() || inner.conducts.values().any(|other| other.calling) => None,
            None => Some(Ok(commit::reserve(inner))),
        });
        let seq = seq.await?;
        self.place.store(seq, Ordering::SeqCst);
        match self.drained(seq).await {
            Ok(()) => Ok(seq),
            Err(Interrupted) => {
                self.take_back(seq);
                Err(Interrupted)
            }
        }
    }

    async fn drained(&self, seq: Seq) -> Result<(), Interrupted> {
        self.live
            .until(|inner| match inner.interrupt {
                Some(_) => Some(Err(Interrupted)),
                None => (inner.stored.seq + 1 == seq && !inner.in_flight).then_some(Ok(())),
            })
            .await
    }

    /// Gives the place back to the run's own rows, with a fact that says that nothing was done.
    fn take_back(&self, seq: Seq) {
        self.fill(seq, Fact::Attempt(self.attempt(None, Wall(0))), false);
    }

    fn fill(&self, seq: Seq, fact: Fact, synced: bool) {
        commit::fill(&self.live, &mut self.live.lock(), seq, fact, synced);
        self.live.ring();
    }

    async fn pause(&self, seq: Seq, pause: Duration) -> Result<(), Interrupted> {
        let slept = async {
            self.live.shared.host.sleep(pause).await;
            self.drained(seq).await
        };
        let ended = tokio::select! {
            biased;
            _ = self.live.interrupted() => Err(Interrupted),
            drained = slept => drained,
        };
        if ended.is_err() {
            self.take_back(seq);
        }
        ended
    }

    // ---- the transaction --------------------------------------------------------------------------------------------

    async fn transact(&self, seq: Seq) -> Result<Ended, Interrupted> {
        let shared = &self.live.shared;
        let (run, epoch, incarnation) = (self.live.run, self.live.epoch, self.live.incarnation);
        let left = shared.lease.left(shared.host.boot());
        let hold = Hold { incarnation, run, epoch, head: seq, most: left.min(self.most).max(Duration::from_millis(1)) };
        let told = Told::default();
        shared.point("T1");
        let answer = shared.tiers.journal.transact(hold, self.work(seq, told.clone())).await;
        shared.point("T4");
        let told = told.lock().unwrap_or_else(PoisonError::into_inner).take();
        let retry = shared.settings.commit.retry_max;
        match (answer, told) {
            (Ok(Transacted::Done), Some((Outcome::Returned(Ok(came)), Some(row)))) => {
                self.done(&row, came);
                Ok(Ended::Done)
            }
            (Ok(Transacted::Seen(seen)), _) => {
                self.answered(seq, &seen);
                Ok(Ended::Again(PAUSE))
            }
            (Ok(Transacted::Busy), _) => Ok(Ended::Again(PAUSE)),
            (Ok(Transacted::Failed(why)), _) => Ok(Ended::Troubled(Trouble::Error(why.into()))),
            // Whatever became of the transaction: the step did not want to keep it.
            (_, Some((Outcome::Returned(Err(trouble)), _))) => Ok(Ended::Troubled(trouble)),
            (_, Some((Outcome::NotBegun, _))) => Ok(Ended::NotBegun),
            (Err(Failed::Unknown(why)), Some((Outcome::Returned(Ok(came)), Some(row)))) => {
                tracing::warn!(%run, %why, step = %name::display(&self.step), "a transaction was not acknowledged; the run's row will tell");
                self.find_out(seq, came, row).await
            }
            (Err(failed), Some(_)) if !failed.is_transient() => Ok(Ended::Troubled(Trouble::Fatal(failed.to_string()))),
            (Err(failed), _) => {
                tracing::warn!(%run, error = %failed, step = %name::display(&self.step), "a transaction did not come about; tried again");
                Ok(Ended::Again(retry))
            }
            (Ok(Transacted::Done | Transacted::Undone), _) => {
                tracing::error!(%run, "the store broke its contract");
                Ok(Ended::Again(retry))
            }
        }
    }

    /// What the store runs in its transaction.
    fn work(&self, seq: Seq, tell: Told) -> Work {
        let (live, step, act, most, cx) = (self.live.clone(), self.step.clone(), self.act.clone(), self.most, self.context());
        let (attempts, began) = (self.attempts + 1, self.began);
        Box::new(move |transaction| {
            Box::pin(async move {
                live.shared.point("T2");
                let acting = Theirs::new(&live, || (act.lock().unwrap_or_else(PoisonError::into_inner))(cx, transaction));
                let (outcome, row) = match polled(&live, &step, acting, most).await {
                    Outcome::Returned(Ok(came)) => {
                        let result = result(&live, &step, came.clone(), attempts, began);
                        let delta = encode_delta(seq, Fact::Result(result));
                        (Outcome::Returned(Ok(came)), Some(Row::new(live.run, live.epoch, seq, seq, Some(delta), None)))
                    }
                    other => (other, None),
                };
                *tell.lock().unwrap_or_else(PoisonError::into_inner) = Some((outcome, row.clone()));
                live.shared.point("T3");
                row
            })
        })
    }

    /// The store has the row: so has the run, and the body its result.
    fn done(&self, row: &Row, came: Came) {
        let mut inner = self.live.lock();
        flush::transacted(&self.live, &mut inner, row);
        conduct::land(&mut inner, &self.step, row.to, came);
        drop(inner);
        self.live.ring();
    }

    /// After an unknown commit: what the run's row says. Whoever holds the transaction still has the row locked, so that an answer is one.
    async fn find_out(&self, seq: Seq, came: Came, row: Row) -> Result<Ended, Interrupted> {
        let shared = &self.live.shared;
        if planted!("unknown_commit_is_done") {
            self.done(&row, came);
            return Ok(Ended::Done);
        }
        if planted!("unknown_commit_is_undone") {
            return Ok(Ended::Again(PAUSE));
        }
        loop {
            let offer =
                Offer { run: self.live.run, epoch: self.live.epoch, head: seq, rows: Vec::new(), progress: false, then: None };
            let batch = Batch {
                incarnation: self.live.incarnation,
                synced: true,
                patient: Some(Duration::from_secs(1)),
                offers: vec![offer],
            };
            match shared.tiers.journal.append(batch).await.as_deref() {
                Ok([Answer::Seen(seen)]) if seen.mine && (seen.tail, seen.mark) == (seq, row.mark) => {
                    // First: no body is shown a result after it was told of a cancel.
                    if seen.cancel {
                        self.live.attend(true, seen.wake);
                    }
                    self.done(&row, came);
                    return Ok(Ended::Done);
                }
                Ok([Answer::Seen(seen)]) => {
                    self.answered(seq, seen);
                    return Ok(Ended::Again(shared.settings.commit.retry_max));
                }
                _ => shared.host.sleep(PAUSE).await,
            }
            if self.live.lock().interrupt == Some(Interrupt::Fenced) {
                return Err(Interrupted);
            }
        }
    }

    /// The store holds something else than was believed: what it has lost is offered again, what it says of the run is obeyed.
    fn answered(&self, seq: Seq, seen: &Seen) {
        let offer =
            Offer { run: self.live.run, epoch: self.live.epoch, head: seq, rows: Vec::new(), progress: false, then: None };
        flush::answered(&self.live, &offer, false, Some(&Answer::Seen(seen.clone())));
        let mut inner = self.live.lock();
        if inner.has_news() {
            self.live.shared.committer.enqueue(&self.live, &mut inner);
        }
    }

    // ---- facts ------------------------------------------------------------------------------------------------------

    fn result(&self, came: Came) -> StepResult {
        result(&self.live, &self.step, came, self.attempts, self.began)
    }

    fn attempt(&self, failure: Option<Failure>, due: Wall) -> Attempt {
        Attempt {
            step: Some((*self.step).clone()),
            number: self.attempts,
            failure,
            due_ms: due.0,
            in_doubt: false,
            generation: 0,
            probes: 0,
        }
    }
}

fn result(live: &Live, step: &StepName, came: Came, attempts: u32, began: Wall) -> StepResult {
    StepResult {
        step: Some(step.clone()),
        came: Some(came),
        attempts,
        began_ms: began.0,
        ended_ms: live.shared.host.wall().0,
        kind: record::StepKind::Transactional as i32,
        generation: 0,
    }
}

/// Polls an attempt to its end, or until it has taken too long. What permits it is looked at right before its first poll.
async fn polled<'t, M>(
    live: &Live,
    step: &Arc<StepName>,
    mut acting: Theirs<'t, M, Result<Payload, Trouble>>,
    most: Duration,
) -> Outcome
where
    M: FnOnce() -> BoxFuture<'t, Result<Payload, Trouble>>,
{
    let shared = &live.shared;
    let mut started: Option<(Boot, BoxFuture<'static, ()>)> = None;
    poll_fn(|cx| {
        let now = shared.host.boot();
        let late = || Poll::Ready(Outcome::Returned(Err(Trouble::Timeout(most))));
        let alarm = match &mut started {
            Some((deadline, _)) if now >= *deadline => return late(),
            Some((_, alarm)) => alarm,
            None if (shared.lease.good(now) || planted!("work_behind_the_lease")) && conduct::begins(live, step, now + most) => {
                &mut started.insert((now + most, shared.host.sleep(most))).1
            }
            None => return Poll::Ready(Outcome::NotBegun),
        };
        match acting.poll(cx) {
            Poll::Ready(returned) => {
                let returned = returned.unwrap_or_else(|panic| Err(Trouble::Panic(panic)));
                Poll::Ready(Outcome::Returned(returned.map(Came::Value)))
            }
            Poll::Pending if alarm.as_mut().poll(cx).is_ready() => late(),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

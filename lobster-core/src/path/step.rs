//! Step: what is recorded is given, what is not is run: the attempts of an ordinary or durable step.
//!
//! Invariant: a value the body sees was decoded from the bytes that are recorded, the first time as on every resume.

use crate::{
    call::{Begin, Call, Polling, PollingGuard},
    codec::{self, Returned},
    ctx::{Flow, StepCtx},
    error::{BoxError, StepFailed, Told, cut, panic_text, tell},
    host::{BoxFuture, Host, OsHost},
    live::{Completed, Interrupt},
    name,
    spec::{Spec, StepKind},
    state::{
        Leases, Wanted,
        loan::{Loans, Opening, Why},
    },
};
use lobster_store::contract::record::{self, Attempt, Came, Failure, FailureKind, Payload, StateChange, StepResult};
use serde::{
    Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use std::{
    future::{Future, pending, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::atomic::Ordering,
    task::Poll,
    time::Duration,
};

/// How an attempt went wrong.
pub(crate) enum Trouble {
    /// It returned an error.
    Error(BoxError),
    /// It panicked.
    Panic(String),
    /// It took longer than its `timeout`.
    Timeout(Duration),
    /// Its value cannot be recorded.
    Encoding(String),
    /// No other attempt will go better.
    Fatal(String),
}

/// Runs an ordinary or durable step, or gives what is recorded.
pub(crate) async fn step<'c, W, O, Fut>(
    call: &'c Call,
    wanted: W,
    mut body: impl FnMut(&'c StepCtx, Leases<W>) -> Fut,
) -> Result<O::Value, StepFailed>
where
    W: Wanted,
    O: Returned,
    O::Error: Into<BoxError>,
    Fut: Future<Output = (O, Leases<W>)>,
{
    let start = match call.begin().await {
        Begin::Recorded(came) => return read(call, came).await,
        Begin::Refused(failed) => return Err(failed),
        Begin::Run(start) => start,
        Begin::Resolve(_) => return pending().await,
    };
    if start.doubt.is_some() {
        // Recorded when it was irreversible: running it as another kind would be a call that nobody has asked for.
        return misfit(call, "is in doubt as an irreversible step, and is another kind of step now").await;
    }
    let mut number = start.attempts + 1;
    if let Some(due) = start.due {
        call.backoff(due, format!("waits for attempt {number} of {}", name::display(&call.cx.step))).await;
    }
    let began_ms = wall(call);
    loop {
        call.cx.attempt.store(number, Ordering::Relaxed);
        let leases = match checkout(call, &wanted).await {
            Ok(leases) => leases,
            Err(failed) => return Err(failed),
        };
        let done = attempt(call, body(&call.cx, leases)).await.and_then(|(output, leases)| {
            let (payload, value) = encode(output.split().map_err(Into::into))?;
            Ok((payload, value, collect::<W>(leases)?))
        });
        let (came, value, (changes, loans)) = match done {
            Ok((payload, value, changed)) => (Came::Value(payload), Ok(value), changed),
            Err(trouble) => match after(call.spec, &call.cx, number, trouble, random(call)) {
                Next::Again(failure, delay) => {
                    again(call, number, failure, delay).await;
                    number += 1;
                    continue;
                }
                Next::Failed(failure) => {
                    (Came::Failure(failure.clone()), Err(StepFailed::from_record(failure)), Default::default())
                }
            },
        };
        let passing = call.is_round() && is_again(&came);
        let result = StepResult {
            step: Some((*call.cx.step).clone()),
            came: Some(came),
            attempts: number,
            began_ms,
            ended_ms: wall(call),
            kind: kind(call.spec.kind) as i32,
            generation: 0,
        };
        call.complete(Completed { result, changes, passing }, loans).await;
        return value;
    }
}

/// Is this the value of a round that another follows?
fn is_again(came: &Came) -> bool {
    matches!(came, Came::Value(payload) if matches!(codec::decode::<Flow<IgnoredAny>>(payload), Ok(Flow::Again)))
}

/// Takes the states that a step asks for, as the last step left them.
async fn checkout<W: Wanted>(call: &Call, wanted: &W) -> Result<Leases<W>, StepFailed> {
    let mut names = wanted.names();
    let refuse = |code, message: String| StepFailed::refused(code, message, &name::display(&call.cx.step));
    for name in &names {
        if let Some(complaint) = name::complaint(name) {
            return Err(refuse("InvalidName", format!("the name of a state {complaint}")));
        }
    }
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(refuse("SameName", "it asks twice for a state of one name".into()));
    }
    let found = call.checkout(&wanted.names()).await;
    // Decoding, migrations and rebuilding are the user's code: they may panic.
    let home = &call.cx.home;
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let _polling = PollingGuard::set(Polling::Step);
        wanted.open(Opening::new(home, found))
    }));
    let why = match opened {
        Ok(Ok(leases)) => return Ok(leases),
        Ok(Err(denied)) => denied.0,
        Err(panic) => Why::Interrupted(Interrupt::Hold(format!("reading the recorded state {}", panic_text(&*panic)))),
    };
    match (why, call.live()) {
        (Why::Refused(code, message), _) => Err(refuse(code, message)),
        (Why::Interrupted(interrupt), Some(live)) => {
            live.interrupt(interrupt);
            pending().await
        }
        (Why::Interrupted(interrupt), None) => Err(refuse("State", format!("{interrupt:?}"))),
    }
}

/// What a step changed, and its states to go back with that.
fn collect<W: Wanted>(mut leases: Leases<W>) -> Result<(Vec<StateChange>, Loans), Trouble> {
    match catch_unwind(AssertUnwindSafe(|| W::collect(&mut leases))) {
        Ok(Ok(changes)) => Ok((changes, W::loans(leases))),
        Ok(Err(why)) => Err(Trouble::Encoding(why)),
        Err(panic) => Err(Trouble::Panic(panic_text(&*panic))),
    }
}

/// Encodes a step's value, and decodes it again: what the body goes on with is what a resume would give it.
pub(crate) fn encode<V: Serialize + DeserializeOwned>(output: Result<V, BoxError>) -> Result<(Payload, V), Trouble> {
    let value = output.map_err(Trouble::Error)?;
    // A serializer is the user's code: it may panic.
    catch_unwind(AssertUnwindSafe(|| {
        let payload = codec::encode(&value).map_err(|error| Trouble::Encoding(error.to_string()))?;
        let value = codec::decode(&payload)
            .map_err(|error| Trouble::Encoding(format!("the value can be encoded, but not decoded again: {error}")))?;
        Ok((payload, value))
    }))
    .unwrap_or_else(|panic| Err(Trouble::Panic(panic_text(&*panic))))
}

/// Polls one attempt: in its place, within its time, panics caught.
async fn attempt<F: Future>(call: &Call, attempt: F) -> Result<F::Output, Trouble> {
    let mut attempt = pin!(attempt);
    let mut timeout = call.spec.timeout().and_then(|limit| Some((limit, sleep(call, limit)?)));
    poll_fn(|cx| {
        let polled = {
            let _polling = PollingGuard::set(Polling::Step);
            catch_unwind(AssertUnwindSafe(|| attempt.as_mut().poll(cx)))
        };
        match polled {
            Ok(Poll::Ready(output)) => return Poll::Ready(Ok(output)),
            Ok(Poll::Pending) => {}
            Err(panic) => return Poll::Ready(Err(Trouble::Panic(panic_text(&*panic)))),
        }
        let Some((limit, sleep)) = &mut timeout else { return Poll::Pending };
        sleep.as_mut().poll(cx).map(|()| Err(Trouble::Timeout(*limit)))
    })
    .await
}

fn sleep(call: &Call, limit: Duration) -> Option<BoxFuture<'static, ()>> {
    match call.live() {
        Some(live) => Some(live.shared.host.sleep(limit)),
        None => OsHost::current().map(|host| host.sleep(limit)),
    }
}

/// What follows a failed attempt.
pub(crate) enum Next {
    Again(Failure, Duration),
    Failed(Failure),
}

/// Decides what follows attempt `number` of a step whose failed calls have no effect to care for.
pub(crate) fn after(spec: &Spec, cx: &StepCtx, number: u32, trouble: Trouble, random: u64) -> Next {
    let Told { mut failure, fatal, retry_after, .. } = describe(trouble);
    failure.step = name::display(&cx.step);
    failure.attempts = number;
    if fatal || number >= spec.retry.attempts {
        if failure.kind == FailureKind::Unspecified as i32 {
            failure.kind = if fatal { FailureKind::Fatal } else { FailureKind::Exhausted } as i32;
        }
        return Next::Failed(failure);
    }
    Next::Again(failure, spec.retry.delay(number, random).max(retry_after.unwrap_or_default()))
}

/// What a trouble amounts to.
pub(crate) fn describe(trouble: Trouble) -> Told {
    let of = |kind: FailureKind, message: String| Told {
        fatal: matches!(kind, FailureKind::Fatal | FailureKind::Encoding),
        did_not_happen: false,
        retry_after: None,
        failure: Failure { kind: kind as i32, message: cut(message), ..Failure::default() },
    };
    match trouble {
        Trouble::Error(error) => {
            let mut told = tell(error);
            // A failure handed on from another step is this step's own failure now.
            told.failure.kind = FailureKind::Unspecified as i32;
            told
        }
        Trouble::Panic(message) => of(FailureKind::Panic, message),
        Trouble::Timeout(limit) => of(FailureKind::Timeout, format!("took longer than {limit:?}")),
        Trouble::Fatal(message) => of(FailureKind::Fatal, message),
        Trouble::Encoding(message) => of(FailureKind::Encoding, message),
    }
}

async fn again(call: &Call, number: u32, failure: Failure, delay: Duration) {
    let Some(live) = call.live() else { return };
    let due = live.shared.host.wall().plus(delay);
    let reason = format!("{} failed {number} times, last: {}", name::display(&call.cx.step), failure.message);
    let attempt = Attempt {
        step: Some((*call.cx.step).clone()),
        number,
        failure: Some(failure),
        due_ms: due.0,
        in_doubt: false,
        generation: 0,
        probes: 0,
    };
    call.again(attempt, due, reason).await;
}

/// Reads a recorded result. One that does not decode holds the run: the code is not the one that recorded it.
pub(crate) async fn read<V: DeserializeOwned>(call: &Call, came: Came) -> Result<V, StepFailed> {
    let payload = match came {
        Came::Failure(failure) => return Err(StepFailed::from_record(failure)),
        Came::Value(payload) => payload,
    };
    match codec::decode(&payload) {
        Ok(value) => Ok(value),
        Err(error) => {
            let step = name::display(&call.cx.step);
            let Some(live) = call.live() else {
                return Err(StepFailed::new(FailureKind::Encoding, "", error.to_string(), &step));
            };
            live.interrupt(Interrupt::Hold(format!("the recorded result of {step} does not fit the code: {error}")));
            pending().await
        }
    }
}

/// Holds the run of a step whose recording does not fit the code.
pub(crate) async fn misfit<V>(call: &Call, why: &str) -> Result<V, StepFailed> {
    if let Some(live) = call.live() {
        live.interrupt(Interrupt::Hold(format!("{} {why}", name::display(&call.cx.step))));
    }
    pending().await
}

pub(crate) fn kind(kind: StepKind) -> record::StepKind {
    match kind {
        StepKind::Ordinary => record::StepKind::Ordinary,
        StepKind::Durable => record::StepKind::Durable,
        StepKind::Irreversible => record::StepKind::Irreversible,
        StepKind::Transactional => record::StepKind::Transactional,
    }
}

fn wall(call: &Call) -> i64 {
    call.live().map_or(0, |live| live.shared.host.wall().0)
}

fn random(call: &Call) -> u64 {
    call.live().map_or(0, |live| live.shared.host.random())
}

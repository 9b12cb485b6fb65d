//! What every step that runs on a task of the engine shares: how it begins, waits, and hands its result to the body.
//!
//! Invariant: a conducted step is in the run's list until its result is known there, or the run was interrupted.

use crate::{
    call::{Call, Polling, PollingGuard},
    error::panic_text,
    host::{BoxFuture, sleep_until},
    live::{CallState, Conducted, Inner, Interrupt, Live},
    name,
};
use lobster_store::contract::{
    Boot, Seq, Wall,
    record::{Came, StepName},
};
use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

/// The run was interrupted while the step waited.
pub(crate) struct Interrupted;

/// Enters a step into the run's list. `attended`: the body waits for it.
pub(crate) fn begin(live: &Arc<Live>, call: &Call, attended: bool) -> Arc<StepName> {
    let step = call.cx.step.clone();
    let mut inner = live.lock();
    if attended && let Some(open) = inner.calls.get_mut(&call.id()) {
        open.state = CallState::Conducted;
    }
    inner.conducts.insert(step.clone(), Conducted { call: attended.then(|| call.id()), ..Conducted::default() });
    step
}

/// Sees a step through to its end. What the conductor itself panics with holds the run: a call of it may have begun, and nobody would ever
/// see to that.
pub(crate) async fn run(live: &Arc<Live>, step: &Arc<StepName>, conductor: impl Future<Output = Result<(), Interrupted>>) {
    let mut conductor = pin!(conductor);
    let ended = poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| conductor.as_mut().poll(cx))).unwrap_or_else(|panic| {
            live.interrupt(Interrupt::Hold(format!("{} {}", name::display(step), panic_text(&*panic))));
            Poll::Ready(Err(Interrupted))
        })
    });
    end(live, step, ended.await);
}

/// Enters code of the run's author from a task of the engine: noted, in its place, and with panics caught.
pub(crate) fn enter<T>(live: &Live, code: impl FnOnce() -> T) -> Result<T, String> {
    let _acting = live.acting();
    let _polling = PollingGuard::set(Polling::Step);
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| panic_text(&*panic))
}

/// A future of the run's author on a task of the engine. Everything it does, from its making to its destructors, is noted, is in its
/// place, and may panic.
pub(crate) struct Theirs<'t, M, T> {
    live: Arc<Live>,
    make: Option<M>,
    made: Option<BoxFuture<'t, T>>,
}

impl<'t, M: FnOnce() -> BoxFuture<'t, T>, T> Theirs<'t, M, T> {
    /// Made with its first poll.
    pub fn new(live: &Arc<Live>, make: M) -> Self {
        Self { live: live.clone(), make: Some(make), made: None }
    }

    /// What it returns, or what it panicked with.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, String>> {
        let Self { live, make, made } = self;
        let polled = enter(live, || {
            if let Some(make) = make.take() {
                *made = Some(make());
            }
            let polled = made.as_mut().expect("it was made with its first poll").as_mut().poll(cx);
            if polled.is_ready() {
                gone(live, made.take());
            }
            polled
        });
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

impl<M, T> Drop for Theirs<'_, M, T> {
    fn drop(&mut self) {
        if let Some(made) = self.made.take() {
            // What it returned is known, or does not count any more; what went wrong now says so itself.
            let _ = enter(&self.live, || gone(&self.live, made));
        }
    }
}

/// Drops what may panic at it.
pub(crate) fn gone<T>(live: &Live, theirs: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(theirs))).is_err() {
        tracing::warn!(run = %live.run, "a destructor of a step panicked");
    }
}

/// May the author's code begin now? Says by when it comes to its end: whoever interrupts the run finds that.
pub(crate) fn begins(live: &Live, step: &Arc<StepName>, ends: Boot) -> bool {
    let mut inner = live.lock();
    if inner.interrupt.is_some() {
        return false;
    }
    if let Some(conducted) = inner.conducts.get_mut(step) {
        conducted.ends = Some(ends);
    }
    true
}

/// Puts its result, recorded at `seq`, where the body finds it. Under the lock under which it was recorded: whatever is recorded later is
/// shown later, on a first execution as on a resume.
pub(crate) fn land(inner: &mut Inner, step: &Arc<StepName>, seq: Seq, came: Came) {
    let conducted = inner.conducts.remove(step);
    let known = inner.known.entry(step.clone()).or_default();
    let attached = known.detached;
    // Nobody asks for the seq: only "it has a result" and the value matter from here on.
    known.result = Some((0, came.clone()));
    if let Some(id) = conducted.and_then(|conducted| conducted.call)
        && let Some(open) = inner.calls.get_mut(&id)
    {
        if attached {
            open.state = CallState::Attaching(came);
            inner.ready.push_back(id);
        } else {
            open.state = CallState::Landed(came);
            inner.landed.insert(seq, id);
        }
    }
}

/// Takes a step out of the run's list. One without a result is left to whoever has the run next.
fn end(live: &Arc<Live>, step: &Arc<StepName>, ended: Result<(), Interrupted>) {
    let mut inner = live.lock();
    if ended.is_err() {
        inner.conducts.remove(step);
        inner.unresolved = true;
    }
    drop(inner);
    live.ring();
}

/// Waits until `due` in a way that lets the run leave memory.
pub(crate) async fn wait(live: &Arc<Live>, step: &Arc<StepName>, due: Wall, reason: String) -> Result<(), Interrupted> {
    let waits = |waits| {
        if let Some(conducted) = live.lock().conducts.get_mut(step) {
            conducted.waits = waits;
        }
        live.bell.notify_one();
    };
    waits(Some((due, reason)));
    let interrupted = tokio::select! {
        biased;
        _ = live.interrupted() => true,
        () = sleep_until(&*live.shared.host, due) => false,
    };
    waits(None);
    if interrupted { Err(Interrupted) } else { Ok(()) }
}

/// Waits until the lease permits a call.
pub(crate) async fn until_lease(live: &Arc<Live>, step: &Arc<StepName>) -> Result<(), Interrupted> {
    let shared = &live.shared;
    while !shared.lease.good(shared.host.boot()) {
        let due = shared.host.wall().plus(shared.settings.lease.renew / 4);
        wait(live, step, due, format!("{}: the node's lease has lapsed", name::display(step))).await?;
    }
    Ok(())
}

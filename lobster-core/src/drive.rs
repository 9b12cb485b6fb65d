//! The driver: polls a run's body, shows it one result per poll in seq order, and sees the run out.
//!
//! Invariant: after an interrupt the body is never polled again, and the run is left only when every started call is recorded.

use crate::{
    call::{Polling, PollingGuard},
    codec::CodecError,
    error::{StepFailed, cut, panic_text},
    host::{BoxFuture, sleep_until},
    live::{CallState, Completed, Inner, Interrupt, Live},
    name,
    path::{
        commit::commit_with,
        finish::{Finished, finish},
    },
    state::loan::Fate,
};
use lobster_store::{
    contract::{
        Ended, FORKED, RunState, Sealed, Then, Wall,
        record::{Changed, Ending, Fact, Failure, FailureKind, Kind, Outcome, Payload, Round, StepName},
    },
    planted,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};
use tokio::sync::Notify;

/// A body, erased: its value encoded, or why it failed.
pub(crate) type Body = BoxFuture<'static, Result<Payload, Failure>>;

/// Wakes a body. Counted: a live clone that no wait of the engine holds belongs to something foreign.
struct BodyWaker {
    woken: AtomicBool,
    bell: Arc<Notify>,
}

impl Wake for BodyWaker {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        let bell = self.bell.clone();
        // Let go before the driver counts: nothing tells it when that is done afterwards.
        drop(self);
        bell.notify_one();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.bell.notify_one();
    }
}

/// What the driver does next.
enum Next {
    Poll,
    /// Nothing until a bell rings, or until then.
    Wait(Option<Wall>),
    /// The run only waits, until then: it may leave memory.
    Evict(Wall, String),
    Stop,
}

/// How the body's part ended.
enum End {
    Body(Result<Payload, Failure>),
    Interrupted,
    Evicted,
}

/// Drives a run from its restored image to where it leaves this process. `begin` decodes its input and calls its function.
pub(crate) async fn drive(live: Arc<Live>, begin: impl FnOnce() -> Result<Body, CodecError>) {
    let end = match begun(&live, begin) {
        Some(body) => poll(&live, body).await,
        None => End::Interrupted,
    };
    see_out(&live, end).await;
}

/// The body; `None` if the run was interrupted before it, or by what `begin` came to. The run is noted from here on.
fn begun(live: &Live, begin: impl FnOnce() -> Result<Body, CodecError>) -> Option<Body> {
    if live.lock().interrupt.is_some() {
        return None;
    }
    live.shared.note(live.slot, Some(live.run));
    let why = match catch_unwind(AssertUnwindSafe(begin)) {
        Ok(Ok(body)) => return Some(body),
        Ok(Err(error)) => format!("the input does not fit the code: {error}"),
        Err(panic) => format!("the task's function {}", panic_text(&*panic)),
    };
    live.shared.note(live.slot, None);
    live.interrupt(Interrupt::Hold(why));
    None
}

async fn poll(live: &Arc<Live>, mut body: Body) -> End {
    let counted = Arc::new(BodyWaker { woken: AtomicBool::new(true), bell: live.bell.clone() });
    let waker = Waker::from(counted.clone());
    let mut noted = true;
    let end = loop {
        // A body whose every step is ready would otherwise never let the committer run.
        tokio::task::consume_budget().await;
        match next(live, &counted, &waker) {
            Next::Stop => break End::Interrupted,
            Next::Poll => {
                if !noted {
                    live.shared.note(live.slot, Some(live.run));
                    noted = true;
                }
                match catch_unwind(AssertUnwindSafe(|| {
                    let _polling = PollingGuard::set(Polling::Body(&raw const **live));
                    body.as_mut().poll(&mut Context::from_waker(&waker))
                })) {
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(result)) => break End::Body(result),
                    Err(panic) => break End::Body(Err(panicked(&*panic))),
                }
            }
            Next::Wait(until) => {
                if noted {
                    live.shared.note(live.slot, None);
                    noted = false;
                }
                wait(live, until).await;
            }
            Next::Evict(due, reason) => {
                if noted {
                    live.shared.note(live.slot, None);
                    noted = false;
                }
                let wake = live.lock().wake;
                match finish(live, Then::Evict { due, wake, reason }).await {
                    Finished::Done => break End::Evicted,
                    Finished::Fenced | Finished::Forked => break End::Interrupted,
                    Finished::Refused => {
                        let cancel = live.lock().cancel;
                        live.interrupt(if cancel { Interrupt::Cancel } else { Interrupt::Release });
                    }
                }
            }
        }
    };
    if matches!(end, End::Evicted) {
        // Whoever still waits for this run may go, and nothing that its destructors do is recorded.
        live.interrupt(Interrupt::Gone);
    }
    live.shared.note(live.slot, Some(live.run));
    if catch_unwind(AssertUnwindSafe(|| drop(body))).is_err() {
        tracing::warn!(run = %live.run, "a destructor of the body panicked");
    }
    live.shared.note(live.slot, None);
    end
}

async fn wait(live: &Live, until: Option<Wall>) {
    let bell = live.bell.notified();
    match until {
        None => bell.await,
        Some(due) => {
            tokio::select! {
                biased;
                () = bell => {}
                () = sleep_until(&*live.shared.host, due) => {}
            }
        }
    }
}

/// Decides the next move; gives one call the turn if it is a poll that shows a result.
fn next(live: &Arc<Live>, counted: &Arc<BodyWaker>, waker: &Waker) -> Next {
    let mut guard = live.lock();
    let inner = &mut *guard;
    if inner.interrupt.is_some() && !planted!("interrupted_body_polled") {
        return Next::Stop;
    }
    if counted.woken.swap(false, Ordering::SeqCst) {
        // What woke the body gets a poll of its own, in which no result is shown.
        inner.polls += 1;
        inner.shown = false;
        return Next::Poll;
    }
    if inner.turn.is_none() {
        inner.turn = show_next(live, inner);
    }
    if let Some(id) = inner.turn {
        let open = inner.calls.get_mut(&id).expect("a closed call has no turn");
        if let Some(waker) = open.waker.take() {
            inner.polls += 1;
            inner.shown = false;
            drop(guard);
            waker.wake();
            // Our own doing, not a foreign waker's.
            counted.woken.store(false, Ordering::SeqCst);
            return Next::Poll;
        }
    }
    let wakers = inner.start_next(live.shared.host.wall());
    if wakers.is_empty() {
        return inner.idle(live, counted, waker);
    }
    inner.polls += 1;
    inner.shown = false;
    drop(guard);
    wakers.into_iter().for_each(Waker::wake);
    counted.woken.store(false, Ordering::SeqCst);
    Next::Poll
}

/// The call that is shown its result next, in seq order. Ordinary results get their seq here.
fn show_next(live: &Arc<Live>, inner: &mut Inner) -> Option<u64> {
    if planted!("replay_out_of_order") {
        let asked =
            |step: &Arc<StepName>| inner.calls.values().any(|open| matches!(open.state, CallState::Replay) && open.step == *step);
        let last = inner.replay.iter().rposition(|(_, shown)| asked(&shown.step));
        if let Some(last) = last {
            inner.replay.swap(0, last);
        }
    }
    if let Some((_, front)) = inner.replay.front() {
        let waiting = |open: &crate::live::Open| matches!(open.state, CallState::Replay) && open.step == front.step;
        let id = *inner.calls.iter().find(|(_, open)| waiting(open))?.0;
        let (_, shown) = inner.replay.pop_front().expect("its front was just looked at");
        inner.calls.get_mut(&id).expect("it was just found").state = CallState::Landed(shown.came);
        return Some(id);
    }
    // What is recorded behind a transaction that is under way is shown after it.
    let alone = inner.alone.filter(|_| !planted!("place_not_awaited"));
    let mut landed = inner.landed.first_entry().filter(|first| alone.is_none_or(|alone| *first.key() < alone));
    if let Some((id, seq)) = inner.syncing
        && landed.as_ref().is_none_or(|first| seq < *first.key())
    {
        if inner.synced < seq {
            return None;
        }
        inner.syncing = None;
        // Its call may have been dropped meanwhile.
        if inner.calls.contains_key(&id) {
            return Some(id);
        }
    }
    if let Some(first) = landed.take() {
        return Some(first.remove());
    }
    if alone.is_some() {
        return None;
    }
    if inner.lag() >= live.shared.settings.commit.lag_deltas || inner.lag_bytes >= live.shared.settings.commit.lag_bytes {
        return None;
    }
    let id = inner.ready.pop_front()?;
    let open = inner.calls.get_mut(&id).expect("a closed call is not ready");
    let (step, durable, keyed) = (open.step.clone(), open.durable, open.unkeyed.is_none());
    let loans = std::mem::take(&mut open.loans);
    let (fact, came, changes) = match std::mem::replace(&mut open.state, CallState::Running) {
        CallState::Ready(completed) => {
            let Completed { mut result, changes, passing } = *completed;
            let came = result.came.take().expect("a result handed in has a value");
            result.came = Some(came.clone());
            open.passing = passing;
            (Some(Fact::Result(result)).filter(|_| !passing), came, changes)
        }
        CallState::Attaching(came) => (Some(Fact::Attached((*step).clone())), came, Vec::new()),
        _ => unreachable!("only calls with a result are ready"),
    };
    open.state = CallState::Landed(came.clone());
    let passing = fact.is_none();
    let mut changes: Vec<_> = changes.into_iter().map(Changed::State).collect();
    if planted!("state_without_its_result") && !changes.is_empty() && !passing {
        commit_with(live, inner, None, std::mem::take(&mut changes), durable);
    }
    if passing {
        let done = inner.rounds.entry(step.clone()).or_default();
        *done += 1;
        let round = Changed::Round(Round { step: Some((*step).clone()), done: *done, attempt: None });
        changes.extend(Some(round).filter(|_| changes.is_empty() || !planted!("round_not_recorded")));
        // What is known of it was about this round.
        inner.known.remove(&step);
    } else if inner.rounds.remove(&step).is_some() {
        let seq = inner.next;
        inner.folding.ended(seq, step.clone());
    }
    if keyed && !passing {
        let known = inner.known.entry(step).or_default();
        if known.result.is_none() {
            known.result = Some((inner.next, came));
        }
    }
    let seq = commit_with(live, inner, fact, changes, durable);
    for (name, held) in loans.0 {
        inner.states.give(&name, Some(held), Fate::Recorded);
    }
    if durable && !planted!("durable_not_awaited") {
        inner.syncing = Some((id, seq));
        return None;
    }
    Some(id)
}

impl Inner {
    /// Wakes calls whose time has come: unstarted ones once everything recorded was shown, those due for another attempt, and those
    /// whose states are free.
    fn start_next(&mut self, now: Wall) -> Vec<Waker> {
        let may_start = self.may_start();
        let mut wakers = Vec::new();
        let queued = self.calls.iter().filter_map(|(id, open)| match &open.state {
            CallState::Queued(names) if self.may_take(*id, names) => Some(*id),
            _ => None,
        });
        for id in queued.collect::<Vec<_>>() {
            wakers.extend(self.calls.get_mut(&id).and_then(|open| open.waker.take()));
        }
        for open in self.calls.values_mut() {
            match &open.state {
                CallState::Unstarted if may_start => wakers.extend(open.waker.take()),
                CallState::Backoff(due, _) if *due <= now => {
                    open.state = CallState::Running;
                    wakers.extend(open.waker.take());
                }
                _ => {}
            }
        }
        wakers
    }

    /// Nothing can be shown or started now: wait, leave memory, or say what does not fit.
    fn idle(&mut self, live: &Live, counted: &Arc<BodyWaker>, waker: &Waker) -> Next {
        let waits = |open: &crate::live::Open| match &open.state {
            CallState::Backoff(due, reason) => Some((*due, reason.clone())),
            CallState::Conducted => self.conducts.get(&open.step)?.waits.clone(),
            _ => None,
        };
        let due = self.calls.values().filter_map(waits).min_by_key(|(due, _)| *due);
        let until = self
            .calls
            .values()
            .filter_map(|open| if let CallState::Backoff(due, _) = open.state { Some(due) } else { None })
            .min();
        let held = self.calls.values().filter_map(|open| open.waker.as_ref()).filter(|held| held.will_wake(waker)).count();
        // One reference is the driver's, one the waker's.
        let foreign = Arc::strong_count(counted) > 2 + held;
        let conducting = self.conducts.values().any(|conducted| conducted.waits.is_none());
        if foreign || conducting || self.busy() {
            return Next::Wait(until);
        }
        if self.draining && self.calls.values().all(|open| waits(open).is_some() || matches!(open.state, CallState::Unstarted)) {
            self.interrupt = Some(Interrupt::Release);
            return Next::Stop;
        }
        if let Some((_, front)) = self.replay.front() {
            let stuck = self
                .calls
                .values()
                .all(|open| matches!(open.state, CallState::Unstarted | CallState::Replay | CallState::Called));
            if stuck && self.syncing.is_none() {
                let asked: Vec<_> = self.calls.values().map(|open| name::display(&open.step)).collect();
                self.interrupt = Some(Interrupt::Hold(format!(
                    "the recording goes on with {}, the code asks for {}: it is not the code that this run was recorded with",
                    name::display(&front.step),
                    if asked.is_empty() { "nothing".into() } else { asked.join(", ") },
                )));
                return Next::Stop;
            }
        }
        match due {
            Some((due, reason))
                if self.only_waits() && due.since(live.shared.host.wall()) > live.shared.settings.run.evict_after =>
            {
                Next::Evict(due, reason)
            }
            _ => Next::Wait(until),
        }
    }

    /// Does a result wait for the committer?
    fn busy(&self) -> bool {
        self.syncing.is_some() || !self.ready.is_empty() || !self.landed.is_empty()
    }

    /// Is every open call one that waits for a time the engine knows?
    fn only_waits(&self) -> bool {
        self.replay.is_empty()
            && self.turn.is_none()
            && !self.busy()
            && self.calls.values().all(|open| match &open.state {
                CallState::Backoff(..) => true,
                CallState::Conducted => self.conducts.get(&open.step).is_some_and(|conducted| conducted.waits.is_some()),
                _ => false,
            })
    }
}

/// The failure of a body that panicked.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    Failure { kind: FailureKind::Panic as i32, message: cut(panic_text(panic)), ..Failure::default() }
}

/// Waits for started calls, then tells the store what becomes of the run.
async fn see_out(live: &Arc<Live>, end: End) {
    let outcome = match end {
        End::Evicted => return settled(live).await,
        End::Interrupted => None,
        End::Body(result) => {
            settled(live).await;
            Some(result)
        }
    };
    // A body that ended before what is recorded, or beside it, was not the body that recorded it.
    // Decided before the arms: they lock the run again.
    let misfit = outcome.as_ref().map(|_| live.lock().misfit());
    let outcome = match outcome.zip(misfit) {
        Some((result, misfit)) => match misfit {
            Misfit::None => Some(result),
            Misfit::Refused(failed) => Some(result.and_then(|_| Err(failed.record().clone()))),
            Misfit::Held(reason) => {
                live.interrupt(Interrupt::Hold(reason));
                None
            }
        },
        None => None,
    };
    settled(live).await;
    loop {
        let (interrupt, unresolved) = {
            let inner = live.lock();
            (inner.interrupt.clone(), inner.unresolved)
        };
        // A call that the body dropped is part of the run: with its fate open the run has not ended.
        let outcome = outcome.as_ref().filter(|_| !unresolved || interrupt.is_none());
        let then = match (&interrupt, outcome) {
            (Some(Interrupt::Fenced | Interrupt::Gone), _) => return,
            // A cancel asks for nothing more of a recording than to be left as it is.
            (Some(Interrupt::Forked(_)), _) if live.lock().cancel => {
                done(live, RunState::Cancelled, Ending::Cancelled(String::new()))
            }
            (Some(Interrupt::Forked(why)), _) => {
                tracing::error!(run = %live.run, %why, "forked recording: the run is held");
                let wake = live.lock().wake;
                Then::Hold { reason: format!("{FORKED}{why}"), wake }
            }
            (_, Some(Ok(value))) => done(live, RunState::Succeeded, Ending::Value(value.clone())),
            (_, Some(Err(failure))) => done(live, RunState::Failed, Ending::Failure(failure.clone())),
            (Some(Interrupt::Cancel), None) => done(live, RunState::Cancelled, Ending::Cancelled(String::new())),
            (Some(Interrupt::Hold(reason)), None) => {
                let wake = live.lock().wake;
                Then::Hold { reason: reason.clone(), wake }
            }
            (Some(Interrupt::Newer(reason)), None) => {
                // Somebody who can has the time until then; whoever cannot claims it no sooner.
                let due = live.shared.host.wall().plus(live.shared.settings.run.newer_retry);
                let wake = live.lock().wake;
                Then::Evict { due, wake, reason: reason.clone() }
            }
            (Some(Interrupt::Release) | None, None) => Then::Release,
        };
        let ended = match &then {
            Then::Finish { state, outcome, .. } => Some(Ended { state: *state, outcome: outcome.clone() }),
            Then::Evict { .. } | Then::Release | Then::Hold { .. } => None,
        };
        match finish(live, then).await {
            Finished::Done => {
                // It is synced: whoever waits for it in this process needs no read.
                if let Some(ended) = ended {
                    live.shared.client.ended(live.run, &ended);
                }
                return;
            }
            Finished::Fenced => return,
            Finished::Forked => {}
            Finished::Refused => {
                // A hold met a verdict or a cancel.
                let mut inner = live.lock();
                if !matches!(inner.interrupt, Some(Interrupt::Forked(_))) {
                    inner.interrupt = Some(if inner.cancel { Interrupt::Cancel } else { Interrupt::Release });
                }
            }
        }
    }
}

fn done(live: &Live, state: RunState, ending: Ending) -> Then {
    let outcome = Sealed::new(Kind::Outcome, live.run, &Outcome { ending: Some(ending) });
    Then::Finish { state, outcome, at: live.shared.host.wall() }
}

enum Misfit {
    None,
    Refused(StepFailed),
    Held(String),
}

impl Inner {
    /// Does the end of the body fit what is recorded?
    fn misfit(&self) -> Misfit {
        if let Some((seq, front)) = self.replay.front() {
            return Misfit::Held(format!(
                "the body ended before {} (seq {seq}), which is recorded: it is not the code that this run was recorded with",
                name::display(&front.step)
            ));
        }
        let open = self.known.iter().filter(|(_, known)| known.result.is_none() && known.in_doubt().is_some());
        let open = open.min_by(|(a, _), (b, _)| a.cmp(b));
        if let Some((step, _)) = open {
            return Misfit::Held(format!(
                "{} is in doubt, and the body ended without asking for it: it is not the code that this run was recorded with",
                name::display(step)
            ));
        }
        match &self.ambiguous {
            Some(failed) => Misfit::Refused(failed.clone()),
            None => Misfit::None,
        }
    }
}

/// Waits until no engine task conducts a call of this run.
async fn settled(live: &Live) {
    let settled = live.until(|inner| inner.conducts.is_empty().then_some(()));
    pin!(settled).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Weak, atomic::AtomicUsize};

    /// What holds a waker, counted when the driver is rung.
    struct Rung {
        counted: Weak<BodyWaker>,
        holders: AtomicUsize,
    }

    impl Wake for Rung {
        fn wake(self: Arc<Self>) {
            self.holders.store(self.counted.strong_count(), Ordering::SeqCst);
        }
    }

    #[test]
    fn whoever_wakes_a_body_has_let_go_of_its_waker_when_the_driver_is_rung() {
        let bell = Arc::new(Notify::new());
        let counted = Arc::new(BodyWaker { woken: AtomicBool::new(false), bell: bell.clone() });
        let rung = Arc::new(Rung { counted: Arc::downgrade(&counted), holders: AtomicUsize::new(0) });
        let waker = Waker::from(rung.clone());
        let mut notified = pin!(bell.notified());
        assert!(notified.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        Waker::from(counted.clone()).wake();
        assert_eq!(rung.holders.load(Ordering::SeqCst), 1, "only the driver's own");
        assert!(counted.woken.load(Ordering::SeqCst));
    }
}

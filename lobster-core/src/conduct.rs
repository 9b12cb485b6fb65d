//! What every step that runs on a task of the engine shares: how it begins, waits, and hands its result to the body.
//!
//! Invariant: a conducted step is in the run's list until its result is known there, or the run was interrupted.

use crate::{
    call::Call,
    host::sleep_until,
    live::{CallState, Conducted, Inner, Live},
    name,
};
use lobster_store::contract::{
    Seq, Wall,
    record::{Came, StepName},
};
use std::sync::Arc;

/// The run was interrupted while the step waited.
pub(crate) struct Interrupted;

/// Enters a step into the run's list. `attended`: the body waits for it.
pub(crate) fn begin(live: &Arc<Live>, call: &Call, attended: bool) -> Arc<StepName> {
    let step = call.cx.step.clone();
    let mut inner = live.lock();
    if attended && let Some(open) = inner.calls.get_mut(&call.id()) {
        open.state = CallState::Conducted;
    }
    inner.conducts.insert(step.clone(), Conducted { call: attended.then(|| call.id()), waits: None, calling: false });
    step
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
pub(crate) fn end(live: &Arc<Live>, step: &Arc<StepName>, ended: Result<(), Interrupted>) {
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

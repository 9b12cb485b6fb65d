//! Finish: what becomes of the run goes out with its last rows, synced, and the answer is awaited.
//!
//! Invariant: after a refusal the run is still this holder's.

use crate::live::{Interrupt, Live, ThenState};
use lobster_store::contract::Then;
use std::sync::Arc;

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finished {
    /// The store has it.
    Done,
    /// It was woken, or a cancel is asked for.
    Refused,
    /// The run is somebody else's, or has ended.
    Fenced,
    /// The store holds what this holder never sent: nothing can be written but what sets the run aside.
    Forked,
}

/// Asks for `then` behind everything that the run has recorded.
pub(crate) async fn finish(live: &Arc<Live>, then: Then) -> Finished {
    let aside = {
        let mut inner = live.lock();
        let aside = matches!(then, Then::Hold { .. }) || matches!(inner.interrupt, Some(Interrupt::Forked(_)));
        inner.then = Some(then);
        inner.then_state = ThenState::Asked;
        live.shared.committer.enqueue(live, &mut inner);
        aside
    };
    let finished = live
        .until(|inner| match inner.then_state {
            ThenState::Done => Some(Finished::Done),
            ThenState::Refused => Some(Finished::Refused),
            _ if inner.interrupt == Some(Interrupt::Fenced) => Some(Finished::Fenced),
            _ if !aside && matches!(inner.interrupt, Some(Interrupt::Forked(_))) => Some(Finished::Forked),
            _ => None,
        })
        .await;
    let mut inner = live.lock();
    if matches!(finished, Finished::Refused | Finished::Forked) {
        inner.then = None;
        inner.then_state = ThenState::Idle;
    }
    finished
}

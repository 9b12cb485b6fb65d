//! Verdicts on calls in doubt: the late result of a lost holder, and a person's word.
//!
//! Invariant: a verdict speaks of one intent, which was unresolved in the recording that its author read.

use crate::{call::Doubt, engine::Stores, image, irreversible::verdict, live::Live, name};
use crate::{
    error::{Error, ErrorKind},
    irreversible::Fate,
};
use lobster_store::contract::{
    FORKED, NewVerdict, Origin, RunId, RunState, Sealed, VerdictAnswer,
    record::{Came, Fate as StoredFate, Intent, Kind, StepName, StepResult},
};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// States the result of a call whose holder lost the run while it was on its way.
pub(crate) async fn settle(live: &Arc<Live>, doubt: &Doubt, result: StepResult) {
    let shared = &live.shared;
    let Some(step) = result.step.clone() else { return };
    let came = result.came.clone();
    let mut tries = 0;
    let outcome = loop {
        let at = shared.host.wall();
        let Some(fate) = came.clone().and_then(|came| verdict(Fate::Happened(came), &step, result.generation, at, false)) else {
            return;
        };
        // Where records were lost, another call may have its intent at that place, and this one be armed anew.
        let meant = |(seq, name, intent): (u64, &StepName, &Intent)| {
            (seq == doubt.seq || intent.lost > 0) && *name == step && intent.generation == result.generation
        };
        match state(&shared.stores(), live.run, Origin::Settle, fate, meant).await {
            Err(error) if error.kind() == ErrorKind::Unavailable && tries < 100 => {
                tries += 1;
                shared.host.sleep(Duration::from_millis(50).saturating_mul(1 << tries.min(5))).await;
            }
            outcome => break outcome,
        }
    };
    match outcome {
        Ok(()) => tracing::info!(run = %live.run, step = %name::display(&step), "the late result of a lost run was settled"),
        Err(error) => {
            tracing::warn!(run = %live.run, step = %name::display(&step), %error, "the late result of a lost run came too late");
        }
    }
}

/// States a person's word.
pub(crate) async fn resolve(stores: &Stores, run: RunId, step: Uuid, fate: Fate<Came>, forced: bool) -> Result<(), Error> {
    let at = stores.host.wall();
    // The step's own name and generation are filled in when it is found.
    let Some(fate) = verdict(fate, &StepName::default(), 0, at, forced) else {
        return Err(Error::invalid("only `Fate::Happened` and `Fate::Closed` resolve a step"));
    };
    state(stores, run, Origin::Person, fate, |(_, name, _)| name::step_id(run, name) == step).await
}

/// Finds the intent, checks that it is in doubt, and stores the verdict against the recording that was read.
async fn state(
    stores: &Stores,
    run: RunId,
    origin: Origin,
    fate: StoredFate,
    meant: impl Fn((u64, &StepName, &Intent)) -> bool,
) -> Result<(), Error> {
    let not_found = || Error::new(ErrorKind::NotFound, format!("there is no run {run}"));
    // What the caller speaks of is the call that is in doubt now: not one that follows while this looks again.
    let mut spoken_of = None;
    loop {
        let stored = stores.tiers.catalog.read(run).await?.ok_or_else(not_found)?;
        if stored.summary.state.ended() {
            return Err(Error::new(ErrorKind::Held, format!("run {run} has ended")));
        }
        if origin == Origin::Person && stored.summary.state == RunState::Held && stored.summary.reason.starts_with(FORKED) {
            return Err(Error::new(
                ErrorKind::Held,
                format!("no word on one step releases run {run}, only a cancel ends it: {}", stored.summary.reason),
            ));
        }
        let image = image::fold(run, &stored.recording)?;
        let found = image.known.iter().find_map(|(name, known)| {
            let (seq, intent) = known.in_doubt()?;
            meant((*seq, name, intent)).then(|| (name.clone(), *seq))
        });
        let Some((step, intent)) = found.filter(|(_, intent)| *spoken_of.get_or_insert(*intent) == *intent) else {
            return Err(Error::new(ErrorKind::Held, format!("this step of run {run} is not in doubt")));
        };
        if origin == Origin::Person && stored.summary.state == RunState::Running {
            return Err(Error::new(
                ErrorKind::Held,
                format!(
                    "run {run} is being executed: its own policy is at work on {}; try again if it is held",
                    name::display(&step)
                ),
            ));
        }
        let answer = stores
            .tiers
            .journal
            .verdict(NewVerdict {
                run,
                step: (*step).clone(),
                intent,
                tail: stored.recording.tail,
                origin,
                fate: Sealed::new(Kind::Verdict, run, &fate),
                at: stores.host.wall(),
            })
            .await?;
        return match answer {
            VerdictAnswer::Accepted => Ok(()),
            VerdictAnswer::Moved => continue,
            VerdictAnswer::Exists => Err(Error::new(ErrorKind::Conflict, "there is a verdict on this call already")),
            VerdictAnswer::Ended => Err(Error::new(ErrorKind::Held, format!("run {run} has ended"))),
            VerdictAnswer::NotFound => Err(not_found()),
        };
    }
}

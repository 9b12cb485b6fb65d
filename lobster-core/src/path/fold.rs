//! Fold: the changes of a run become a snapshot, beside its steps.
//!
//! Invariant: a fold is fenced like an append and builds on rows that the store has acknowledged (should it lose them, they come
//! back as the same rows); losing one costs nothing but time.

use crate::{
    live::{Interrupt, Live},
    state::plan::{Built, Draft, Plan},
};
use lobster_store::contract::{
    Failed, Fold, Folded,
    record::{Manifest, Part},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Begins a fold if it is time for one: on a task of its own, at most one at a time of a run.
pub(crate) fn consider(live: &Arc<Live>) {
    let shared = &live.shared;
    let draft = {
        let mut inner = live.lock();
        if matches!(inner.interrupt, Some(Interrupt::Fenced | Interrupt::Forked(_))) {
            return;
        }
        let end = inner.stored;
        inner.folding.look(&shared.settings.state.snapshot, shared.host.boot(), end.seq, end.mark, end.tally)
    };
    if let Some(draft) = draft {
        shared.host.spawn(Box::pin(fold(live.clone(), draft)));
    }
}

async fn fold(live: Arc<Live>, draft: Draft) {
    let shared = &live.shared;
    let at = draft.at;
    let came = match draft.plan() {
        Some(plan) => write(&live, plan).await,
        None => {
            live.lock().folding.later(at, &shared.settings.state.snapshot);
            return;
        }
    };
    let mut inner = live.lock();
    let folding = &mut inner.folding;
    let mut interrupt = None;
    match came {
        Ok((Folded::Done, manifest)) => folding.folded(manifest, shared.host.boot()),
        // Its next append tells the run, if it has not ended; nothing is folded here any more.
        Ok((Folded::Fenced, _)) => folding.give_up(),
        Ok((Folded::Busy, _)) => folding.later(at, &shared.settings.state.snapshot),
        Ok((Folded::Behind, _)) => {
            // The store lost what was not synced. Rows are offered again; a snapshot that was lost with them is found by a restore.
            if folding.behind.replace(at).is_some() {
                interrupt = Some(Interrupt::Release);
            }
            folding.later(at, &shared.settings.state.snapshot);
        }
        Err(error) if error.is_transient() => {
            tracing::debug!(run = %live.run, %error, "a fold was not acknowledged; it is made again");
            folding.later(at, &shared.settings.state.snapshot);
        }
        Err(error) => {
            // What is stored is left as it is: a restore says what is wrong with it.
            tracing::error!(run = %live.run, %error, "this run cannot be folded");
            folding.give_up();
        }
    }
    drop(inner);
    match interrupt {
        Some(interrupt) => live.interrupt(interrupt),
        None => live.ring(),
    }
}

async fn write(live: &Live, plan: Plan) -> Result<(Folded, Manifest), Failed> {
    let journal = &live.shared.tiers.journal;
    let (base, seq, reads) = (plan.base, plan.seq, plan.reads());
    let ids: Vec<u64> = reads.iter().map(|(id, _)| *id).collect();
    let corrupt = |why: String| Failed::Corrupt { run: live.run, seq, record: "part", why };
    let mut read = BTreeMap::new();
    let stored = if ids.is_empty() { Vec::new() } else { journal.parts(live.run, &ids).await? };
    for ((id, crc), part) in reads.iter().zip(&stored) {
        if part.id != *id || part.sealed.crc != *crc {
            return Err(corrupt(format!("part {id} is not the one of its manifest")));
        }
        read.insert(*id, Part::open(live.run, *id, &part.sealed)?);
    }
    if stored.len() < reads.len() {
        // Gone with a snapshot that is not current any more, or never was.
        return Ok((Folded::Behind, Manifest::default()));
    }
    let Some(Built { manifest, sealed, parts, dropped }) = plan.build(live.run, read) else {
        return Err(corrupt("a part is of another kind than its place".into()));
    };
    let fold =
        Fold { incarnation: live.incarnation, run: live.run, epoch: live.epoch, base, seq, manifest: sealed, parts, dropped };
    let mut tries = 0;
    loop {
        live.shared.point("fold sent");
        match journal.fold(fold.clone()).await {
            // It may have applied: the same again finds out.
            Err(Failed::Unknown(why)) if tries < 8 => {
                tries += 1;
                tracing::debug!(run = %live.run, %why, "a fold was not acknowledged; offered again");
                live.shared.host.sleep(Duration::from_millis(10) * (1 << tries)).await;
            }
            folded => {
                live.shared.point("fold acknowledged");
                return Ok((folded?, manifest));
            }
        }
    }
}

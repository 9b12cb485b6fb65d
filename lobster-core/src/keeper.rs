//! The keeper: renews the lease on a thread of its own, and starts over as a new incarnation when it was revoked.
//!
//! Invariant: the lease lives exactly as long as the engine: when the engine stops or its runtime is gone, nobody renews.

use crate::{
    engine::{Member, Shared},
    host::{HostRef, uuid_v7},
    lease::JITTER,
    live::Interrupt,
    path::fold,
    registry::Registry,
    settings::{LeaseSettings, Settings},
    spec::fraction,
};
use lobster_store::{
    Tiers,
    contract::{Beat, Failed, Incarnation, NewNode, Renewed},
};
use std::{sync::Arc, time::Duration};

/// An incarnation that there has not been.
pub(crate) fn fresh(host: &HostRef) -> Incarnation {
    Incarnation(uuid_v7(&**host))
}

/// Joins. The same again, after an unknown outcome, finds what it took.
pub(crate) async fn join(
    tiers: &Tiers,
    settings: &Settings,
    registry: &Registry,
    name: Option<String>,
    incarnation: Incarnation,
) -> Result<Member, Failed> {
    let node = NewNode {
        incarnation,
        name,
        tasks: registry.versions(),
        // Bodies and the engine's calls note what they poll in places of their own.
        slots: 2 * settings.run.executing,
        ttl: settings.lease.ttl,
    };
    let joined = tiers.members.join(node).await?;
    Ok(Member { incarnation, name: joined.name, boot_id: joined.boot_id })
}

/// The keeper's loop. The first beat was sent by whoever started it, when the store's history was `history`.
pub(crate) async fn run(shared: Arc<Shared>, fixed_name: Option<String>, mut history: u64) {
    let (mut seq, mut spent) = (1, Duration::ZERO);
    while !shared.idle() {
        let interval = shared.lease.interval(&shared.settings.lease);
        let pause = interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * fraction(shared.host.random()));
        // No renewal comes later because this process had to vouch.
        shared.host.sleep(pause.saturating_sub(std::mem::take(&mut spent))).await;
        if shared.gone() {
            if let Err(error) = shared.tiers.members.leave(shared.member().incarnation).await {
                tracing::warn!(%error, "this node could not say that it leaves");
            }
            return;
        }
        shared.runs().iter().for_each(fold::consider);
        seq += 1;
        let kept = renew(&shared, seq, history).await;
        let over = kept != Kept::Yes;
        if over {
            shared.lease.lost();
        }
        let now = shared.tiers.members.history();
        if now != history {
            let began = shared.host.boot();
            let mut heard = vouch(&shared, over).await;
            // An incarnation that is over vouches for its runs before it lets go of them; one that lives, again at its next renewal.
            while !heard && over && !shared.stopping() && shared.host.boot().since(began) < shared.settings.lease.ttl {
                shared.host.sleep(shared.settings.lease.renew / 4).await;
                heard = vouch(&shared, over).await;
            }
            history = if heard { now } else { history };
            spent = shared.host.boot().since(began);
        }
        if over {
            tracing::error!(node = %shared.member().name, "this incarnation is over: its runs are somebody else's; joining anew");
            rejoin(&shared, fixed_name.clone(), kept == Kept::Away).await;
            seq = 1;
        }
    }
}

/// What a renewal says of an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It lives, for all that is known.
    Yes,
    /// It was revoked, or another process lives in its name.
    Revoked,
    /// It was away for so long that it may have been revoked in a history that the store has lost.
    Away,
}

/// One renewal. The store's history was `history` before.
pub(crate) async fn renew(shared: &Shared, seq: u64, history: u64) -> Kept {
    let at = shared.host.boot();
    let lease = &shared.settings.lease;
    let beat = Beat { seq, at, lapsed: !shared.lease.good(at) };
    let renewal = shared.tiers.members.renew(shared.member().incarnation, beat);
    // An answer that comes later than this is no renewal; the call itself is never dropped midway by the store.
    let answer = tokio::select! {
        biased;
        answer = renewal => answer,
        () = shared.host.sleep(lease.renew) => Err(Failed::Unknown("the renewal took longer than its interval".into())),
    };
    match answer {
        // By the time it has vouched, others may have taken its runs over, where the store that takes this renewal may know nothing of it;
        // or are about to, because it was not heard in time.
        Ok(Renewed::Good) if shared.tiers.members.history() != history && away(shared) => {
            tracing::error!("the store may have lost that this incarnation was revoked, before another of its servers took over");
            Kept::Away
        }
        Ok(Renewed::Good) => {
            shared.lease.renewed(at, lease.self_fence);
            Kept::Yes
        }
        Ok(Renewed::Revoked) => Kept::Revoked,
        Err(error) => {
            tracing::warn!(%error, "the lease could not be renewed");
            Kept::Yes
        }
    }
}

/// Was this process silent for so long that others may have taken its runs over, or are about to?
fn away(shared: &Shared) -> bool {
    let lease = &shared.settings.lease;
    shared.lease.silent(shared.host.boot()) + heard_within(lease) >= lease.ttl
}

/// So long may vouching take.
fn heard_within(lease: &LeaseSettings) -> Duration {
    lease.renew.min(lease.ttl / 4)
}

/// Tells a store whose history has changed what this process knows of it to be stored, by an incarnation that is `over` or lives. `false`:
/// it was not heard.
async fn vouch(shared: &Shared, over: bool) -> bool {
    let held = (!over && !away(shared) && !shared.stopping()).then(|| shared.member().incarnation);
    // The next renewal does not wait for it.
    let answer = tokio::select! {
        biased;
        answer = shared.tiers.journal.vouch(shared.vouched(held)) => answer,
        () = shared.host.sleep(heard_within(&shared.settings.lease)) => Err(Failed::Unknown("that took longer than it may".into())),
    };
    match answer {
        Ok(lacking) => {
            for run in lacking.iter().filter(|of| of.taken).map(|of| of.run) {
                tracing::error!(%run, "the store lacks what it had acknowledged of this run: it is held");
                if let Some(live) = shared.run(run) {
                    live.interrupt(Interrupt::Fenced);
                }
            }
            // What it lacks may be that a run has left.
            shared.look_for_strays();
            lacking.iter().all(|of| of.taken)
        }
        Err(error) => {
            tracing::warn!(%error, "what the store may have lost could not be looked for");
            false
        }
    }
}

/// As another incarnation. `away`: the store may take the former one for one that lives.
async fn rejoin(shared: &Arc<Shared>, fixed_name: Option<String>, away: bool) {
    let (over, mut next, mut tries) = (shared.member().incarnation, fresh(&shared.host), 0_u32);
    while !shared.stopping() {
        let error = match let_go(shared, over, away).await {
            Ok(()) => match join(&shared.tiers, &shared.settings, &shared.registry, fixed_name.clone(), next).await {
                Ok(member) => {
                    shared.replace(member);
                    renew(shared, 1, shared.tiers.members.history()).await;
                    shared.work.notify_one();
                    return;
                }
                // The same again finds what it took; otherwise it took nothing.
                Err(error @ Failed::Unknown(_)) => error,
                Err(error) => {
                    next = fresh(&shared.host);
                    error
                }
            },
            Err(error) => error,
        };
        tracing::warn!(%error, "this node could not join again; tried again");
        tries += 1;
        let wait = Duration::from_millis(20).saturating_mul(1 << tries.min(8));
        shared.host.sleep(wait.min(shared.settings.lease.renew)).await;
    }
    shared.tiers.members.release(next);
}

/// Lets go of the name of an incarnation that is over: nobody is given one that is held.
async fn let_go(shared: &Shared, over: Incarnation, away: bool) -> Result<(), Failed> {
    if away {
        return shared.tiers.members.leave(over).await;
    }
    shared.tiers.members.release(over);
    Ok(())
}

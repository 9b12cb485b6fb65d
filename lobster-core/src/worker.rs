//! The worker: claims what fits, restores it, and drives each run to where it leaves this process.
//!
//! Invariant: a run that killed its process three times is executed with nothing beside it.

use crate::{
    ctx::Ctx,
    drive::drive,
    engine::Shared,
    live::Live,
    path::{
        claim::claim,
        restore::{Scene, restore},
    },
};
use lobster_store::contract::{
    Answer, Batch, Boot, Failed, Grant, Offer, RunFilter, RunState, Sealed, Then, limits,
    record::{Ending, Kind, Outcome},
};
use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

/// Places for executing runs.
pub(crate) struct Slots {
    free: Mutex<Vec<usize>>,
    all: usize,
}

impl Slots {
    pub fn new(all: usize) -> Self {
        Self { free: Mutex::new((0..all).rev().collect()), all }
    }
    fn free(&self) -> usize {
        self.free.lock().expect("no code that can panic runs under this lock").len()
    }
    fn busy(&self) -> usize {
        self.all - self.free()
    }
    fn take(&self) -> Option<usize> {
        self.free.lock().expect("no code that can panic runs under this lock").pop()
    }
    fn give(&self, slot: usize) {
        self.free.lock().expect("no code that can panic runs under this lock").push(slot);
    }
}

/// For every wait of a suspect that came to nothing, the others have so many such times.
const OTHERS: u32 = 4;

/// So often a store that does not answer is asked for recordings, with growing pauses, before they are asked for one by one, and put off.
const TRIES: u32 = 8;

/// A recording that cannot be read is asked for again after so many times `newer_retry` at most.
const LATER_MAX: u32 = 360;

/// One of so many polls looks for suspects, where not every one does.
const SUSPECTS: u32 = 10;

/// The worker's loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let _gone = GoneGuard(shared.clone());
    let mut hints = shared.tiers.wake.hints();
    // A suspect that waits until nothing else executes, and until when it does; before when no other is looked for.
    let (mut suspect, mut rest): (Option<(Grant, Boot)>, Boot) = Default::default();
    let (mut polled, mut looks) = (Boot::default(), 0);
    while !shared.stopping() {
        let (mut more, mut wait) = (false, shared.settings.run.poll);
        match suspect.take() {
            Some((grant, until)) if shared.slots.busy() > 0 && executes(&shared, &grant) => {
                let now = shared.host.boot();
                if now >= until {
                    rest = now + patience(&shared).saturating_mul(OTHERS);
                    put_off(&shared, grant);
                    continue;
                }
                suspect = Some((grant, until));
            }
            Some((grant, _)) => {
                alone(&shared, grant).await;
                continue;
            }
            None => {
                // What ends aside takes no slot, but is not without number either.
                let asides = shared.asides.lock().expect("no code that can panic runs under this lock").len();
                let room = (2 * shared.settings.run.executing).saturating_sub(asides);
                let limit = shared.slots.free().min(room).min(limits::BATCH_RUNS);
                let grants = claim(&shared, limit, false).await;
                more = !grants.is_empty() && grants.len() == limit;
                if grants.is_empty() && shared.slots.busy() == 0 {
                    wait = wait.saturating_mul(shared.tiers.wake.stride());
                }
                // What cannot be read now is not asked for again at once.
                more &= begin(&shared, grants, TRIES).await == Begun::Read;
            }
        }
        let now = shared.host.boot();
        if now.since(polled) >= shared.settings.run.poll {
            polled = now;
            let stride = shared.tiers.wake.stride();
            // Where a look is dear, suspects are looked for less often: they come from nodes that were revoked.
            let all = stride == 1 || looks % SUSPECTS == 0 || shared.revoked.swap(false, Ordering::SeqCst);
            looks += 1;
            if suspect.is_none() && all && now >= rest && !shared.stopping() {
                suspect = claim(&shared, 1, true).await.pop().map(|grant| (grant, shared.host.boot() + patience(&shared)));
                more |= suspect.is_some();
            }
            if shared.may_have_strays() && strays(&shared, suspect.as_ref().map(|(grant, _)| grant)).await {
                shared.no_strays(now);
            }
        }
        if more && (suspect.is_some() || shared.slots.free() > 0) {
            continue;
        }
        tokio::select! {
            biased;
            () = shared.work.notified() => {}
            seen = shared.tiers.wake.hinted(hints) => hints = seen,
            () = shared.host.sleep(wait) => {}
        }
    }
    if let Some((grant, _)) = suspect {
        set_aside(shared.clone(), grant, Then::Release).await;
    }
}

/// Executes a suspect: nothing is claimed beside it before it has left, or has recorded a result, which clears it.
async fn alone(shared: &Arc<Shared>, grant: Grant) {
    let (run, epoch) = (grant.run, grant.epoch);
    begin(shared, vec![grant], TRIES).await;
    while let Some(live) = shared.run(run).filter(|live| live.epoch == epoch && !shared.stopping()) {
        tokio::select! {
            biased;
            () = live.until(|inner| inner.progressed.then_some(())) => return,
            () = shared.work.notified() => {}
        }
    }
}

/// Will code of this run be executed? Else it needs no room: it is quarantined, or cancelled.
fn executes(shared: &Shared, grant: &Grant) -> bool {
    !grant.cancel && poisoned(shared, grant).is_none()
}

/// How long a suspect waits for room.
fn patience(shared: &Shared) -> Duration {
    shared.settings.lease.ttl
}

/// A suspect for which what executes here makes no room: somebody else may have some, or this node later. The others do not wait for it.
fn put_off(shared: &Arc<Shared>, grant: Grant) {
    let due = shared.host.wall().plus(patience(shared).saturating_mul(OTHERS));
    let reason = format!("its process died {} times in it; it waits until a node executes nothing else", grant.deaths);
    let then = Then::Evict { due, reason, wake: grant.wake };
    aside(shared, grant, then);
}

/// The engine ends with its runtime: when this task is dropped, the lease must not outlive it.
struct GoneGuard(Arc<Shared>);

impl Drop for GoneGuard {
    fn drop(&mut self) {
        self.0.went();
    }
}

/// What became of grants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// Some of them at least were restored.
    Read,
    /// None of them can be read.
    Unread,
    /// The store does not answer.
    Unanswered,
}

/// Restores grants and starts them. A store that does not answer is asked so often.
async fn begin(shared: &Arc<Shared>, grants: Vec<Grant>, most: u32) -> Begun {
    // A cancel asks for nothing of a recording: it is not read, and nothing of it is executed.
    let (cancelled, grants): (Vec<_>, Vec<_>) = grants.into_iter().partition(|grant| grant.cancel);
    let any = !cancelled.is_empty();
    cancelled.into_iter().for_each(|grant| end(shared, grant, RunState::Cancelled, Ending::Cancelled(String::new())));
    if grants.is_empty() {
        return if any { Begun::Read } else { Begun::Unread };
    }
    shared.point("P2");
    let mut tries = 0;
    let scenes = loop {
        match restore(shared, &grants).await {
            Ok(scenes) => break scenes,
            // They are free as soon as this node says that it leaves.
            Err(_) if shared.stopping() => return Begun::Unanswered,
            Err(error) if error.is_transient() && tries + 1 < most => {
                tracing::warn!(%error, "recordings could not be read; tried again");
                tries += 1;
                let wait = Duration::from_millis(5).saturating_mul(1 << u32::min(tries, 16));
                shared.host.sleep(wait.min(shared.settings.commit.retry_max)).await;
            }
            // One of them cannot be read: not the fault of the others. Where the store does not answer for one, it answers for none.
            Err(_) if grants.len() > 1 => {
                let (mut any, mut grants) = (false, grants.into_iter());
                while let Some(grant) = grants.next() {
                    match Box::pin(begin(shared, vec![grant], 1)).await {
                        Begun::Read => any = true,
                        Begun::Unread => {}
                        Begun::Unanswered => {
                            grants.for_each(|grant| aside(shared, grant, Then::Release));
                            return if any { Begun::Read } else { Begun::Unanswered };
                        }
                    }
                }
                return if any { Begun::Read } else { Begun::Unread };
            }
            Err(error) => {
                let answered = !error.is_transient();
                for grant in grants {
                    put_off_unread(shared, grant, &error);
                }
                return if answered { Begun::Unread } else { Begun::Unanswered };
            }
        }
    };
    shared.point("P3");
    let mut unread = shared.unread.lock().expect("no code that can panic runs under this lock");
    grants.iter().for_each(|grant| _ = unread.remove(&grant.run));
    drop(unread);
    for (grant, scene) in grants.into_iter().zip(scenes) {
        match scene {
            Scene::Fenced => {}
            Scene::Damaged(damage) => {
                tracing::error!(run = %grant.run, error = %damage, "a recording is damaged: the run is held");
                let then = Then::Hold { reason: damage.to_string(), wake: grant.wake };
                aside(shared, grant, then);
            }
            Scene::Ready(image) => match poisoned(shared, &grant) {
                Some(why) => {
                    tracing::error!(run = %grant.run, %why, "the run is quarantined");
                    end(shared, grant, RunState::Quarantined, Ending::Quarantined(why));
                }
                None => start(shared, grant, *image),
            },
        }
    }
    Begun::Read
}

/// Ends a run of which nothing is executed.
fn end(shared: &Arc<Shared>, grant: Grant, state: RunState, ending: Ending) {
    let outcome = Sealed::new(Kind::Outcome, grant.run, &Outcome { ending: Some(ending) });
    let at = shared.host.wall();
    aside(shared, grant, Then::Finish { state, outcome, at });
}

/// A run whose recording cannot be read waits, each time for longer: every claim counts.
fn put_off_unread(shared: &Arc<Shared>, grant: Grant, error: &Failed) {
    let mut unread = shared.unread.lock().expect("no code that can panic runs under this lock");
    let times = unread.entry(grant.run).or_default();
    *times = (*times + 1).min(LATER_MAX);
    let due = shared.host.wall().plus(shared.settings.run.newer_retry.saturating_mul(*times));
    drop(unread);
    tracing::error!(run = %grant.run, %error, "a recording cannot be read: the run is put off");
    let then = Then::Evict { due, reason: format!("its recording cannot be read: {error}"), wake: grant.wake };
    aside(shared, grant, then);
}

/// Why a run must not be executed again.
fn poisoned(shared: &Shared, grant: &Grant) -> Option<String> {
    let task = shared.registry.get(&grant.task.task)?;
    let attempts_max = task.options.max_attempts.unwrap_or(shared.settings.run.attempts_max);
    let claims = grant.epoch % limits::EPOCH_LEAP;
    if grant.deaths >= limits::DEATHS_QUARANTINE {
        Some(format!("its process died {} times while executing it, without a new result", grant.deaths))
    } else if grant.attempts > attempts_max {
        Some(format!("claimed {} times without a new result (the limit is {attempts_max})", grant.attempts))
    } else if claims > shared.settings.run.claims_max {
        Some(format!("claimed {claims} times in all (the limit is {})", shared.settings.run.claims_max))
    } else {
        None
    }
}

fn start(shared: &Arc<Shared>, grant: Grant, image: crate::image::Image) {
    let Some(task) = shared.registry.get(&grant.task.task).cloned() else { return };
    let Some(slot) = shared.slots.take() else {
        // More was granted than asked for: given back.
        return aside(shared, grant, Then::Release);
    };
    if grant.doubt.is_some() {
        tracing::warn!(run = %grant.run, "the store may have lost what happened to this run: calls that it could have made are in doubt");
    }
    let input = image.input.clone();
    let live = Live::new(shared.clone(), shared.member().incarnation, &grant, slot, image);
    shared.enter(&live);
    if shared.stopping() {
        // A claim that was under way when the shutdown looked round: it finds this run here, or this finds the shutdown.
        live.drain();
    }
    let shared = shared.clone();
    shared.host.clone().spawn(Box::pin(async move {
        let _slot = SlotGuard { shared: shared.clone(), live: live.clone() };
        let ctx = Ctx::new(live.clone());
        drive(live, move || task.start(ctx, &input)).await;
    }));
}

/// Gives the slot back however the run leaves.
struct SlotGuard {
    shared: Arc<Shared>,
    live: Arc<Live>,
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.shared.slots.give(self.live.slot);
        self.shared.leave(&self.live);
    }
}

/// What becomes of a run that is not executed here is said beside the worker: a store that does not take it keeps nobody else waiting.
fn aside(shared: &Arc<Shared>, grant: Grant, then: Then) {
    let (shared, of) = (shared.clone(), (grant.run, grant.epoch));
    shared.asides.lock().expect("no code that can panic runs under this lock").insert(of);
    shared.host.clone().spawn(Box::pin(async move {
        set_aside(shared.clone(), grant, then).await;
        shared.asides.lock().expect("no code that can panic runs under this lock").remove(&of);
        shared.work.notify_one();
    }));
}

async fn set_aside(shared: Arc<Shared>, grant: Grant, mut then: Then) {
    let incarnation = shared.member().incarnation;
    let mut tries: u32 = 0;
    loop {
        let (run, epoch, head) = (grant.run, grant.epoch, grant.tail + 1);
        let offer = Offer { run, epoch, head, rows: Vec::new(), progress: false, then: Some(then.clone()) };
        match shared
            .tiers
            .journal
            .append(Batch { incarnation, synced: true, patient: None, offers: vec![offer] })
            .await
            .as_deref()
        {
            Ok([Answer::Seen(seen)]) if seen.then || !seen.mine => return,
            // Somebody stated a verdict or asked for a cancel: whoever claims it next sees that.
            Ok([Answer::Seen(_)]) => then = Then::Release,
            _ => {}
        }
        if shared.stopping() {
            return;
        }
        tries += 1;
        let wait = Duration::from_millis(5).saturating_mul(1 << tries.min(16));
        shared.host.sleep(wait.min(shared.settings.commit.retry_max)).await;
    }
}

/// Runs that this node owns but does not have: a claim whose answer was lost took them. They go back. Called between claims. Returns
/// whether none is left.
async fn strays(shared: &Shared, suspect: Option<&Grant>) -> bool {
    let incarnation = shared.member().incarnation;
    let filter = RunFilter { states: vec![RunState::Running], ..RunFilter::default() };
    let Ok(running) = shared.tiers.catalog.list(filter, usize::MAX).await else { return false };
    let mut clean = true;
    for run in running.iter().filter(|run| run.owner == Some(incarnation)) {
        let waits = suspect.is_some_and(|grant| grant.run == run.id)
            || shared.asides.lock().expect("no code that can panic runs under this lock").contains(&(run.id, run.epoch));
        if waits || shared.run(run.id).is_some_and(|live| live.epoch == run.epoch) {
            continue;
        }
        // Revoked meanwhile: what it had may still be on its way, and is free anyhow.
        if shared.member().incarnation != incarnation {
            return false;
        }
        let offer = Offer {
            run: run.id,
            epoch: run.epoch,
            head: run.tail + 1,
            rows: Vec::new(),
            progress: false,
            then: Some(Then::Release),
        };
        match shared
            .tiers
            .journal
            .append(Batch { incarnation, synced: true, patient: None, offers: vec![offer] })
            .await
            .as_deref()
        {
            Ok([Answer::Seen(seen)]) if seen.then => tracing::info!(run = %run.id, "a stray run went back"),
            Ok([Answer::Seen(seen)]) if !seen.mine => {}
            _ => clean = false,
        }
    }
    clean
}

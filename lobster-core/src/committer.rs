//! The committer: gathers what all runs have pending and sends it as one statement; the next leaves when the previous returned, or beside
//! it where the store works on two at once and many runs wait.
//!
//! Invariant: a store call is never dropped in flight, and a run has at most one part of a batch at the store.

use crate::{
    crash,
    engine::Shared,
    live::{Inner, Interrupt, Live},
    path::{flush, fold},
};
use lobster_store::contract::{Batch, Offer, Then, limits};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// Answers in a row that a run's row is locked by somebody else. Then its owner waits for the lock: others could starve it for ever.
const BUSY_MAX: u32 = 3;

/// How long it waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs with something pending.
pub(crate) struct Committer {
    queue: Mutex<Queue>,
    bell: Notify,
    stopped: AtomicBool,
    /// What the store says of two batches at once.
    beside: Option<usize>,
}

#[derive(Default)]
struct Queue {
    runs: VecDeque<Arc<Live>>,
    /// Loops that have taken a batch, and not looked for the next yet.
    away: usize,
    /// Runs that are offered alone at this moment, those that wait for a place to be, and how many in a row were in vain.
    apart: usize,
    parked: VecDeque<Arc<Live>>,
    vain: u32,
}

impl Committer {
    pub fn new(beside: Option<usize>) -> Self {
        let beside = beside.map(|few| few.max(1));
        Self { queue: Mutex::default(), bell: Notify::new(), stopped: AtomicBool::new(false), beside }
    }

    /// Batches that may be on their way at once.
    pub fn loops(&self) -> usize {
        if self.beside.is_some() { limits::BATCHES_ABREAST } else { 1 }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code that can panic runs under this lock")
    }

    /// Queues a run, once, whose lock the caller holds.
    pub fn enqueue(&self, live: &Arc<Live>, inner: &mut Inner) {
        if !inner.queued && !inner.in_flight {
            inner.queued = true;
            let mut queue = self.queue();
            queue.runs.push_back(live.clone());
            if queue.leaves(self.beside) > 0 {
                self.bell.notify_one();
            }
        }
    }

    /// The next batch, if there is one that may leave now. `back`: the caller comes back with one.
    fn take(&self, back: bool) -> Option<Vec<Arc<Live>>> {
        let mut queue = self.queue();
        queue.away -= usize::from(back);
        let count = queue.leaves(self.beside);
        if count == 0 {
            return None;
        }
        queue.away += 1;
        let taken = queue.runs.drain(..count).collect();
        if queue.leaves(self.beside) > 0 {
            self.bell.notify_one();
        }
        Some(taken)
    }

    /// A loop has come back without an answer, and waits before it looks for the next batch.
    fn rests(&self) {
        let mut queue = self.queue();
        queue.away -= 1;
        if queue.leaves(self.beside) > 0 {
            self.bell.notify_one();
        }
    }

    /// Runs that were taken and found no room in their batch: the first of the next.
    fn put_back(&self, lives: impl DoubleEndedIterator<Item = Arc<Live>>) {
        let mut queue = self.queue();
        lives.rev().for_each(|live| queue.runs.push_front(live));
        if queue.leaves(self.beside) > 0 {
            self.bell.notify_one();
        }
    }

    /// One that is to be offered alone joins no other batch before. `true`: there is a place for it, and the caller offers what waits.
    fn park(&self, live: Arc<Live>) -> bool {
        let mut queue = self.queue();
        queue.parked.push_back(live);
        let free = queue.apart < limits::BATCHES_APART;
        queue.apart += usize::from(free);
        free
    }

    /// The next one; `None`: there is none, and the place is given back.
    fn unpark(&self) -> Option<Arc<Live>> {
        let mut queue = self.queue();
        let next = queue.parked.pop_front();
        queue.apart -= usize::from(next.is_none());
        next
    }

    /// One of these was sent, or not; how long to wait before the next, so that a store which takes none is not asked all the time.
    fn tried(&self, sent: bool, most: Duration) -> Duration {
        let mut queue = self.queue();
        queue.vain = if sent { 0 } else { queue.vain + 1 };
        match queue.vain {
            0 => Duration::ZERO,
            vain => Duration::from_millis(5).saturating_mul(1 << vain.min(16)).min(most),
        }
    }

    /// Ends the loops once nothing is queued.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.bell.notify_one();
    }
}

impl Queue {
    fn leaves(&self, beside: Option<usize>) -> usize {
        leaves(self.runs.len(), self.away, beside).min(limits::BATCH_RUNS)
    }
}

/// How many of the runs that wait leave now, with so many batches on their way: all, or half of them where both halves are enough for a
/// batch each.
fn leaves(waiting: usize, away: usize, beside: Option<usize>) -> usize {
    match (away, beside) {
        (0, Some(few)) if waiting / 2 >= few => waiting.div_ceil(2),
        (0, _) => waiting,
        (away, Some(few)) if away < limits::BATCHES_ABREAST && waiting >= few => waiting,
        _ => 0,
    }
}

/// A loop of the committer.
pub(crate) async fn run(shared: Arc<Shared>) {
    let committer = &shared.committer;
    let (mut failures, mut back) = (0, false);
    loop {
        // Whoever the last answers woke gets its word in before the next batch leaves: fewer, larger batches.
        tokio::task::yield_now().await;
        let taken = committer.take(back);
        back = taken.is_some();
        let Some(lives) = taken else {
            if committer.stopped.load(Ordering::SeqCst) {
                // The other one is told by this one.
                return committer.bell.notify_one();
            }
            committer.bell.notified().await;
            continue;
        };
        let lives = apart(&shared, lives);
        let (sent, lives) = send(&shared, lives, None).await;
        failures = if sent { 0 } else { failures + 1 };
        if failures > 0 {
            back = false;
            committer.rests();
            let wait = Duration::from_millis(5).saturating_mul(1 << failures.min(16));
            shared.host.sleep(wait.min(shared.settings.commit.retry_max)).await;
        }
        again(&shared, &lives);
    }
}

/// Runs whose row was locked by somebody else again and again, or whose batch the store does not take, are offered alone, and wait for
/// the lock: the others go on meanwhile. A few at once; the rest has its turn later.
fn apart(shared: &Arc<Shared>, lives: Vec<Arc<Live>>) -> Vec<Arc<Live>> {
    let (patient, lives): (Vec<_>, Vec<_>) = lives.into_iter().partition(|live| live.lock().busy >= BUSY_MAX);
    for live in patient {
        if shared.committer.park(live) {
            shared.host.spawn(Box::pin(alone(shared.clone())));
        }
    }
    lives
}

/// Offers those that wait for it alone, one after the other, from a place that was taken.
async fn alone(shared: Arc<Shared>) {
    while let Some(live) = shared.committer.unpark() {
        let (sent, lives) = send(&shared, vec![live], Some(PATIENCE)).await;
        let rest = shared.committer.tried(sent, shared.settings.commit.retry_max);
        if !rest.is_zero() {
            shared.host.sleep(rest).await;
        }
        again(&shared, &lives);
    }
}

/// Queues those that have more to say, or were not heard.
fn again(shared: &Shared, lives: &[Arc<Live>]) {
    for live in lives {
        let mut inner = live.lock();
        if inner.has_news() {
            shared.committer.enqueue(live, &mut inner);
        }
    }
}

/// One batch. Returns the runs in it, and `false` if the store did not answer.
async fn send(shared: &Arc<Shared>, lives: Vec<Arc<Live>>, patient: Option<Duration>) -> (bool, Vec<Arc<Live>>) {
    let incarnation = shared.member().incarnation;
    let (mut synced, mut parts, mut offers): (_, Vec<Arc<Live>>, Vec<Offer>) = (false, Vec::new(), Vec::new());
    let (mut lives, mut bytes) = (lives.into_iter(), 0);
    while bytes < limits::BATCH_BYTES
        && let Some(live) = lives.next()
    {
        // A batch has one offer per run, and the one of an older epoch is lost anyhow.
        let superseded = shared.run(live.run).is_some_and(|newest| newest.epoch > live.epoch);
        if live.incarnation != incarnation || superseded {
            // A revoked incarnation writes nothing; whatever it owned may be somebody else's by now.
            live.lock().queued = false;
            live.interrupt(Interrupt::Fenced);
        } else if let Some((offer, must_sync)) = flush::offer(&live) {
            synced |= must_sync;
            bytes += offer.bytes();
            offers.push(offer);
            parts.push(live);
        }
    }
    if lives.len() > 0 {
        shared.committer.put_back(lives);
    }
    if offers.is_empty() {
        return (true, parts);
    }
    let batch = Batch { incarnation, synced, patient, offers };
    let (sent, acknowledged) = points(&batch);
    sent.into_iter().for_each(crash::point);
    let answers = match shared.tiers.journal.append(batch.clone()).await {
        Ok(answers) if answers.len() == batch.offers.len() => Some(answers),
        Ok(answers) => {
            tracing::error!(answers = answers.len(), offers = batch.offers.len(), "the store broke its contract");
            None
        }
        Err(error) => {
            tracing::warn!(%error, runs = batch.offers.len(), "a batch was not acknowledged; it will be offered again");
            if !error.is_transient() {
                // One of them may be the reason: each has a turn alone.
                parts.iter().for_each(|live| live.lock().busy = BUSY_MAX);
            }
            None
        }
    };
    acknowledged.into_iter().for_each(crash::point);
    for (index, live) in parts.iter().enumerate() {
        let answer = answers.as_ref().map(|answers| &answers[index]);
        flush::answered(live, &batch.offers[index], synced, answer);
        fold::consider(live);
    }
    (answers.is_some(), parts)
}

/// The crash points before and after a batch.
fn points(batch: &Batch) -> (Vec<&'static str>, Vec<&'static str>) {
    let any = |what: fn(&Offer) -> bool| batch.offers.iter().any(what);
    let all = [
        (true, "P10", "P11"),
        (any(|offer| offer.rows.iter().any(|row| row.intent)), "P12", "intent acknowledged"),
        (batch.synced && any(|offer| offer.progress), "P16", "P17"),
        (any(|offer| matches!(offer.then, Some(Then::Finish { .. }))), "P20", "P21"),
        (any(|offer| matches!(offer.then, Some(Then::Evict { .. } | Then::Release))), "P22", "P23"),
    ];
    all.into_iter().filter(|(there, ..)| *there).map(|(_, sent, acknowledged)| (sent, acknowledged)).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_batch_leaves_beside_one_that_is_on_its_way_where_there_is_enough_for_both() {
        for (waiting, away, beside, leave) in [
            (0, 0, None, 0),
            (1, 0, None, 1),
            (500, 0, None, 500),
            (500, 1, None, 0),
            (0, 0, Some(16), 0),
            (1, 0, Some(16), 1),
            (31, 0, Some(16), 31),
            (32, 0, Some(16), 16),
            (33, 0, Some(16), 17),
            (15, 1, Some(16), 0),
            (16, 1, Some(16), 16),
            (40, 1, Some(16), 40),
            (500, 2, Some(16), 0),
        ] {
            assert_eq!(leaves(waiting, away, beside), leave, "{waiting} wait, {away} away, {beside:?}");
        }
    }
}

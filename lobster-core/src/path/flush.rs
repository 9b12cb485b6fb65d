//! Flush: what runs have pending becomes one statement, and its answers become what is known of the store.
//!
//! Invariant: an answer is believed only if tail and mark are those of a row that this holder sent or was given.

use crate::live::{Inner, Interrupt, Live, ThenState};
use bytes::{Bytes, BytesMut};
use lobster_store::{
    contract::{Answer, Offer, Row, Seen, Then, limits, record},
    planted,
};

/// This run's part of the next batch, and whether the batch must be synced for it.
pub(crate) fn offer(live: &Live) -> Option<(Offer, bool)> {
    let mut guard = live.lock();
    let inner = &mut *guard;
    inner.queued = false;
    if inner.in_flight || matches!(inner.interrupt, Some(Interrupt::Fenced)) {
        return None;
    }
    let head = inner.applied + 1;
    let forked = matches!(inner.interrupt, Some(Interrupt::Forked(_)));
    let (rows, progress) = if forked { (Vec::new(), false) } else { rows(live, inner, head) };
    let last = rows.last().map_or(inner.applied, |row| row.to);
    let complete = forked || last + 1 == inner.next;
    let then = match inner.then_state {
        ThenState::Asked if complete => inner.then.clone(),
        _ => None,
    };
    let synced = inner.sync_to > inner.synced || inner.then_state == ThenState::Asked;
    if rows.is_empty() && then.is_none() && !synced {
        return None;
    }
    inner.marks.extend(rows.iter().map(|row| (row.to, row.mark)));
    inner.in_flight = true;
    Some((Offer { run: live.run, epoch: live.epoch, head, rows, progress, then }, synced))
}

/// At most two rows: what precedes an intent, and the intent. Cut at the limit for rows.
fn rows(live: &Live, inner: &Inner, head: u64) -> (Vec<Row>, bool) {
    let skip = usize::try_from(head - 1 - inner.synced).expect("pending deltas fit into memory");
    let mut rows = Vec::new();
    let (mut from, mut to, mut bytes, mut progress) = (head, head - 1, BytesMut::new(), false);
    let seal = |from, to, body: Bytes, intent| {
        let mark = record::row_crc(live.run, live.epoch, from, to, &body);
        Row { from, to, body, mark, intent }
    };
    for pending in inner.pending.range(skip..) {
        if pending.refused.is_some() {
            if to >= from {
                rows.push(seal(from, to, bytes.split().freeze(), false));
                from = to + 1;
            }
            rows.push(seal(from, from, pending.bytes.clone(), true));
            return (rows, progress);
        }
        if to >= from && bytes.len() + pending.bytes.len() > limits::ROW_BYTES {
            break;
        }
        bytes.extend_from_slice(&pending.bytes);
        to += 1;
        progress |= pending.progress;
    }
    if to >= from {
        rows.push(seal(from, to, bytes.freeze(), false));
    }
    (rows, progress)
}

/// Takes the answer to an offer; `None` if the call failed, so that nothing is known.
pub(crate) fn answered(live: &Live, offer: &Offer, synced: bool, answer: Option<&Answer>) {
    let mut guard = live.lock();
    let inner = &mut *guard;
    inner.in_flight = false;
    let news = match answer {
        None if planted!("unknown_is_done") => {
            inner.applied = offer.rows.last().map_or(inner.applied, |row| row.to);
            if synced {
                inner.synced = inner.applied;
            }
            inner.forget();
            None
        }
        None | Some(Answer::Busy) => None,
        Some(Answer::Seen(seen)) => judge(inner, offer, synced, seen),
    };
    drop(guard);
    match news {
        Some(interrupt) => live.interrupt(interrupt),
        None => live.ring(),
    }
}

/// The rules of the fence (`ARCHITECTURE.md`), on one answer.
fn judge(inner: &mut Inner, offer: &Offer, synced: bool, seen: &Seen) -> Option<Interrupt> {
    if !seen.mine {
        return Some(Interrupt::Fenced);
    }
    let lineage = inner.marks.iter().any(|mark| *mark == (seen.tail, seen.mark));
    // A hold without rows is how a forked recording is set aside: it needs only the fence.
    let aside = seen.then && offer.rows.is_empty();
    if !aside && (!lineage || seen.tail < inner.synced) {
        return Some(Interrupt::Forked(format!(
            "the store has a recording up to seq {} that this holder did not send (it sent up to {}, of which {} synced)",
            seen.tail,
            inner.marks.back().map_or(0, |(seq, _)| *seq),
            inner.synced,
        )));
    }
    if lineage {
        inner.applied = seen.tail;
        if synced {
            inner.synced = seen.tail;
        }
        inner.forget();
    }
    if seen.cancel {
        inner.cancel = true;
        inner.refuse_intents();
    }
    let woken = seen.wake > inner.wake;
    if offer.then.is_some() {
        let complete = seen.rows == offer.rows.len();
        inner.then_state = match (seen.then, complete) {
            (true, _) => ThenState::Done,
            (false, true) if refusable(offer.then.as_ref()) && (seen.cancel || woken) => ThenState::Refused,
            // The tail was elsewhere: offered again behind what is missing.
            _ => ThenState::Asked,
        };
    }
    (seen.cancel && inner.then_state != ThenState::Done).then_some(Interrupt::Cancel)
}

fn refusable(then: Option<&Then>) -> bool {
    matches!(then, Some(Then::Evict { .. } | Then::Hold { .. }))
}

impl Inner {
    /// Lets go of what a synced row covers, and counts anew what the store has not acknowledged.
    fn forget(&mut self) {
        let keep = usize::try_from(self.next - 1 - self.synced).expect("pending deltas fit into memory");
        while self.pending.len() > keep {
            let gone = self.pending.pop_front().expect("the queue is longer than what it keeps");
            self.pending_bytes -= gone.bytes.len();
        }
        while self.marks.front().is_some_and(|(seq, _)| *seq < self.synced) {
            self.marks.pop_front();
        }
        let applied = usize::try_from(self.applied - self.synced).expect("pending deltas fit into memory");
        self.lag_bytes = self.pending.range(applied..).map(|pending| pending.bytes.len()).sum();
    }

    /// After a cancel no intent is accepted. Those that the store does not hold become what they are: calls that were not made.
    fn refuse_intents(&mut self) {
        let applied = usize::try_from(self.applied - self.synced).expect("pending deltas fit into memory");
        for pending in self.pending.range_mut(applied..) {
            if let Some(instead) = pending.refused.take() {
                self.pending_bytes = self.pending_bytes + instead.len() - pending.bytes.len();
                pending.bytes = instead;
            }
        }
    }

    /// Is there anything to offer?
    pub(crate) fn has_news(&self) -> bool {
        self.lag() > 0 || self.sync_to > self.synced || self.then_state == ThenState::Asked
    }
}

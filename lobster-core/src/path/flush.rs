//! Flush: what runs have pending becomes one statement, and its answers become what is known of the store.
//!
//! Invariant: an answer is believed only if tail and mark are those of a row that this holder sent or was given.

use crate::live::{Inner, Interrupt, Live, Pending, RowEnd, ThenState};
use bytes::BytesMut;
use lobster_store::{
    contract::{Answer, Offer, Row, Seen, Seq, Then, limits, record::put_change},
    planted,
};
use std::sync::Arc;

/// This run's part of the next batch, and whether the batch must be synced for it.
pub(crate) fn offer(live: &Live) -> Option<(Offer, bool)> {
    let mut guard = live.lock();
    let inner = &mut *guard;
    inner.queued = false;
    if inner.in_flight || matches!(inner.interrupt, Some(Interrupt::Fenced)) {
        return None;
    }
    let forked = matches!(inner.interrupt, Some(Interrupt::Forked(_)));
    // A run that was forked is left as it is found: nothing is written behind what its store holds but what becomes of it.
    let head = if forked { inner.foreign } else { inner.stored.seq } + 1;
    if inner.alone == Some(head) && !planted!("place_not_held") {
        return None;
    }
    let cuts = if forked { Vec::new() } else { cuts(inner, head) };
    let last = head - 1 + cuts.iter().map(|cut| cut.all.len() as u64).sum::<u64>();
    let complete = forked || last + 1 == inner.next;
    let then = match inner.then_state {
        ThenState::Asked if complete => inner.then.clone(),
        _ => None,
    };
    let synced = inner.sync_to > inner.synced || inner.then_state == ThenState::Asked;
    if cuts.is_empty() && then.is_none() && !synced {
        return None;
    }
    // From here to the answer nobody else takes anything from what is pending: rows are made while the run's steps go on.
    inner.in_flight = true;
    drop(guard);
    let progress = cuts.iter().flat_map(|cut| &cut.all).any(|pending| pending.progress);
    let rows: Vec<Row> = cuts.into_iter().map(|cut| cut.row(live)).collect();
    let mut inner = live.lock();
    // Rows continue from what the store was last seen to have, whatever was sent beyond it.
    let mut tally = inner.stored.tally;
    for row in &rows {
        tally.add(row.deltas.as_ref().map(|half| half.crc));
        inner.marks.push_back(RowEnd { seq: row.to, mark: row.mark, tally });
    }
    Some((Offer { run: live.run, epoch: live.epoch, head, rows, progress, then }, synced))
}

/// What becomes a row.
struct Cut {
    from: Seq,
    all: Vec<Pending>,
    intent: bool,
}

/// At most two rows: what precedes an intent, and the intent. Cut at the limit for rows, and where an acknowledged row ended that the
/// store has lost since: a fold that builds on it may be on its way.
fn cuts(inner: &Inner, head: Seq) -> Vec<Cut> {
    let skip = usize::try_from(head - 1 - inner.synced).expect("pending deltas fit into memory");
    let (mut cut, mut intent, mut bytes) = (Cut { from: head, all: Vec::new(), intent: false }, None, 0);
    for (seq, pending) in (head..).zip(inner.pending.range(skip..)) {
        if inner.alone == Some(seq) && !planted!("place_not_held") {
            break;
        }
        if pending.refused.is_some() {
            intent = Some(Cut { from: seq, all: vec![pending.clone()], intent: true });
            break;
        }
        bytes += pending.bytes();
        if !cut.all.is_empty() && bytes > limits::ROW_BYTES {
            break;
        }
        cut.all.push(pending.clone());
        if inner.ends.back().is_some_and(|last| seq <= *last) && inner.ends.contains(&seq) && !planted!("rows_cut_anew") {
            break;
        }
    }
    Some(cut).into_iter().filter(|cut| !cut.all.is_empty()).chain(intent).collect()
}

impl Cut {
    fn row(self, live: &Live) -> Row {
        let mut deltas = BytesMut::with_capacity(self.all.iter().map(|pending| pending.deltas.len()).sum());
        let mut changes = BytesMut::with_capacity(self.all.iter().map(|pending| pending.changes_bytes).sum());
        let mut seq = self.from;
        for pending in &self.all {
            deltas.extend_from_slice(&pending.deltas);
            pending.changes.iter().for_each(|changed| put_change(seq, (**changed).clone(), &mut changes));
            seq += 1;
        }
        let some = |bytes: BytesMut| (!bytes.is_empty()).then(|| bytes.freeze());
        let row = Row::new(live.run, live.epoch, self.from, seq - 1, some(deltas), some(changes));
        if self.intent { row.intent() } else { row }
    }
}

/// Takes the answer to an offer; `None` if the call failed, so that nothing is known.
pub(crate) fn answered(live: &Live, offer: &Offer, synced: bool, answer: Option<&Answer>) {
    let mut guard = live.lock();
    let inner = &mut *guard;
    inner.in_flight = false;
    let news = match answer {
        None if planted!("unknown_is_done") => {
            inner.stored = *inner.marks.back().expect("there is a mark from the start");
            if synced {
                inner.synced = inner.stored.seq;
            }
            inner.forget();
            None
        }
        None => None,
        Some(Answer::Busy) => {
            inner.busy += 1;
            None
        }
        Some(Answer::Seen(seen)) => {
            inner.busy = 0;
            judge(inner, offer, synced, seen)
        }
    };
    if let Some(interrupt) = news {
        inner.interrupt(interrupt);
    }
    drop(guard);
    live.ring();
}

/// A transaction has committed this row: the store holds it, and everything before it, synced.
pub(crate) fn transacted(live: &Arc<Live>, inner: &mut Inner, row: &Row) {
    let mut tally = inner.stored.tally;
    tally.add(row.deltas.as_ref().map(|half| half.crc));
    let end = RowEnd { seq: row.to, mark: row.mark, tally };
    (inner.stored, inner.synced, inner.alone, inner.progressed) = (end, row.to, None, true);
    inner.marks.push_back(end);
    inner.forget();
    if inner.has_news() {
        live.shared.committer.enqueue(live, inner);
    }
}

/// The rules of the fence (`ARCHITECTURE.md`), on one answer.
fn judge(inner: &mut Inner, offer: &Offer, synced: bool, seen: &Seen) -> Option<Interrupt> {
    if !seen.mine {
        return Some(Interrupt::Fenced);
    }
    let lineage = inner.lineage(offer, seen);
    let woken = seen.wake > inner.wake;
    // How a forked recording is set aside: held, which needs only the fence, or ended by a cancel, from where the store has it.
    let aside = seen.then && offer.rows.is_empty();
    if !aside && (lineage.is_none() || seen.tail < inner.synced) {
        (inner.foreign, inner.wake, inner.cancel) = (seen.tail, seen.wake, inner.cancel || seen.cancel);
        if refusable(offer.then.as_ref()) && offer.rows.is_empty() && (seen.cancel || woken) {
            inner.then_state = ThenState::Refused;
        }
        return Some(Interrupt::Forked(format!(
            "the store has a recording up to seq {} that this holder did not send (it sent up to {}, of which {} synced)",
            seen.tail,
            inner.marks.back().map_or(0, |end| end.seq),
            inner.synced,
        )));
    }
    if let Some(end) = lineage {
        inner.stored = end;
        inner.progressed |= inner.progress.is_some_and(|first| first <= end.seq);
        if synced {
            inner.synced = seen.tail;
        }
        if inner.ends.back().is_none_or(|last| *last < end.seq) {
            inner.ends.push_back(end.seq);
        }
        inner.forget();
    }
    if seen.cancel {
        inner.cancel = true;
        inner.refuse_intents();
    }
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
            self.pending_bytes -= gone.bytes();
        }
        while self.marks.front().is_some_and(|end| end.seq < self.synced) {
            self.marks.pop_front();
        }
        while self.ends.front().is_some_and(|end| *end <= self.synced) {
            self.ends.pop_front();
        }
        let applied = usize::try_from(self.stored.seq - self.synced).expect("pending deltas fit into memory");
        self.lag_bytes = self.pending.range(applied..).map(Pending::bytes).sum();
    }

    /// After a cancel no intent is accepted. Those that the store does not hold become what they are: calls that were not made.
    fn refuse_intents(&mut self) {
        let applied = usize::try_from(self.stored.seq - self.synced).expect("pending deltas fit into memory");
        for pending in self.pending.range_mut(applied..) {
            if let Some(instead) = pending.refused.take() {
                self.pending_bytes = self.pending_bytes + instead.len() - pending.deltas.len();
                pending.deltas = instead;
            }
        }
    }

    /// The row end that the store has, if this holder was given it or has sent it.
    fn lineage(&mut self, offer: &Offer, seen: &Seen) -> Option<RowEnd> {
        let known = |end: &&RowEnd| (end.seq, end.mark) == (seen.tail, seen.mark);
        let last = self.marks.iter().rev().find(known).copied()?;
        // Sent twice behind different rows, and applied by a call whose answer was lost: which rows precede it is not known here.
        let sure = seen.rows > 0 || self.marks.iter().filter(known).all(|end| *end == last);
        self.folding.unsure |= !sure && !offer.rows.is_empty();
        Some(last)
    }

    /// Is there anything to offer?
    pub(crate) fn has_news(&self) -> bool {
        self.lag() > 0 || self.sync_to > self.synced || self.then_state == ThenState::Asked
    }
}

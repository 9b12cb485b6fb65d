//! Commit: a fact becomes a delta of its run. In memory only; it cannot fail.
//!
//! Invariant: seqs are gapless, and a delta stays in memory until a synced row covers it.

use crate::live::{Inner, Live, Pending};
use bytes::Bytes;
use lobster_store::contract::{
    Seq,
    record::{Changed, Fact, Round, encode_delta},
};
use std::sync::Arc;

/// Gives the fact the next seq and queues the run for the committer. `synced`: nothing before this is flushed may be called durable.
pub(crate) fn commit(live: &Arc<Live>, inner: &mut Inner, fact: Fact, synced: bool) -> Seq {
    commit_with(live, inner, Some(fact), Vec::new(), synced)
}

/// The same with changes, which a fold will replace; a fact may be missing then.
pub(crate) fn commit_with(live: &Arc<Live>, inner: &mut Inner, fact: Option<Fact>, changes: Vec<Changed>, synced: bool) -> Seq {
    let seq = inner.next;
    let progress = matches!(fact, Some(Fact::Result(_))) || changes.iter().any(is_progress);
    let deltas = fact.map(|fact| encode_delta(seq, fact)).unwrap_or_default();
    let changes: Vec<_> = changes.into_iter().map(Arc::new).collect();
    changes.iter().for_each(|changed| inner.folding.changed(seq, changed.clone()));
    append(live, inner, Pending::new(deltas, changes, progress), synced)
}

fn is_progress(changed: &Changed) -> bool {
    matches!(changed, Changed::Round(Round { attempt: None, .. }))
}

/// The same for an intent; `refused` takes its place should a cancel forbid it. Always synced.
pub(crate) fn intend(live: &Arc<Live>, inner: &mut Inner, intent: Fact, refused: Fact) -> Seq {
    let seq = inner.next;
    let refused = Some(encode_delta(seq, refused));
    append(live, inner, Pending { refused, ..Pending::new(encode_delta(seq, intent), Vec::new(), false) }, true)
}

/// Gives the next seq to a record that a transaction will make: until [`fill`] or its commit, nothing from here on is offered.
pub(crate) fn reserve(inner: &mut Inner) -> Seq {
    let seq = inner.next;
    inner.next += 1;
    inner.pending.push_back(Pending::new(Bytes::new(), Vec::new(), false));
    inner.alone = Some(seq);
    seq
}

/// Puts a fact in the place of a transaction that was not committed.
pub(crate) fn fill(live: &Arc<Live>, inner: &mut Inner, seq: Seq, fact: Fact, synced: bool) {
    if inner.alone != Some(seq) {
        return;
    }
    inner.alone = None;
    let at = usize::try_from(seq - inner.synced - 1).expect("pending deltas fit into memory");
    let progress = matches!(fact, Fact::Result(_));
    let deltas = encode_delta(seq, fact);
    inner.pending_bytes += deltas.len();
    inner.lag_bytes += deltas.len();
    if let Some(pending) = inner.pending.get_mut(at) {
        *pending = Pending::new(deltas, Vec::new(), progress);
    }
    if progress {
        inner.progress.get_or_insert(seq);
    }
    if synced {
        inner.sync_to = inner.sync_to.max(seq);
    }
    live.shared.committer.enqueue(live, inner);
}

fn append(live: &Arc<Live>, inner: &mut Inner, pending: Pending, synced: bool) -> Seq {
    let (seq, bytes) = (inner.next, pending.bytes());
    inner.next += 1;
    inner.pending_bytes += bytes;
    inner.lag_bytes += bytes;
    if pending.progress {
        inner.progress.get_or_insert(seq);
    }
    inner.pending.push_back(pending);
    if synced || inner.pending_bytes > live.shared.settings.commit.unsynced_bytes {
        inner.sync_to = seq;
    }
    live.shared.committer.enqueue(live, inner);
    seq
}

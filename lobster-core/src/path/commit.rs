//! Commit: a fact becomes a delta of its run. In memory only; it cannot fail.
//!
//! Invariant: seqs are gapless, and a delta stays in memory until a synced row covers it.

use crate::live::{Inner, Live, Pending};
use bytes::{Bytes, BytesMut};
use lobster_store::contract::{
    Seq,
    record::{Changed, Fact, Round, encode_change, encode_delta},
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
    let changes = changes.into_iter().fold(BytesMut::new(), |mut bytes, changed| {
        bytes.extend_from_slice(&encode_change(seq, changed.clone()));
        inner.folding.changed(seq, changed);
        bytes
    });
    append(live, inner, Pending { deltas, changes: changes.freeze(), refused: None, progress }, synced)
}

fn is_progress(changed: &Changed) -> bool {
    matches!(changed, Changed::Round(Round { attempt: None, .. }))
}

/// The same for an intent; `refused` takes its place should a cancel forbid it. Always synced.
pub(crate) fn intend(live: &Arc<Live>, inner: &mut Inner, intent: Fact, refused: Fact) -> Seq {
    let (seq, changes) = (inner.next, Bytes::new());
    let (deltas, refused) = (encode_delta(seq, intent), Some(encode_delta(seq, refused)));
    append(live, inner, Pending { deltas, changes, refused, progress: false }, true)
}

fn append(live: &Arc<Live>, inner: &mut Inner, pending: Pending, synced: bool) -> Seq {
    let (seq, bytes) = (inner.next, pending.bytes());
    inner.next += 1;
    inner.pending_bytes += bytes;
    inner.lag_bytes += bytes;
    inner.pending.push_back(pending);
    if synced || inner.pending_bytes > live.shared.settings.commit.unsynced_bytes {
        inner.sync_to = seq;
    }
    live.shared.committer.enqueue(live, inner);
    seq
}

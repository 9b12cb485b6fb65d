//! Commit: a fact becomes a delta of its run. In memory only; it cannot fail.
//!
//! Invariant: seqs are gapless, and a delta stays in memory until a synced row covers it.

use crate::live::{Inner, Live, Pending};
use lobster_store::contract::{
    Seq,
    record::{Fact, encode_delta},
};
use std::sync::Arc;

/// Gives the fact the next seq and queues the run for the committer. `synced`: nothing before this is flushed may be called durable.
pub(crate) fn commit(live: &Arc<Live>, inner: &mut Inner, fact: Fact, synced: bool) -> Seq {
    let progress = matches!(fact, Fact::Result(_));
    append(live, inner, Pending { bytes: encode_delta(fact), refused: None, progress }, synced)
}

/// The same for an intent; `refused` takes its place should a cancel forbid it. Always synced.
pub(crate) fn intend(live: &Arc<Live>, inner: &mut Inner, intent: Fact, refused: Fact) -> Seq {
    let pending = Pending { bytes: encode_delta(intent), refused: Some(encode_delta(refused)), progress: false };
    append(live, inner, pending, true)
}

fn append(live: &Arc<Live>, inner: &mut Inner, pending: Pending, synced: bool) -> Seq {
    let (seq, bytes) = (inner.next, pending.bytes.len());
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

//! The watch: other nodes that died, runs of ours that somebody wants something from, runs that ended long ago.
//!
//! Invariant: a node is revoked on a proof of its death, or when both keys are held; never because a clock says so.

use crate::engine::Shared;
use lobster_store::{
    contract::{Boot, Evidence, Incarnation, NodeState, Peer, Revoked},
    planted,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

mod proof {
    //! What it takes to revoke a node.
    //!
    //! Invariant: a proof is made here, of one of the two: a death that is proved, or both keys.

    use super::{Boot, Duration, Evidence, Peer};

    /// A node may be revoked, and its runs taken. Nothing else revokes.
    pub(super) struct ExpiryProof(Evidence);

    impl ExpiryProof {
        /// Its process is provably gone; the store looks again, under the lock that proves it.
        pub(super) fn death() -> Self {
            Self(Evidence::Death)
        }

        /// The local key: the same beat for `age` on this host's own clock, watched without a gap. The store's key: a beat of that age by
        /// its clock, which the store checks again on the locked row.
        pub(super) fn silence(peer: &Peer, since: Boot, now: Boot, age: Duration) -> Option<Self> {
            let both = now.since(since) >= age && peer.age.is_some_and(|old| old >= age);
            both.then_some(Self(Evidence::Silence { beat: peer.beat, age }))
        }

        /// A planted bug: one look is enough.
        pub(super) fn impatient(peer: &Peer) -> Self {
            Self(Evidence::Silence { beat: peer.beat, age: Duration::ZERO })
        }

        pub(super) fn evidence(&self) -> Evidence {
            self.0
        }
    }
}

use proof::ExpiryProof;

/// What was seen of a peer's beat.
struct Watched {
    beat: u64,
    /// Unchanged since, on this host's clock.
    since: Boot,
    /// Last look.
    looked: Boot,
}

/// Looks at the other nodes.
pub(crate) struct Watch {
    watched: BTreeMap<Incarnation, Watched>,
    /// Renewals read the nodes in passing.
    fed: bool,
    /// Some node should have beaten again by now.
    late: bool,
}

impl Watch {
    pub fn new() -> Self {
        Self { watched: BTreeMap::new(), fed: false, late: false }
    }

    /// Time to the next look. What renewals read in passing is enough while all nodes beat.
    fn pace(&self, shared: &Shared) -> Duration {
        let poll = shared.settings.run.poll;
        if self.fed && !self.late { shared.lease.interval(&shared.settings.lease).mul_f64(1.25).max(poll) } else { poll }
    }

    /// Reads the nodes, unless the last renewal did, and revokes those that are dead or silent. Returns the active ones, and whether any was revoked.
    pub async fn look(&mut self, shared: &Shared) -> (Vec<Incarnation>, bool) {
        let me = shared.member().incarnation;
        let passing = shared.tiers.members.renewed_peers(me);
        self.fed |= passing.is_some();
        let read = match passing {
            Some(peers) => Ok(peers),
            None => shared.tiers.members.peers().await,
        };
        let peers = match read {
            Ok(peers) => peers,
            Err(error) => {
                tracing::warn!(%error, "the nodes could not be read");
                return (Vec::new(), false);
            }
        };
        shared.lease.seen(peers.iter().filter(|peer| peer.state == NodeState::Active).count());
        let soon = shared.lease.interval(&shared.settings.lease).mul_f64(1.5);
        let late = |peer: &Peer| peer.state == NodeState::Active && peer.age.is_some_and(|age| age > soon);
        self.late = peers.iter().any(|peer| peer.incarnation != me && late(peer));
        let (mut alive, mut revoked) = (Vec::new(), false);
        self.watched
            .retain(|watched, _| peers.iter().any(|peer| peer.incarnation == *watched && peer.state == NodeState::Active));
        for peer in peers.iter().filter(|peer| peer.state == NodeState::Active && peer.incarnation != me) {
            let proof = match shared.tiers.members.proves_dead(peer.incarnation) {
                true => Some(ExpiryProof::death()),
                false => self.silent(shared, peer),
            };
            match proof {
                Some(proof) if revoke(shared, peer.incarnation, &proof).await => revoked = true,
                _ => alive.push(peer.incarnation),
            }
        }
        (alive, revoked)
    }

    /// Both keys: unchanged on this host's own clock, and old by the store's.
    fn silent(&mut self, shared: &Shared, peer: &Peer) -> Option<ExpiryProof> {
        let now = shared.host.boot();
        let settings = &shared.settings.lease;
        let age = peer.ttl + settings.guard;
        let fresh = Watched { beat: peer.beat, since: now, looked: now };
        let watched = self.watched.entry(peer.incarnation).or_insert(fresh);
        // A gap in the watching, or the watcher's own lapse, begins the watch anew.
        let gap = now.since(watched.looked) > shared.lease.interval(settings).mul_f64(2.5);
        if watched.beat != peer.beat || gap || !shared.lease.good(now) {
            *watched = Watched { beat: peer.beat, since: now, looked: now };
            return None;
        }
        watched.looked = now;
        if planted!("impatient_revoke") {
            return Some(ExpiryProof::impatient(peer));
        }
        ExpiryProof::silence(peer, watched.since, now, age)
    }
}

/// Revokes an incarnation, if the store agrees with the evidence.
async fn revoke(shared: &Shared, incarnation: Incarnation, proof: &ExpiryProof) -> bool {
    let evidence = proof.evidence();
    match shared.tiers.members.revoke(incarnation, evidence).await {
        Ok(Revoked::Failed { suspects }) => {
            tracing::warn!(%incarnation, ?evidence, suspects = suspects.len(), "a node was revoked; its runs are free");
            true
        }
        Ok(Revoked::Refused) => false,
        Err(error) => {
            tracing::warn!(%incarnation, %error, "a node could not be revoked");
            false
        }
    }
}

/// The watch's loop.
pub(crate) async fn run(shared: Arc<Shared>, mut watch: Watch) {
    let poll = shared.settings.run.poll;
    // Proofs of death cost a few system calls: they are looked for more often than the store is read.
    let glance = (poll / 5).min(Duration::from_millis(100)).max(Duration::from_millis(5));
    let (mut peers, mut read, mut swept) = (Vec::new(), Boot::default(), shared.host.boot());
    let mut attended = Boot::default();
    let (mut hints, mut hinted, mut deaf) = (shared.tiers.wake.hints(), false, glance);
    while !shared.stopping() {
        let now = shared.host.boot();
        if now.since(read) >= watch.pace(&shared) {
            read = now;
            let revoked;
            (peers, revoked) = watch.look(&shared).await;
            if revoked {
                free(&shared);
            }
        }
        let quiet = now.since(attended);
        if quiet >= if hinted { deaf } else { poll } && shared.has_runs() {
            attended = now;
            let found = attend(&shared).await;
            // Hints are of everything: where one after the other is about others, they are followed no more often than polls come.
            deaf = if found || !hinted { glance } else { deaf.saturating_mul(2).min(poll) };
            hinted = false;
        }
        let dead: Vec<_> = peers.iter().copied().filter(|peer| shared.tiers.members.proves_dead(*peer)).collect();
        for peer in dead {
            if revoke(&shared, peer, &ExpiryProof::death()).await {
                peers.retain(|other| *other != peer);
                free(&shared);
            }
        }
        if now.since(swept) >= shared.settings.retention.every {
            swept = now;
            sweep(&shared).await;
        }
        tokio::select! {
            biased;
            () = shared.attention.notified() => attended = Boot::default(),
            seen = shared.tiers.wake.hinted(hints), if !hinted => (hints, hinted) = (seen, true),
            () = shared.host.sleep(glance) => {}
        }
    }
}

/// Runs of a revoked node can be claimed, suspects among them.
fn free(shared: &Shared) {
    shared.revoked.store(true, Ordering::SeqCst);
    shared.work.notify_one();
}

/// Runs of ours with a cancel asked for, or woken; was any of that news?
async fn attend(shared: &Shared) -> bool {
    let incarnation = shared.member().incarnation;
    match shared.tiers.journal.attend(incarnation).await {
        Ok(all) => {
            let mut news = false;
            for attention in all {
                if let Some(live) = shared.run(attention.run).filter(|live| live.epoch == attention.epoch) {
                    news |= live.attend(attention.cancel, attention.wake);
                }
            }
            news
        }
        Err(error) => {
            tracing::warn!(%error, "what is asked of our runs could not be read");
            false
        }
    }
}

/// Removes what ended long ago, in small batches.
async fn sweep(shared: &Shared) {
    let before = shared.host.wall().minus(shared.settings.retention.keep);
    while !shared.stopping() {
        match shared.tiers.journal.sweep(before, shared.settings.retention.batch).await {
            Ok(removed) if removed >= shared.settings.retention.batch => tokio::task::yield_now().await,
            Ok(_) => return,
            Err(error) => return tracing::warn!(%error, "ended runs could not be removed"),
        }
    }
}

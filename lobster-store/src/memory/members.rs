//! The members of the memory tier. Its host is called "memory", and a process lives until [`Memory::kill`] says otherwise.
//!
//! Invariant: only `revoke` makes a node failed, and nothing makes it anything else again.

use super::{
    Memory,
    state::{Node, State},
};
use crate::contract::{
    Beat, Boot, Evidence, Failed, Incarnation, Joined, Members, NewNode, NodeState, Peer, Renewed, Result, Revoked, RunId,
};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};

/// Host and boot of every process that shares a memory store.
const HOST: &str = "memory";

#[async_trait]
impl Members for Memory {
    async fn join(&self, node: NewNode) -> Result<Joined> {
        let now = self.clock.boot();
        self.with(|state| state.join(node, now))
    }

    async fn renew(&self, incarnation: Incarnation, beat: Beat) -> Result<Renewed> {
        Ok(self.with(|state| state.renew(incarnation, beat)))
    }

    fn renewed_peers(&self, _incarnation: Incarnation) -> Option<Vec<Peer>> {
        None
    }

    async fn peers(&self) -> Result<Vec<Peer>> {
        let now = self.clock.boot();
        Ok(self.with(|state| state.peers(now)))
    }

    fn proves_dead(&self, incarnation: Incarnation) -> bool {
        self.with(|state| state.proves_dead(incarnation))
    }

    async fn revoke(&self, incarnation: Incarnation, evidence: Evidence) -> Result<Revoked> {
        let now = self.clock.boot();
        Ok(self.with(|state| state.revoke(incarnation, evidence, now)))
    }

    fn history(&self) -> u64 {
        0
    }

    fn release(&self, _incarnation: Incarnation) {}

    async fn leave(&self, incarnation: Incarnation) -> Result<()> {
        self.with(|state| state.leave(incarnation));
        Ok(())
    }

    fn note(&self, incarnation: Incarnation, slot: usize, run: Option<RunId>) {
        self.with(|state| state.note(incarnation, slot, run));
    }
}

impl State {
    fn join(&mut self, new: NewNode, now: Boot) -> Result<Joined> {
        let joined = |name: &str| Joined { name: name.to_owned(), boot_id: HOST.to_owned() };
        if let Some(node) = self.nodes.get(&new.incarnation) {
            // The same join again, after an unknown outcome; or an incarnation that is over.
            return match node.state {
                NodeState::Active => Ok(joined(&node.name)),
                NodeState::Left | NodeState::Failed => Err(Failed::Refused("this incarnation is over".to_owned())),
            };
        }
        let held: BTreeSet<&str> = self.nodes.values().filter(|node| node.holds_name()).map(|node| node.name.as_str()).collect();
        let name = match new.name {
            Some(name) if held.contains(name.as_str()) => {
                return Err(Failed::Refused(format!("a living process of this host has the name {name:?}")));
            }
            Some(name) => name,
            None => (0u64..)
                .map(|slot| format!("{HOST}-{slot}"))
                .find(|name| !held.contains(name.as_str()))
                .expect("there are more slots than a process could ever fill"),
        };
        let node = Node {
            name: name.clone(),
            state: NodeState::Active,
            tasks: new.tasks,
            slots: new.slots,
            ttl: new.ttl,
            beat: Beat { seq: 0, at: now, lapsed: false },
            dead: false,
            notes: BTreeMap::new(),
        };
        self.nodes.insert(new.incarnation, node);
        self.sync();
        Ok(joined(&name))
    }

    fn renew(&mut self, incarnation: Incarnation, beat: Beat) -> Renewed {
        let Some(node) = self.nodes.get_mut(&incarnation) else { return Renewed::Revoked };
        if node.state != NodeState::Active || node.beat.seq >= beat.seq {
            return Renewed::Revoked;
        }
        let before = std::mem::replace(&mut node.beat, beat);
        self.remember_beat(incarnation, before);
        Renewed::Good
    }

    fn peers(&self, now: Boot) -> Vec<Peer> {
        let peer = |(incarnation, node): (&Incarnation, &Node)| Peer {
            incarnation: *incarnation,
            name: node.name.clone(),
            state: node.state,
            tasks: node.tasks.clone(),
            beat: node.beat.seq,
            age: now.0.checked_sub(node.beat.at.0),
            ttl: node.ttl,
        };
        self.nodes.iter().map(peer).collect()
    }

    fn proves_dead(&self, incarnation: Incarnation) -> bool {
        self.nodes.get(&incarnation).is_some_and(|node| node.dead)
    }

    fn revoke(&mut self, incarnation: Incarnation, evidence: Evidence, now: Boot) -> Revoked {
        let Some(node) = self.nodes.get_mut(&incarnation) else { return Revoked::Refused };
        match node.state {
            NodeState::Active => {}
            NodeState::Left => return Revoked::Refused,
            NodeState::Failed => return Revoked::Failed { suspects: Vec::new() },
        }
        let holds = match evidence {
            Evidence::Death => node.dead,
            Evidence::Silence { beat, age } => node.beat.seq == beat && now.since(node.beat.at) >= age,
        };
        if !holds {
            return Revoked::Refused;
        }
        node.state = NodeState::Failed;
        let polled: BTreeSet<RunId> = std::mem::take(&mut node.notes).into_values().collect();
        let owned: Vec<_> = self.owned_by(incarnation).collect();
        let suspects = owned.into_iter().filter(|id| self.blame(*id, polled.contains(id))).collect();
        self.sync();
        self.stirred = true;
        Revoked::Failed { suspects }
    }

    /// Settles the counters of a run whose owner is failed now. Returns whether a death was counted against it.
    fn blame(&mut self, id: RunId, polled: bool) -> bool {
        let counted = self.change(id, |run| {
            // Progress since the claim has set the counter to zero.
            let stuck = run.hot.attempts > 0;
            if stuck && polled {
                run.hot.deaths += 1;
            } else {
                run.give_attempt_back();
            }
            stuck && polled
        });
        counted.unwrap_or(false)
    }

    fn leave(&mut self, incarnation: Incarnation) {
        let Some(node) = self.nodes.get_mut(&incarnation) else { return };
        if node.state == NodeState::Active {
            node.state = NodeState::Left;
            node.notes.clear();
            self.sync();
            self.stirred = true;
        }
    }

    fn note(&mut self, incarnation: Incarnation, slot: usize, run: Option<RunId>) {
        let Some(node) = self.nodes.get_mut(&incarnation) else { return };
        match run {
            Some(run) if slot < node.slots => _ = node.notes.insert(slot, run),
            _ => _ = node.notes.remove(&slot),
        }
    }

    pub(super) fn kill(&mut self, incarnation: Incarnation) {
        if let Some(node) = self.nodes.get_mut(&incarnation) {
            node.dead = true;
        }
    }
}

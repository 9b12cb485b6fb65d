//! Nodes, through the simulation: beats in the store's time, proofs of death only within a machine.
//!
//! Invariant: a process is provably dead only to processes of its own machine.

use super::SimStore;
use crate::{history::Event, swarm::Call, world::World};
use async_trait::async_trait;
use lobster_core::{
    BoxFuture, RunId,
    store::contract::{Beat, Boot, Evidence, Incarnation, Joined, Members, NewNode, Peer, Renewed, Result, Revoked},
};
use std::sync::Arc;

#[async_trait]
impl Members for SimStore {
    async fn join(&self, node: NewNode) -> Result<Joined> {
        let incarnation = node.incarnation;
        // Even if the answer is lost, its process may die.
        self.node.joined(incarnation);
        let joined = self.op(Call::Join, incarnation, |world| Box::pin(async move { world.memory.join(node).await })).await?;
        let boot_id = format!("boot-{}", self.node.machine.number);
        Ok(Joined { boot_id, ..joined })
    }

    async fn renew(&self, incarnation: Incarnation, beat: Beat) -> Result<Renewed> {
        let stored = Beat { at: Boot(beat.at.0.saturating_sub(self.node.machine.boot_offset)), ..beat };
        let what = beat.seq;
        let renewed = self
            .op(Call::Renew, what, move |world| Box::pin(async move { world.memory.renew(incarnation, stored).await }))
            .await?;
        match renewed {
            Renewed::Good => self.node.leased(Some(beat.at)),
            Renewed::Revoked => self.node.leased(None),
        }
        Ok(renewed)
    }

    fn renewed_peers(&self, _incarnation: Incarnation) -> Option<Vec<Peer>> {
        None
    }

    async fn peers(&self) -> Result<Vec<Peer>> {
        self.op(Call::Peers, "", |world| Box::pin(async move { world.memory.peers().await })).await
    }

    fn proves_dead(&self, incarnation: Incarnation) -> bool {
        let of_machine = |other: &Arc<crate::node::Node>| other.machine.number == self.node.machine.number;
        self.memory().proves_dead(incarnation) && self.world.all().iter().any(|other| other.is(incarnation) && of_machine(other))
    }

    async fn revoke(&self, incarnation: Incarnation, evidence: Evidence) -> Result<Revoked> {
        let what = format!("{incarnation} {evidence:?}");
        let revoke = move |world: Arc<World>| -> BoxFuture<'static, Result<Revoked>> {
            Box::pin(async move {
                let revoked = world.memory.revoke(incarnation, evidence).await?;
                let all = world.all();
                // One that has joined anew has lost nothing more.
                let node = all.iter().find(|node| node.newest() == Some(incarnation));
                if let (Some(node), Revoked::Failed { .. }) = (node, &revoked) {
                    world.log(Event::Revoked { node: node.serial });
                }
                Ok(revoked)
            })
        };
        self.op(Call::Revoke, what, revoke).await
    }

    fn history(&self) -> u64 {
        self.memory().history()
    }

    fn release(&self, incarnation: Incarnation) {
        self.memory().release(incarnation);
    }

    async fn leave(&self, incarnation: Incarnation) -> Result<()> {
        self.op(Call::Leave, incarnation, move |world| Box::pin(async move { world.memory.leave(incarnation).await })).await
    }

    fn note(&self, incarnation: Incarnation, slot: usize, run: Option<RunId>) {
        if !self.node.dying() {
            self.memory().note(incarnation, slot, run);
        }
    }
}

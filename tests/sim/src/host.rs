//! The engine's host in the simulation: clocks, chance and tasks of one simulated process.
//!
//! Invariant: everything comes from the node, so that kill and pause reach all of it, the lease included.

use crate::node::Node;
use lobster_core::{
    BoxFuture, Host, Wall,
    store::contract::{Boot, Clock},
};
use std::{sync::Arc, time::Duration};

/// A simulated process, as its engine sees it.
#[derive(Debug)]
pub(crate) struct SimHost(pub Arc<Node>);

impl Clock for SimHost {
    fn boot(&self) -> Boot {
        self.0.boot()
    }
    fn wall(&self) -> Wall {
        self.0.wall()
    }
}

impl Host for SimHost {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
    fn spawn_lease(&self, task: BoxFuture<'static, ()>) -> std::io::Result<()> {
        self.0.spawn(task);
        Ok(())
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(crate::world::sleep(duration))
    }
    fn random(&self) -> u64 {
        self.0.random()
    }
}

//! The store as one simulated process reaches it: every operation is sent, applies and is answered, and may go wrong in between.
//!
//! Invariant: every method is forwarded to the memory tier, and what is logged is logged at the moment when it applied.

mod books;
mod facts;
mod journal;
mod members;
mod reads;
mod transact;

pub(crate) use books::look;
pub(crate) use facts::{arm, end_of, results, token_of};

use crate::{
    node::Node,
    swarm::{Call, Moment},
    world::{Fate, Fault, World, sleep},
};
use lobster_core::{
    BoxFuture,
    store::{
        Tiers,
        contract::{Epoch, Failed, Result, RunId},
        memory::Memory,
    },
};
use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, atomic::Ordering},
};
use tokio::sync::oneshot;

/// A process' connection to the store.
pub(crate) struct SimStore {
    world: Arc<World>,
    node: Arc<Node>,
    /// Runs whose part of a batch is on its way.
    away: Mutex<HashSet<(RunId, Epoch)>>,
}

/// The stores of a process.
pub(crate) fn tiers(node: &Arc<Node>) -> Tiers {
    Tiers::of(Arc::new(SimStore { world: node.world.clone(), node: node.clone(), away: Mutex::default() }), "simulated")
}

impl SimStore {
    /// Sends an operation and waits for its answer. It goes its way even if the caller is dropped.
    #[allow(clippy::disallowed_methods, reason = "the store's own tasks belong to no node")]
    async fn op<T: Send + 'static>(
        &self,
        call: Call,
        what: impl fmt::Display,
        apply: impl FnOnce(Arc<World>) -> BoxFuture<'static, Result<T>> + Send + 'static,
    ) -> Result<T> {
        let fate = self.world.fate();
        let serial = self.node.serial;
        self.world.note(format_args!("node {serial} {call:?} {what} {:?} {:?} {:?}", fate.fault, fate.before, fate.after));
        let (tell, told) = oneshot::channel();
        tokio::spawn(carry(self.world.clone(), self.node.clone(), call, fate, apply, tell));
        match told.await {
            Ok(answer) => answer,
            // Only the store of a dead process does not answer.
            Err(_) => std::future::pending().await,
        }
    }

    fn memory(&self) -> &Memory {
        &self.world.memory
    }
}

/// The way of one operation.
async fn carry<T>(
    world: Arc<World>,
    node: Arc<Node>,
    call: Call,
    fate: Fate,
    apply: impl FnOnce(Arc<World>) -> BoxFuture<'static, Result<T>>,
    tell: oneshot::Sender<Result<T>>,
) {
    let crashes = world.crashes.load(Ordering::SeqCst);
    world.pass(&node, call, Moment::Sent);
    if !fate.before.is_zero() {
        sleep(fate.before).await;
    }
    let unknown = |why: &str| Failed::Unknown(why.to_owned());
    world.met(call, fate.fault);
    let mut answer = if node.dead() && !fate.ghost {
        // It died with its process.
        return;
    } else if world.crashes.load(Ordering::SeqCst) != crashes {
        Err(unknown("the store crashed"))
    } else if world.out() || fate.fault == Fault::Unavailable {
        Err(Failed::Unavailable("the store is away".to_owned()))
    } else if fate.fault == Fault::Lost {
        Err(unknown("the connection broke"))
    } else if fate.fault == Fault::Late {
        drop(tell.send(Err(unknown("the connection broke"))));
        sleep(fate.after).await;
        if (!node.dead() || fate.ghost) && world.crashes.load(Ordering::SeqCst) == crashes {
            drop(apply(world.clone()).await);
            world.pass(&node, call, Moment::Applied);
        }
        return;
    } else {
        apply(world.clone()).await
    };
    world.pass(&node, call, Moment::Applied);
    if !fate.after.is_zero() {
        sleep(fate.after).await;
    }
    if fate.fault == Fault::Unknown && answer.is_ok() {
        answer = Err(unknown("the answer was lost"));
    }
    if let Err(error) = &answer {
        world.note(format_args!("node {} {call:?} {error}", node.serial));
    }
    drop(tell.send(answer));
    world.pass(&node, call, Moment::Answered);
}

//! The nemesis: kills, pauses, crashes, outages, drains and clock jumps, at random moments of the chaos phase.
//!
//! Invariant: what it does ends with the chaos: every process it stopped or killed comes back.

use crate::{
    history::Event,
    node::{Machine, Node},
    rng::Rng,
    swarm::{Blow, Call, Moment},
    tasks::job,
    world::{World, sleep},
};
use lobster_core::{BoxFuture, Lobster};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Engine,
    Client(usize),
    Canceller,
    Person,
}

/// A task of the world.
#[allow(clippy::disallowed_methods, reason = "the world's own tasks belong to no node")]
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

/// A machine that never was before.
pub(crate) fn machine(world: &World, number: usize) -> Arc<Machine> {
    let mut rng = Rng::new(world.seed, "machine", number as u64);
    let boot_offset = if number == 0 { Duration::ZERO } else { rng.ms(0, 1_000_000) };
    let skew = if world.swarm.jumps_ms > 0 { i64::try_from(rng.below(2000)).unwrap_or(0) - 1000 } else { 0 };
    Arc::new(Machine { number, boot_offset, wall_offset_ms: AtomicI64::new(skew) })
}

/// Starts a process.
pub(crate) fn boot(world: &Arc<World>, role: Role, machine: Arc<Machine>) {
    let node = world.process(role, machine);
    world.note(format_args!("node {} starts as {role:?} on machine {}", node.serial, node.machine.number));
    let main: BoxFuture<'static, ()> = match role {
        Role::Engine => Box::pin(engine(node.clone())),
        Role::Client(index) => Box::pin(crate::clients::client(node.clone(), index)),
        Role::Canceller => Box::pin(crate::clients::canceller(node.clone())),
        Role::Person => Box::pin(crate::clients::person(node.clone())),
    };
    node.spawn(main);
}

/// The main function of a process that executes runs.
async fn engine(node: Arc<Node>) {
    loop {
        let host = Arc::new(crate::host::SimHost(node.clone()));
        let builder = Lobster::open("simulated:").tiers(crate::store::tiers(&node)).host(host).task(job);
        match builder.settings(node.world.swarm.settings.clone()).start().await {
            Ok(lobster) => return node.serve(lobster),
            Err(error) => {
                node.world.note(format_args!("node {} could not start: {error}", node.serial));
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// A process dies; another takes its place.
pub(crate) fn kill(node: &Arc<Node>) {
    if node.dead() {
        return;
    }
    let world = node.world.clone();
    world.note(format_args!("node {} is killed", node.serial));
    node.kill();
    let (delay, lost_host) = {
        let ttl = u64::try_from(world.swarm.settings.lease.ttl.as_millis()).unwrap_or(u64::MAX);
        let slow = world.swarm.slow_restart;
        let mut rng = world.faults();
        (if rng.chance(slow) { rng.ms(0, 3 * ttl) } else { rng.ms(0, 100) }, world.swarm.own_hosts && rng.chance(300))
    };
    let (role, mut place) = (node.role, node.machine.clone());
    spawn(async move {
        if !world.healed() {
            sleep(delay).await;
        }
        if lost_host {
            place = machine(&world, world.all().len() + 1);
        }
        if !world.over() {
            boot(&world, role, place);
        }
    });
}

/// A process is stopped, longer than its lease lives, or shorter.
pub(crate) fn pause(node: &Arc<Node>) {
    if !node.running() {
        return;
    }
    let world = node.world.clone();
    let ttl = u64::try_from(world.swarm.settings.lease.ttl.as_millis()).unwrap_or(u64::MAX);
    let length = world.faults().ms(ttl / 20, 3 * ttl);
    world.note(format_args!("node {} is stopped for {length:?}", node.serial));
    node.pause();
    let node = node.clone();
    spawn(async move {
        sleep(length).await;
        world.note(format_args!("node {} goes on", node.serial));
        node.resume();
    });
}

/// Drains a process, which ends then.
fn drain(node: &Arc<Node>, deadline: Duration) {
    let Some(lobster) = node.engine() else { return };
    node.world.note(format_args!("node {} is drained within {deadline:?}", node.serial));
    let (tell, told) = tokio::sync::oneshot::channel();
    let world = node.world.clone();
    node.spawn(Box::pin(async move {
        let drained = lobster.shutdown(deadline).await;
        world.note(format_args!("drained: {drained:?}"));
        let _ = tell.send(());
    }));
    let node = node.clone();
    spawn(async move {
        if told.await.is_ok() {
            kill(&node);
        }
    });
}

/// Until the end of the chaos: something, at random moments.
async fn now_and_then(world: Arc<World>, name: &'static str, mean_ms: u64, mut act: impl FnMut(&Arc<World>, &mut Rng)) {
    let mut rng = Rng::new(world.seed, name, 0);
    if mean_ms == 0 {
        return;
    }
    loop {
        sleep(rng.ms(0, 2 * mean_ms)).await;
        if world.healed() {
            return;
        }
        act(&world, &mut rng);
    }
}

fn some_engine(world: &World, rng: &mut Rng) -> Option<Arc<Node>> {
    let up: Vec<_> = world.all().into_iter().filter(|node| node.role == Role::Engine && node.running()).collect();
    if up.is_empty() { None } else { Some(up[usize::try_from(rng.below(up.len() as u64)).unwrap_or(0)].clone()) }
}

/// Releases it.
pub(crate) fn release(world: &Arc<World>) {
    let swarm = &world.swarm;
    let struck = |world: &World, blow| world.log(Event::Struck { call: Call::Read, moment: Moment::Sent, blow });
    spawn(now_and_then(world.clone(), "kills", swarm.kills_ms, move |world, rng| {
        if let Some(node) = some_engine(world, rng) {
            struck(world, Blow::Kill);
            kill(&node);
        }
    }));
    spawn(now_and_then(world.clone(), "pauses", swarm.pauses_ms, move |world, rng| {
        if let Some(node) = some_engine(world, rng) {
            struck(world, Blow::Pause);
            pause(&node);
        }
    }));
    spawn(now_and_then(world.clone(), "crashes", swarm.crashes_ms, move |world, _| {
        struck(world, Blow::Crash);
        world.crash();
    }));
    spawn(now_and_then(world.clone(), "outages", swarm.outages_ms, |world, rng| {
        let length = rng.ms(10, 2000);
        world.note(format_args!("the store is away for {length:?}"));
        world.begin_outage(length);
    }));
    spawn(now_and_then(world.clone(), "drains", swarm.drains_ms, |world, rng| {
        let deadline = rng.ms(0, 1500);
        if let Some(node) = some_engine(world, rng) {
            drain(&node, deadline);
        }
    }));
    spawn(now_and_then(world.clone(), "locks", swarm.locks_ms, |world, rng| {
        let runs: Vec<_> = world.runs().into_iter().collect();
        let length = rng.ms(5, 1500);
        if !runs.is_empty()
            && let Some(lock) = world.lock_row(rng.pick(&runs))
        {
            world.note(format_args!("somebody locks a row for {length:?}"));
            spawn(async move {
                sleep(length).await;
                drop(lock);
            });
        }
    }));
    spawn(now_and_then(world.clone(), "jumps", swarm.jumps_ms, |world, rng| {
        if let Some(node) = some_engine(world, rng) {
            let offset = i64::try_from(rng.below(4000)).unwrap_or(0) - 2000;
            world.note(format_args!("the wall clock of machine {} is {offset} ms off", node.machine.number));
            node.machine.wall_offset_ms.store(offset, Ordering::SeqCst);
        }
    }));
}

/// Everything comes back.
pub(crate) fn heal(world: &Arc<World>) {
    world.heal();
    for node in world.all() {
        node.machine.wall_offset_ms.store(0, Ordering::SeqCst);
        node.resume();
    }
}

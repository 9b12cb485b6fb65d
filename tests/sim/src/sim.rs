//! One simulation: a seed becomes a swarm, a chaos phase, a heal phase, and a verdict of the checkers.
//!
//! Invariant: a seed decides everything, down to the number of the last draw.

use crate::{
    check,
    clients::{plan_of, submits},
    history::Event,
    nemesis::{self, Role},
    store::{end_of, results},
    swarm::{Swarm, Trigger},
    world::{World, sleep},
};
use lobster_core::{
    RunId, RunSummary,
    store::contract::{Catalog, RunFilter},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long after the last fault every run must have ended, and every client been told.
const HEALED_WITHIN: Duration = Duration::from_secs(60);

/// What became of a seed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Hash over everything that happened.
    pub hash: u64,
    /// Simulated time at the end.
    pub time: Duration,
    /// Numbers drawn and polls made, by all processes.
    pub spent: (u64, u64),
    /// Events and finer notes.
    pub events: u64,
    /// Rules that were broken.
    pub violations: Vec<String>,
    /// How often which blow fell where, and which call met which fault.
    pub coverage: BTreeMap<String, u32>,
    /// The configuration, for people.
    pub swarm: String,
}

/// Simulates a seed. `echo`: prints what happens.
///
/// # Panics
/// If no runtime can be built.
pub fn run(seed: u64, echo: bool) -> Report {
    run_swarm(seed, Swarm::draw(seed), echo)
}

/// The places of [`Report::coverage`] at which a blow may fall: any call that can be struck, any of its moments, any blow.
pub fn places() -> Vec<String> {
    Trigger::everywhere().iter().map(Trigger::place).collect()
}

/// The same seed with one blow alone, aimed at a place (by its index in [`places`]).
///
/// # Panics
/// As [`run`]; and if there is no such place.
pub fn aim(seed: u64, place: usize, echo: bool) -> Report {
    run_swarm(seed, Swarm::draw(seed).aimed(Trigger::everywhere()[place]), echo)
}

fn run_swarm(seed: u64, swarm: Swarm, echo: bool) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O asks nothing of the system");
    let report = runtime.block_on(simulate(seed, swarm, echo));
    drop(runtime);
    report
}

async fn simulate(seed: u64, swarm: Swarm, echo: bool) -> Report {
    let world = World::new(seed, swarm.clone(), echo);
    let shared = nemesis::machine(&world, 0);
    for index in 0..swarm.nodes {
        let machine = if swarm.own_hosts { nemesis::machine(&world, index + 1) } else { shared.clone() };
        nemesis::boot(&world, Role::Engine, machine);
    }
    for index in 0..swarm.clients {
        nemesis::boot(&world, Role::Client(index), shared.clone());
    }
    nemesis::boot(&world, Role::Canceller, shared.clone());
    nemesis::boot(&world, Role::Person, shared);
    nemesis::release(&world);
    sleep(swarm.chaos).await;
    nemesis::heal(&world);
    let limit = world.now() + HEALED_WITHIN;
    while !over(&world).await && world.now() < limit {
        sleep(Duration::from_millis(50)).await;
    }
    conclude(&world, swarm).await
}

async fn runs(world: &World) -> Vec<RunSummary> {
    world.memory.list(RunFilter::default(), usize::MAX).await.expect("the memory tier always answers")
}

/// Has everything ended?
async fn over(world: &World) -> bool {
    let clients = world.swarm.clients;
    let told = |number| {
        (0..clients).filter(|client| submits(world.seed, clients, *client, number)).all(|client| world.was_told(client, number))
    };
    runs(world).await.iter().all(|run| run.state.ended()) && (0..world.swarm.runs).all(told)
}

/// Reads what is left, and judges.
async fn conclude(world: &Arc<World>, swarm: Swarm) -> Report {
    for run in runs(world).await {
        if !run.state.ended() {
            world.log(Event::Stuck { run: run.id, state: run.state, reason: run.reason });
        }
    }
    let spent = world.all().iter().map(|node| node.spent()).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let time = world.now();
    // What was told must have been synced.
    world.crash();
    world.end();
    let all: Vec<RunId> = runs(world).await.into_iter().map(|run| run.id).collect();
    for run in all {
        let Some(stored) = world.memory.durable(run) else { continue };
        world.log(Event::Final {
            run,
            key: stored.summary.key,
            state: stored.summary.state,
            results: results(run, &stored.recording),
            end: stored.ended.map(|ended| end_of(run, &ended)),
        });
    }
    let plans = (0..swarm.runs).map(|number| (format!("run-{number}"), plan_of(world.seed, number))).collect();
    let history = world.history();
    Report {
        seed: world.seed,
        hash: history.hash(),
        time,
        spent,
        events: history.count(),
        violations: check::all(&history.events, &plans),
        coverage: history
            .coverage
            .iter()
            .map(|(place, count)| (format!("{place:?}"), *count))
            .chain(history.faults.iter().map(|(place, count)| (format!("{place:?}"), *count)))
            .collect(),
        swarm: format!("{swarm:?}"),
    }
}

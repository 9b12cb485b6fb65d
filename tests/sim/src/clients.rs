//! Who is around the engine: clients that submit and wait, somebody who cancels, and a person who resolves what is held.
//!
//! Invariant: a person says only what the outside world told him, or what the end of a call's window implies.

use crate::{
    history::{End, Event},
    host::SimHost,
    node::Node,
    plan::{self, Receipt},
    rng::Rng,
    swarm::MAX_DURATION,
    tasks::job,
    world::sleep,
};
use lobster_core::{Client, ErrorKind, Fate, Lobster, RunFailed, RunState, RunView, StepState};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use uuid::Uuid;

async fn connect(node: &Arc<Node>) -> Client {
    loop {
        let host = Arc::new(SimHost(node.clone()));
        let builder = Lobster::open("simulated:").tiers(crate::store::tiers(node)).host(host);
        match builder.settings(node.world.swarm.settings.clone()).connect().await {
            Ok(client) => return client,
            Err(error) => {
                node.world.note(format_args!("node {} could not connect: {error}", node.serial));
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// The plan of a run of this seed.
pub(crate) fn plan_of(seed: u64, number: u32) -> plan::Plan {
    plan::draw(&mut Rng::new(seed, "plan", u64::from(number)), number)
}

/// Which runs a client submits: each run has one client for certain, and others by chance.
pub(crate) fn submits(seed: u64, clients: usize, client: usize, number: u32) -> bool {
    let mut rng = Rng::new(seed, "submits", u64::from(number));
    let first = rng.below(clients as u64);
    let also = rng.chance(300);
    first == client as u64 || also
}

/// Submits its runs by key, and waits for their outcomes.
pub(crate) async fn client(node: Arc<Node>, index: usize) {
    let client = connect(&node).await;
    let world = node.world.clone();
    let mine = |number: &u32| submits(world.seed, world.swarm.clients, index, *number);
    for number in (0..world.swarm.runs).filter(mine) {
        let (client, node) = (client.clone(), node.clone());
        let mut rng = Rng::new(world.seed, "arrivals", u64::from(number) << 8 | index as u64);
        let wait = rng.ms(0, u64::try_from(world.swarm.chaos.as_millis()).unwrap_or(0) * 2 / 3);
        node.clone().spawn(Box::pin(async move {
            let world = node.world.clone();
            if !world.healed() {
                sleep(wait).await;
            }
            let key = format!("run-{number}");
            let handle = loop {
                match client.submit(job, plan_of(world.seed, number)).key(key.clone()).await {
                    Ok(handle) => break handle,
                    Err(error) if error.kind() == ErrorKind::Unavailable => sleep(Duration::from_millis(30)).await,
                    Err(error) => {
                        return world.log(Event::Refused { run: lobster_core::RunId(Uuid::nil()), message: error.to_string() });
                    }
                }
            };
            let run = handle.id();
            world.log(Event::Submitted { key, run });
            let end = match handle.outcome().await {
                Ok(sights) => End::Value(sights),
                Err(RunFailed::Failed(failed)) => End::Failure {
                    refused: failed.kind() == lobster_core::StepFailedKind::Refused,
                    message: failed.message().to_owned(),
                },
                Err(RunFailed::Cancelled(_)) => End::Cancelled,
                Err(RunFailed::Quarantined(why)) => End::Quarantined(why),
                Err(error) => End::Failure { refused: true, message: error.to_string() },
            };
            world.log(Event::Told { run, end });
            world.told(index, number);
        }));
    }
}

/// Cancels runs at random moments.
pub(crate) async fn canceller(node: Arc<Node>) {
    let world = node.world.clone();
    if world.swarm.cancels_ms == 0 {
        return;
    }
    let client = connect(&node).await;
    let mut rng = Rng::new(world.seed, "cancels", u64::from(node.serial));
    loop {
        sleep(rng.ms(0, 2 * world.swarm.cancels_ms)).await;
        if world.healed() {
            return;
        }
        let number = rng.below(u64::from(world.swarm.runs));
        if let Ok(Some(run)) = client.find(format!("run-{number}")).await {
            let said = client.cancel(run).await;
            world.note(format_args!("cancel of run {number} {run}: {said:?}"));
        }
    }
}

/// Resolves what is held.
pub(crate) async fn person(node: Arc<Node>) {
    let world = node.world.clone();
    let client = connect(&node).await;
    let mut rng = Rng::new(world.seed, "person", u64::from(node.serial));
    // Since when a step was seen in doubt, with what was known of it.
    let mut since: BTreeMap<(Uuid, u64), Duration> = BTreeMap::new();
    loop {
        sleep(rng.ms(20, 300)).await;
        if !world.healed() && !world.swarm.person_in_chaos {
            continue;
        }
        let Ok(held) = client.runs().state(RunState::Held).list().await else { continue };
        for run in held {
            let Ok(view) = client.show(run.id).await else { continue };
            if view.summary.state == RunState::Held {
                look(&node, &client, &view, &mut rng, &mut since).await;
            }
        }
    }
}

/// Looks at one held run and says what can be said.
async fn look(node: &Arc<Node>, client: &Client, view: &RunView, rng: &mut Rng, since: &mut BTreeMap<(Uuid, u64), Duration>) {
    let world = &node.world;
    let run = view.summary.id;
    for step in view.steps.iter().filter(|step| matches!(step.state, StepState::InDoubt(_) | StepState::Intended)) {
        let first = *since.entry((step.id, step.seq)).or_insert_with(|| world.now());
        let window = world.swarm.settings.lease.renew + MAX_DURATION + Duration::from_millis(1);
        let (effect, open) = {
            let outside = world.outside();
            (outside.effect(step.id), outside.open_key(step.id))
        };
        let (fate, now) = match (effect, open) {
            (Some(token), _) => (Fate::Happened(Receipt { label: world.label(step.id), token }), false),
            // With the key closed nothing can come any more; without a call seen, only the end of the window says so.
            (None, Some(key)) if rng.chance(700) && world.close(step.id, &key) => (Fate::Closed, rng.chance(500)),
            (None, _) if world.now() > first + window => (Fate::Closed, false),
            _ => continue,
        };
        let happened = matches!(fate, Fate::Happened(_));
        // Whether or not the answer arrives, it may count.
        world.log(Event::Resolved { run, step: step.id, happened });
        let said = if now { client.resolve_now(run, step.id, fate).await } else { client.resolve(run, step.id, fate).await };
        world.note(format_args!("person on {run} {}: {fate:?}: {said:?}", step.name));
    }
}

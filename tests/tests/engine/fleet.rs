//! Several processes on one store, and clients that execute nothing.
//!
//! Rule: who asks is told by others, and who goes hands over; no step is run again.

mod calendar;
mod failover;
mod killed;
mod lost;
mod outage;
mod owners;

use lobster_core::{Client, Ctx, Result, task};
use lobster_tests::{
    Place, on_shared,
    process::{Bound, tell},
    steered::Timeless,
    world::{Event, World},
};
use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// As `worker` has it, which executes it.
#[task]
async fn parcel(_ctx: Ctx, run: String) -> Result<u64> {
    Err(format!("{run} is executed by a client").into())
}

struct Fleet {
    place: Place,
    world: World,
    address: String,
}

impl Fleet {
    fn new(place: Place) -> Self {
        let world = World::default();
        let address = world.listen().to_string();
        Self { place, world, address }
    }
    /// Starts a node, with this in its environment.
    fn node(&self, environment: &[(&str, &str)]) -> Node {
        self.node_at(&self.place, environment)
    }
    /// The same on a host with a view of its own.
    fn node_at(&self, place: &Place, environment: &[(&str, &str)]) -> Node {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command.args([place.url(), &self.address, "serve"]).envs(environment.iter().copied());
        Node(Bound(command.spawn().unwrap()))
    }
    /// Waits until a node has begun so many bodies and calls.
    fn until_at_work(&self, node: &Node, count: usize) {
        let (pid, mut seen, mut heard) = (node.0.id(), 0, 0);
        self.world.until(|events| {
            heard += events[seen..].iter().filter(|event| event.pid == pid).count();
            seen = events.len();
            heard >= count
        });
    }
}

/// A process that executes whatever is submitted.
struct Node(Bound);

impl Node {
    /// Asks it to end; it does, when everything was handed over.
    fn end(mut self) {
        tell(&self.0, Signal::TERM);
        assert!(self.0.wait().unwrap().success());
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

/// A lease that a slow machine does not lose.
const CALM: &[(&str, &str)] = &[("CALM_LEASE", "1")];

/// What the server says, in one line.
fn ask(place: &Place, what: &str) -> String {
    lobster_servers::psql::sql(place.database(), what).unwrap().replace('\n', " ")
}

/// The nodes that live, in their order.
fn living(place: &Place) -> String {
    ask(place, "SELECT incarnation FROM lobster.nodes WHERE state = 0 ORDER BY 1")
}

/// Waits until every living node has beaten so often from now on.
fn until_beaten(place: &Place, times: u32) {
    let beats = ask(place, "SELECT min(beat) FROM lobster.nodes WHERE state = 0");
    let beaten = format!("SELECT min(beat) >= {beats} + {times} FROM lobster.nodes WHERE state = 0");
    while ask(place, &beaten) != "t" {}
}

/// Submits one run after the other, each when the last has ended, until it is enough.
async fn customer(client: Client, n: usize, enough: Arc<AtomicBool>) -> usize {
    let mut served = 0;
    while !enough.load(Ordering::SeqCst) {
        let key = format!("parcel-{n}-{served}");
        let run = client.submit(parcel, key.clone()).key(key).await.unwrap();
        run.outcome().await.unwrap();
        served += 1;
    }
    served
}

fn restarted_under_load(place: Place) {
    const CUSTOMERS: usize = 48;
    let fleet = Fleet::new(place);
    let runtime = runtime();
    let mut nodes: Vec<_> = (0..3).map(|_| fleet.node(&[])).collect();
    let enough = Arc::new(AtomicBool::new(false));
    let client = runtime.block_on(fleet.place.open().connect()).unwrap();
    let customers: Vec<_> = (0..CUSTOMERS).map(|n| runtime.spawn(customer(client.clone(), n, enough.clone()))).collect();
    for node in &nodes {
        fleet.until_at_work(node, 100);
    }
    for node in &mut nodes {
        std::mem::replace(node, fleet.node(&[])).end();
        fleet.until_at_work(node, 100);
    }
    enough.store(true, Ordering::SeqCst);
    let served: usize = customers.into_iter().map(|customer| runtime.block_on(customer).unwrap()).sum();
    nodes.into_iter().for_each(Node::end);
    let events = fleet.world.events();
    assert_eq!(begun_again(&events), BTreeMap::new(), "of {served} runs");
    // Five ordinary steps, a durable one and a call.
    assert_eq!(events.len(), 7 * served);
}

/// Steps that were begun more than once.
fn begun_again(events: &[Event]) -> BTreeMap<(&str, &str), usize> {
    let mut begun = BTreeMap::new();
    for event in events {
        *begun.entry((event.run.as_str(), event.step.as_str())).or_default() += 1;
    }
    begun.retain(|_, times| *times > 1);
    begun
}

fn told_of_outcomes(place: Place) {
    let fleet = Fleet::new(place);
    let node = fleet.node(&[("LONG_POLL", "1")]);
    let began = Instant::now();
    runtime().block_on(async {
        let client = fleet.place.open().host(Timeless::new()).connect().await.unwrap();
        for n in 1..=20 {
            let key = format!("parcel-{n}");
            let run = client.submit(parcel, key.clone()).key(key).await.unwrap();
            assert_eq!(run.outcome().await.unwrap(), n, "each is the next call of the world");
        }
    });
    assert!(began.elapsed() < Duration::from_secs(60), "hints are quicker than {:?}", began.elapsed());
    node.end();
}

on_shared! {
    fn a_rolling_restart_under_load_runs_no_step_again(store) {
        restarted_under_load(store());
    }
    fn a_client_is_told_of_outcomes_by_hints_and_not_by_its_clock(store) {
        told_of_outcomes(store());
    }
}

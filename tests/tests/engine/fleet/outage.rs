//! The server is gone for three leases under load, or is killed again and again: nobody is taken for dead, and nothing moves.

use super::*;
use lobster_core::ErrorKind;
use lobster_servers::postgres::{Durability, Postgres};

/// Three leases: that long, and by nobody's clock but the test's.
const GONE: Duration = Duration::from_secs(30);

/// Submits one run after the other, each again until it is taken.
async fn patient_customer(client: Client, n: usize, enough: Arc<AtomicBool>) -> usize {
    let mut served = 0;
    while !enough.load(Ordering::SeqCst) {
        let key = format!("parcel-{n}-{served}");
        let run = loop {
            match client.submit(parcel, key.clone()).key(key.clone()).await {
                Ok(run) => break run,
                // Not in a hurry: there are others.
                Err(error) if error.kind() == ErrorKind::Unavailable => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => panic!("{error}"),
            }
        };
        run.outcome().await.unwrap();
        served += 1;
    }
    served
}

fn gone_under_load(times: u32, gone: Duration, leaves: fn(&Postgres), comes_back: fn(&Postgres)) {
    let server = Postgres::start(Durability::Full).unwrap();
    let fleet = Fleet::new(Place::postgres_at(&server.fresh_database()));
    let runtime = runtime();
    let client = runtime.block_on(fleet.place.open().connect()).unwrap();
    let nodes: Vec<_> = (0..3).map(|_| fleet.node(CALM)).collect();
    let enough = Arc::new(AtomicBool::new(false));
    let customers: Vec<_> = (0..24).map(|n| runtime.spawn(patient_customer(client.clone(), n, enough.clone()))).collect();
    for node in &nodes {
        fleet.until_at_work(node, 50);
    }
    let before = living(&fleet.place);

    for _ in 0..times {
        leaves(&server);
        // That long: nobody tells when leases end while the server is gone.
        std::thread::sleep(gone);
        let heard = fleet.world.events().len();
        comes_back(&server);
        let works = |events: &[Event], node: &Node| events[heard..].iter().filter(|event| event.pid == node.0.id()).count() >= 20;
        fleet.world.until(|events| nodes.iter().all(|node| works(events, node)));
    }
    // Whoever would take another for dead has watched him for long enough.
    until_beaten(&fleet.place, 10);
    assert_eq!(living(&fleet.place), before, "nobody was evicted");

    enough.store(true, Ordering::SeqCst);
    let served: usize = customers.into_iter().map(|customer| runtime.block_on(customer).unwrap()).sum();
    nodes.into_iter().for_each(Node::end);
    let events = fleet.world.events();
    assert_eq!(begun_again(&events), BTreeMap::new(), "of {served} runs");
    assert_eq!(events.len(), 7 * served, "five ordinary steps, a durable one and a call");
}

#[test]
fn postgres_that_is_stopped_for_three_leases_under_load_evicts_nobody_and_everything_goes_on_in_place() {
    gone_under_load(1, GONE, Postgres::stop, Postgres::start_again);
}

#[test]
fn postgres_that_is_frozen_for_three_leases_under_load_evicts_nobody_and_everything_goes_on_in_place() {
    gone_under_load(1, GONE, Postgres::pause, Postgres::resume);
}

#[test]
fn postgres_that_is_killed_again_and_again_under_load_evicts_nobody_and_everything_goes_on_in_place() {
    gone_under_load(6, Duration::ZERO, Postgres::kill, Postgres::start_again);
}

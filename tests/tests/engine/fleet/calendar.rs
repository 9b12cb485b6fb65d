//! The server's calendar is set forward and back under load: no living node is taken for dead, nothing is lost or doubled, and a node that
//! dies afterwards is found out as ever. What was ready as the calendar was set back waits until it is there again.

use super::*;
use lobster_servers::postgres::{Durability, Postgres};

#[test]
fn postgres_whose_calendar_is_set_by_a_minute_under_load_takes_no_living_node_for_dead() {
    let server = Postgres::start_with_calendar(Durability::Fast).unwrap();
    let url = server.fresh_database();
    let fleet = Fleet::new(Place::postgres_at(&url));
    // Nobody has a proof of another's death.
    let hosts = [Place::postgres_at(&url), Place::postgres_at(&url)];
    let runtime = runtime();
    let client = runtime.block_on(fleet.place.open().connect()).unwrap();
    let [dies, lives] = [0, 1].map(|n: usize| fleet.node_at(&hosts[n], CALM));
    let enough = Arc::new(AtomicBool::new(false));
    let customers: Vec<_> = (0..12).map(|n| runtime.spawn(customer(client.clone(), n, enough.clone()))).collect();
    [&dies, &lives].iter().for_each(|node| fleet.until_at_work(node, 50));
    let before = living(&fleet.place);
    for ahead in [60, 0, -60, 0] {
        server.set_calendar(ahead);
        // Longer than anybody has to watch a silent node: a few renewals, and work of both.
        until_beaten(&fleet.place, 5);
        let heard = fleet.world.events().len();
        fleet
            .world
            .until(|events| [&dies, &lives].iter().all(|node| events[heard..].iter().any(|event| event.pid == node.0.id())));
        assert_eq!(living(&fleet.place), before, "{ahead} s ahead");
    }
    assert_eq!(begun_again(&fleet.world.events()), BTreeMap::new(), "no run has moved");

    server.set_calendar(-60);
    until_beaten(&fleet.place, 1);
    drop(dies);
    while living(&fleet.place) == before {}
    enough.store(true, Ordering::SeqCst);
    let served: usize = customers.into_iter().map(|customer| runtime.block_on(customer).unwrap()).sum();
    lives.end();
    let executed = fleet.world.executed();
    assert_eq!(executed.len(), served, "each run has made its call");
    assert!(executed.values().all(|keys| keys.len() == 1), "under one key: {executed:?}");
    // A call that was on its way when its process died is made again, with the same key: at most one in each run.
    assert!(begun_again(&fleet.world.events()).values().all(|times| *times == 2), "nothing more than once");
}

//! SIGSTOP past the lease: a process that comes back finds its runs ended, and writes nothing.

use super::{Scenario, Store};
use lobster_tests::{
    on_shared,
    process::{Bound, go_on, stopped},
};

/// Stops a worker at a point until another has taken over and finished, then lets it go on.
fn frozen_at(store: Store, point: &str) {
    // One run: with several, another thread may be stopped between the last check and the send, which no check can close.
    let (scenario, mut zombie) = loop {
        let scenario = Scenario::of(store, 1);
        let mut zombie = Bound(scenario.worker(Some(&format!("{point}:1:stop"))));
        assert!(stopped(&zombie), "{point} was never passed");
        // Stopped by another of its threads in the middle of a write it keeps every process from writing: that is SQLite.
        let gate = scenario.place.folder().unwrap().join("runs.db.gate");
        let gate = std::fs::File::options().read(true).write(true).open(gate);
        if gate.is_err() || gate.is_ok_and(|gate| gate.try_lock().is_ok()) {
            break (scenario, zombie);
        }
        zombie.kill().unwrap();
        zombie.wait().unwrap();
    };
    scenario.finish();
    let stored = |scenario: &Scenario| {
        scenario.look(async |client| {
            let run = client.find("job-0").await.unwrap().unwrap();
            format!("{:?}", client.show(run).await.unwrap())
        })
    };
    let (before, rows) = (scenario.world.events().len(), stored(&scenario));
    go_on(&zombie);
    // It finds its runs ended, writes nothing, and leaves.
    assert!(zombie.wait().unwrap().success());
    let late: Vec<_> = scenario.world.events()[before..].to_vec();
    assert!(late.iter().all(|event| event.what != "call"), "{point}: {late:?}");
    assert_eq!(stored(&scenario), rows, "{point}");
    scenario.check_all();
}

on_shared! {
    fn frozen_past_its_lease_in_a_step_body(store) {
        frozen_at(store, "P7");
    }
    fn frozen_past_its_lease_with_an_intent_acknowledged(store) {
        frozen_at(store, "P13");
    }
    fn frozen_past_its_lease_with_a_result_sent(store) {
        frozen_at(store, "P16");
    }
}

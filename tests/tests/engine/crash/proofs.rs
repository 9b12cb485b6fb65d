//! Whoever can prove a death takes over at once; whoever cannot waits for the lease.

use super::Scenario;
use lobster_tests::on_shared;
use std::os::unix::process::ExitStatusExt;

#[cfg(all(target_os = "linux", not(lobster_portable)))]
mod with_a_proof_of_death {
    use super::*;
    use crate::crash::RUNS;
    use std::process::Child;

    /// Starts a worker whose lease outlives the test.
    fn worker(scenario: &Scenario, crash: Option<&str>) -> Child {
        let mut command = scenario.command();
        command.args(["0", &RUNS.to_string()]).env("LONG_LEASE", "1");
        if let Some(crash) = crash {
            command.env("LOBSTER_CRASH", crash);
        }
        command.spawn().unwrap()
    }

    fn finish(scenario: &Scenario, worker: Child) {
        scenario.beside_a_person(worker);
        scenario.check_all();
    }

    on_shared! {
        fn a_restarted_process_takes_over_at_once(store) {
            let scenario = Scenario::new(store);
            assert_eq!(worker(&scenario, Some("P14")).wait().unwrap().signal(), Some(9));
            let again = worker(&scenario, None);
            finish(&scenario, again);
        }
        fn a_living_sibling_takes_over_at_once(store) {
            loop {
                let shared = Scenario::new(store);
                let mut dies = worker(&shared, Some("P14:3"));
                let sibling = worker(&shared, None);
                let killed = dies.wait().unwrap().signal() == Some(9);
                finish(&shared, sibling);
                // Its sibling may have been quicker at all of it: then once more.
                if killed {
                    break;
                }
            }
        }
    }
}

/// Somebody else has to be silent for TTL and guard before it is taken for dead.
#[cfg(not(all(target_os = "linux", not(lobster_portable))))]
mod without_a_proof_of_death {
    use super::*;
    use lobster_core::Settings;
    use std::time::{Duration, Instant};

    on_shared! {
        fn a_take_over_waits_for_the_lease(store) {
            let scenario = Scenario::of(store, 1);
            assert_eq!(scenario.worker(Some("P14")).wait().unwrap().signal(), Some(9));
            let (heard, began) = (scenario.world.events().len(), Instant::now());
            let successor = scenario.worker(None);
            assert!(scenario.world.wait_for(heard + 1, Duration::from_secs(60)) > heard, "nobody takes the run over");
            let (waited, lease) = (began.elapsed(), Settings::test().lease);
            assert!(waited >= lease.ttl + lease.guard, "it was taken over after {waited:?}");
            assert!(scenario.beside_a_person(successor).success());
            scenario.check_all();
        }
    }
}

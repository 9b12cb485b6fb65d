//! Processes that only ask, killed while they ask.

use super::{RUNS, Scenario, Store, number};
use lobster_core::{RunState, StepState, StepView};
use lobster_tests::on_shared;
use std::{collections::BTreeMap, os::unix::process::ExitStatusExt};

on_shared! {
    fn killed_in_a_cancel(store) {
        killed_in_cancels(store);
    }
    fn killed_in_a_resolve(store) {
        killed_in_resolves(store);
    }
}

/// A process that only asks, killed while it asks.
fn asks(scenario: &Scenario, what: [&str; 2], crash: Option<&str>, fate: Option<u64>) -> Option<i32> {
    let mut command = scenario.command();
    command.args(what);
    if let Some(crash) = crash {
        command.env("LOBSTER_CRASH", crash);
    }
    if let Some(fate) = fate {
        command.env("FATE", fate.to_string());
    }
    command.spawn().unwrap().wait().unwrap().signal()
}

fn killed_in_cancels(store: Store) {
    for point in ["cancel sent", "cancel acknowledged"] {
        for _ in 0..number("LOBSTER_PASSES", 5) {
            let mut scenario = Scenario::new(store);
            scenario.die_at("P14", 1);
            assert_eq!(asks(&scenario, ["cancel", "job-0"], Some(point), None), Some(9));
            assert_eq!(asks(&scenario, ["cancel", "job-0"], None, None), None);
            scenario.beside_a_person(scenario.worker(None));
            let states = scenario.look(async |client| {
                let runs = client.runs().limit(1000).list().await.unwrap();
                runs.into_iter().map(|run| (run.key.unwrap_or_default(), run.state)).collect::<BTreeMap<_, _>>()
            });
            assert_eq!(states.get("job-0"), Some(&RunState::Cancelled), "{point}");
            assert_eq!(states.values().filter(|state| **state == RunState::Succeeded).count(), RUNS as usize - 1);
        }
    }
}

/// Waits until a call waits for a person; `None`: all runs ended without. Returns the run's key, and what its world says of the call.
fn waits_for_a_person(scenario: &Scenario) -> Option<(String, Option<u64>)> {
    scenario.look_on(async |client, tiers| {
        loop {
            let hints = tiers.wake.hints();
            for run in client.runs().state(RunState::Held).limit(1000).list().await.unwrap() {
                let view = client.show(run.id).await.unwrap();
                let waits = |step: &&StepView| matches!(step.state, StepState::Intended | StepState::InDoubt(_));
                let Some(step) = view.steps.iter().find(waits) else { continue };
                assert_eq!(step.name, "held#0");
                let key = run.key.unwrap();
                let call = scenario.world.events().into_iter().find(|event| event.run == key && event.step == "held#0");
                return Some((key, call.and_then(|call| scenario.world.ask(&call.key))));
            }
            if client.runs().state(RunState::Succeeded).count().await.unwrap() == u64::from(RUNS) {
                return None;
            }
            tiers.wake.hinted(hints).await;
        }
    })
}

fn killed_in_resolves(store: Store) {
    for point in ["resolve sent", "resolve acknowledged"] {
        let mut kills = 0;
        while kills < number("LOBSTER_PASSES", 5) {
            let mut scenario = Scenario::new(store);
            // Dies in the first call of the held step of some run; P14 passes twice per run before it.
            scenario.die_at("P14", 2 * RUNS + 1);
            let worker = scenario.worker(None);
            // The death may have been in a call of another step: then nobody is asked.
            if let Some((key, fate)) = waits_for_a_person(&scenario) {
                assert_eq!(asks(&scenario, ["resolve", &key], Some(point), fate), Some(9));
                kills += 1;
                // Stated again, or found stated: the run goes on either way.
                asks(&scenario, ["resolve", &key], None, fate);
            }
            scenario.beside_a_person(worker);
            scenario.check_all();
        }
    }
}

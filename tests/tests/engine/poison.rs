//! A run that keeps killing its process: alone after three deaths, quarantined after five; the others go on.

use lobster_core::RunState;
use lobster_tests::{on_shared, world::World};
use std::{
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

on_shared! {
    fn a_run_that_kills_its_process_is_executed_alone_and_then_quarantined(store) {
        let place = store();
        let world = World::default();
        let address = world.listen().to_string();
        let mut lives = Vec::new();
        loop {
            let before = world.events().len();
            let worker = Command::new(env!("CARGO_BIN_EXE_worker"))
                .args([place.url(), &address, "poison"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let status = worker.unwrap().wait().unwrap();
            lives.push(world.events()[before..].to_vec());
            if status.success() {
                break;
            }
            assert_eq!(status.signal(), Some(6), "it aborted");
            assert!(lives.len() < 10, "it was never quarantined");
        }
        let deaths = lives.iter().filter(|life| life.iter().any(|event| event.step == "deadly#0")).count();
        assert_eq!(deaths, 5);
        // From the fourth death on nothing else was under way.
        for life in &lives[3..5] {
            let death = life.iter().position(|event| event.step == "deadly#0").unwrap();
            let said = |what: &str| life[..death].iter().filter(|event| event.what == what && event.step != "deadly#0").count();
            assert_eq!(said("body"), said("end"), "{life:?}");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let runs = runtime.block_on(async {
            let client = place.open().connect().await.unwrap();
            client.runs().list().await.unwrap()
        });
        for run in runs {
            let expected = if run.task.task == "killer" { RunState::Quarantined } else { RunState::Succeeded };
            assert_eq!(run.state, expected, "{run:?}");
            assert!(run.task.task == "killer" || run.deaths == 0, "the others are blamed for nothing: {run:?}");
        }
    }
}

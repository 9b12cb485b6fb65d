//! SIGKILL in runs with state: at every named point of a round and a fold, and at random moments.

use super::{Draw, Scenario, Store, begun, number};
use lobster_core::{Field, Log, State, Table};
use lobster_tests::on_shared;
use std::{os::unix::process::ExitStatusExt, process::Child, time::Duration};

/// As `worker` has it.
#[derive(State, Default)]
#[allow(dead_code, reason = "a struct of a state is read by its members")]
struct Pages {
    next: Field<u32>,
    seen: Log<u32>,
    counts: Table<u32, u32>,
}

const BOOKS: u32 = 4;

/// Starts a worker on all books, of so many rounds each.
fn books(scenario: &Scenario, rounds: u32, crash: Option<&str>) -> Child {
    let mut command = scenario.command();
    command.args(["books", &BOOKS.to_string(), &rounds.to_string()]);
    if let Some(crash) = crash {
        command.env("LOBSTER_CRASH", crash);
    }
    command.spawn().unwrap()
}

/// Every round is in the state once, and a `durable` one was begun again at most once a kill and run.
fn check_books(scenario: &Scenario, rounds: u32) {
    scenario.look(async |client| {
        for n in 0..BOOKS {
            let run = client.find(format!("book-{n}")).await.unwrap().unwrap();
            let pages: Pages = client.state(run, Pages::NAME).await.unwrap().unwrap();
            assert_eq!(pages.seen.to_vec(), (0..rounds).collect::<Vec<_>>(), "book-{n}");
            assert_eq!(pages.counts.values().sum::<u32>(), rounds, "book-{n}");
            let view = client.show(run).await.unwrap();
            let steps: Vec<_> = view.steps.iter().map(|step| step.name.as_str()).collect();
            assert_eq!(steps, ["page#0", "leaf#0"], "a constant history");
        }
    });
    let begun = begun(&scenario.world.events());
    for n in 0..BOOKS {
        let of = |kind: &'static str| {
            let book = format!("book-{n}");
            begun.iter().filter(move |((run, step), _)| *run == book && step.starts_with(kind)).map(|(_, count)| *count)
        };
        assert_eq!((of("page").count(), of("leaf").count()), (30, rounds as usize - 30), "book-{n}");
        let again: u32 = of("page").map(|count| count - 1).sum();
        assert!(again <= scenario.kills, "book-{n}: {again} pages for {} kills", scenario.kills);
    }
}

fn books_killed_at(store: Store, point: &str) {
    const ROUNDS: u32 = 200;
    for pass in 1..=number("LOBSTER_PASSES", 5) {
        let mut scenario = Scenario::new(store);
        // A second time on top of what the first one left, if there is that much.
        for pass in [pass, pass, 1] {
            let killed = books(&scenario, ROUNDS, Some(&format!("{point}:{pass}"))).wait().unwrap().signal() == Some(9);
            scenario.kills += u32::from(killed);
            if !killed && scenario.kills == 0 {
                // All is done: begin with fresh runs.
                scenario = Scenario::new(store);
            }
        }
        assert!(scenario.kills > 0, "{point} was never passed");
        assert!(books(&scenario, ROUNDS, None).wait().unwrap().success());
        check_books(&scenario, ROUNDS);
    }
}

macro_rules! points {
    ($($name:ident: $point:literal,)*) => {
        on_shared! {$(
            fn $name(store) {
                books_killed_at(store, $point);
            }
        )*}
    };
}

points! {
    killed_in_a_round: "P7",
    killed_with_a_round_sent: "P10",
    killed_with_a_round_acknowledged: "P11",
    killed_with_a_durable_round_sent: "P16",
    killed_with_a_durable_round_acknowledged: "P17",
    killed_with_a_fold_sent: "fold sent",
    killed_with_a_fold_acknowledged: "fold acknowledged",
}

on_shared! {
    fn twenty_kills_at_random_rounds(store) {
        killed_at_random_rounds(store);
    }
}

fn killed_at_random_rounds(store: Store) {
    const ROUNDS: u32 = 3000;
    let mut draw = Draw::new();
    let mut scenario = Scenario::new(store);
    for _ in 0..20 {
        let mut worker = books(&scenario, ROUNDS, None);
        let heard = scenario.world.events().len();
        // Far enough for every run to be recorded further: a run that kills its process again and again is set aside.
        scenario.world.wait_for(heard + 400 + draw.below(200) as usize, Duration::from_secs(5));
        worker.kill().unwrap();
        if worker.wait().unwrap().signal() == Some(9) {
            scenario.kills += 1;
        }
    }
    assert!(scenario.kills > 0);
    assert!(books(&scenario, ROUNDS, None).wait().unwrap().success());
    check_books(&scenario, ROUNDS);
}

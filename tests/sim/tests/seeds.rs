//! Rule: no seed breaks an invariant, and a seed is the same each time.

#![allow(missing_docs, reason = "tests are named as sentences")]

use lobster_sim::{Report, run, show_tracing};
use std::collections::BTreeMap;

/// Seeds of an ordinary run of the tests.
const SEEDS: u64 = 1500;

/// Of so many seeds one is run twice.
const TWICE: u64 = 100;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn describe(report: &Report) -> String {
    format!("seed {}:\n  {}\n  {}", report.seed, report.violations.join("\n  "), report.swarm)
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the speed of the simulation is measured in real time")]
fn no_seed_breaks_an_invariant() {
    if let Some(seed) = number("LOBSTER_SEED") {
        show_tracing();
        let report = run(seed, true);
        println!("{}", report.swarm);
        assert!(report.violations.is_empty(), "{}", describe(&report));
        return;
    }
    let seeds = number("LOBSTER_SEEDS").unwrap_or(SEEDS);
    let first = number("LOBSTER_FIRST").unwrap_or(0);
    let began = std::time::Instant::now();
    let (mut bad, mut events, mut simulated, mut coverage) = (Vec::new(), 0, 0.0, BTreeMap::<String, u32>::new());
    for seed in first..first + seeds {
        let report = run(seed, false);
        events += report.events;
        simulated += report.time.as_secs_f64();
        for (place, count) in &report.coverage {
            *coverage.entry(place.clone()).or_default() += count;
        }
        if seed % TWICE == 0 {
            let again = run(seed, false);
            assert_eq!(
                (report.hash, report.time, report.spent, report.events),
                (again.hash, again.time, again.spent, again.events),
                "seed {seed} is not the same twice"
            );
        }
        if !report.violations.is_empty() {
            println!("{}", describe(&report));
            bad.push(seed);
        }
        if bad.len() >= 10 {
            break;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {events} events, {simulated:.0} simulated seconds in {seconds:.1} s: {:.0} seeds/s",
        seeds as f64 / seconds
    );
    if std::env::var_os("LOBSTER_COVERAGE").is_some() {
        coverage.iter().for_each(|(place, count)| println!("{count:>7} {place}"));
    }
    assert!(bad.is_empty(), "seeds that break an invariant: {bad:?}");
}

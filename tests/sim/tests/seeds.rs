//! Rule: no seed breaks an invariant, and a seed is the same each time.
//!
//! `LOBSTER_SEEDS=n`: how many. `LOBSTER_FIRST=s`: from which on. `LOBSTER_SEED=s`: this one alone, printed in full.

#![allow(missing_docs, reason = "tests are named as sentences")]

use lobster_sim::{Report, run, show_tracing};
use std::collections::BTreeMap;

/// Seeds of an ordinary run of the tests.
const SEEDS: u64 = 4000;

/// Of so many seeds one is run twice.
const TWICE: u64 = 100;

/// Tests that share the seeds between them, so that they run side by side.
const SHARDS: u64 = 4;

/// A shard stops at so many seeds that break a rule.
const ENOUGH: usize = 5;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn describe(report: &Report) -> String {
    let Report { seed, violations, swarm, .. } = report;
    format!("seed {seed} (LOBSTER_SEED={seed} prints it in full):\n  {}\n  {swarm}", violations.join("\n  "))
}

/// A seed, and at times the same seed again.
fn once_or_twice(seed: u64) -> Report {
    let report = run(seed, false);
    if seed.is_multiple_of(TWICE) {
        let again = run(seed, false);
        let marks = |report: &Report| (report.hash, report.time, report.spent, report.events);
        assert_eq!(marks(&report), marks(&again), "seed {seed} is not the same twice");
    }
    report
}

#[allow(clippy::disallowed_methods, reason = "the speed of the simulation is measured in real time")]
fn shard(index: u64) {
    if number("LOBSTER_SEED").is_some() {
        return;
    }
    let (seeds, first) = (number("LOBSTER_SEEDS").unwrap_or(SEEDS), number("LOBSTER_FIRST").unwrap_or(0));
    let began = std::time::Instant::now();
    let (mut bad, mut ran, mut events, mut simulated) = (Vec::new(), 0u64, 0, 0.0);
    let mut coverage = BTreeMap::<String, u32>::new();
    for seed in (first..first + seeds).filter(|seed| seed % SHARDS == index) {
        let report = once_or_twice(seed);
        ran += 1;
        events += report.events;
        simulated += report.time.as_secs_f64();
        for (place, count) in &report.coverage {
            *coverage.entry(place.clone()).or_default() += count;
        }
        if !report.violations.is_empty() {
            println!("{}", describe(&report));
            bad.push(seed);
        }
        if bad.len() >= ENOUGH {
            break;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{ran} seeds, {events} events, {simulated:.0} simulated seconds in {seconds:.1} s: {:.0} seeds/s",
        ran as f64 / seconds
    );
    if std::env::var_os("LOBSTER_COVERAGE").is_some() {
        coverage.iter().for_each(|(place, count)| println!("{count:>7} {place}"));
    }
    assert!(bad.is_empty(), "seeds that break an invariant: {bad:?}");
}

#[test]
fn no_seed_breaks_an_invariant_1() {
    shard(0);
}

#[test]
fn no_seed_breaks_an_invariant_2() {
    shard(1);
}

#[test]
fn no_seed_breaks_an_invariant_3() {
    shard(2);
}

#[test]
fn no_seed_breaks_an_invariant_4() {
    shard(3);
}

#[test]
fn the_seed_asked_for_breaks_no_invariant() {
    let Some(seed) = number("LOBSTER_SEED") else { return };
    show_tracing();
    let report = run(seed, true);
    println!("{}", report.swarm);
    assert!(report.violations.is_empty(), "{}", describe(&report));
}

//! What is printed: a line for machines as soon as a figure is done, a table for people at the end.
//!
//! Invariant: a line has every key, in the same order, whatever was measured.

use crate::{
    figures::{Figure, Round},
    options::{Options, Store},
};
use serde::Serialize;
use serde_json::Number;

/// One figure, for machines.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    figure: &'static str,
    store: &'static str,
    machine: String,
    value: Number,
    unit: &'static str,
    min: Number,
    max: Number,
    syncs: u64,
    bare: Option<Number>,
    ratio: Option<Number>,
    mode: String,
}

/// Puts the rounds of a figure together and prints the line.
pub fn line(figure: &Figure, options: &Options, machine: &str, rounds: &[Round]) -> Line {
    let values = sorted(rounds.iter().map(|round| round.value));
    let bares = sorted(rounds.iter().filter_map(|round| round.bare));
    let mut syncs: Vec<u64> = rounds.iter().map(|round| round.syncs).collect();
    syncs.sort_unstable();
    let (value, bare) = (median(&values).unwrap_or(0.0), median(&bares));
    let line = Line {
        figure: figure.name,
        store: options.store.name(),
        machine: machine.to_owned(),
        value: short(value),
        unit: figure.unit,
        min: short(values.first().copied().unwrap_or(0.0)),
        max: short(values.last().copied().unwrap_or(0.0)),
        syncs: syncs.get(syncs.len() / 2).copied().unwrap_or(0),
        bare: bare.map(short),
        ratio: bare.filter(|_| figure.beside).map(|bare| round_to(value / bare, 1_000.0)),
        mode: match options.store {
            Store::Memory => "memory".to_owned(),
            Store::Sqlite | Store::Postgres => figure.mode(options),
        },
    };
    println!("{}", serde_json::to_string(&line).expect("words and numbers are always encoded"));
    line
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len() / 2).copied()
}

/// No more digits than the measurement has.
fn short(value: f64) -> Number {
    let parts = match value.abs() {
        1_000.0.. => 1.0,
        10.0.. => 10.0,
        _ => 1_000.0,
    };
    round_to(value, parts)
}

/// A whole number is written as one.
fn round_to(value: f64, parts: f64) -> Number {
    let rounded = (value * parts).round() / parts;
    if rounded.fract() == 0.0 && rounded.abs() < 1e15 {
        return Number::from(rounded as i64);
    }
    Number::from_f64(rounded).unwrap_or_else(|| Number::from(0))
}

/// The processor and how many of it.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", model().unwrap_or_else(|| std::env::consts::ARCH.to_owned()))
}

fn model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The figures, for people.
pub struct Table {
    head: String,
    rows: Vec<Line>,
}

impl Table {
    /// An empty one.
    pub fn new(machine: &str, store: Store) -> Self {
        Self { head: format!("{} on {machine}", store.name()), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn add(&mut self, line: Line) {
        self.rows.push(line);
    }

    /// Prints it on standard error.
    pub fn print(&self) {
        let number = |number: &Option<Number>| number.as_ref().map_or_else(|| "-".to_owned(), |number| number.to_string());
        eprintln!("\n{}", self.head);
        eprintln!(
            "{:<8} {:>10} {:<8} {:>10} {:>10} {:>6} {:>9} {:>8}  mode",
            "figure", "value", "unit", "min", "max", "syncs", "bare", "ratio"
        );
        for row in &self.rows {
            eprintln!(
                "{:<8} {:>10} {:<8} {:>10} {:>10} {:>6} {:>9} {:>8}  {}",
                row.figure,
                row.value.to_string(),
                row.unit,
                row.min.to_string(),
                row.max.to_string(),
                row.syncs,
                number(&row.bare),
                number(&row.ratio),
                row.mode
            );
        }
    }
}

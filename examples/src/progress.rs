//! What a person sees while the job runs: a bar on a terminal, a plain line now and then elsewhere.
//! All of it goes to standard error, so that standard output has the figures and nothing else.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::ledger::Counts;

/// How often the bar moves.
const BAR_EVERY: Duration = Duration::from_millis(100);
/// How often a plain line is written.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// How far something is.
pub struct View {
    total: u64,
    /// What is counted.
    unit: &'static str,
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl View {
    /// A view of so many of these.
    pub fn new(total: u64, unit: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(&format!("{{bar:40}} {{pos}}/{{len}} {unit}  {{msg}}"));
            ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { total, unit, bar, last_line: Instant::now() }
    }

    /// How often [`show`](Self::show) wants to be called.
    pub fn every(&self) -> Duration {
        if self.bar.is_some() { BAR_EVERY } else { LINE_EVERY / 4 }
    }

    /// Shows how far it is.
    pub fn show(&mut self, done: u64, text: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(done);
                bar.set_message(text.to_owned());
            }
            None if self.last_line.elapsed() >= LINE_EVERY => self.line(done, text),
            None => {}
        }
    }

    /// Takes the bar away and leaves a line that says how far it came.
    pub fn end(mut self, done: u64, text: &str) {
        self.voice().end();
        self.line(done, text);
    }

    fn line(&mut self, done: u64, text: &str) {
        self.last_line = Instant::now();
        eprintln!("{done}/{} {}  {text}", self.total, self.unit);
    }

    /// Somebody else's way to say something while the bar is there.
    pub fn voice(&self) -> Voice {
        Voice { bar: self.bar.clone() }
    }
}

/// The live view of one job of orders.
pub struct Progress {
    view: View,
    /// Rates are those of this job, not of the ones before on the same files.
    began: Instant,
    executed_before: Option<u64>,
}

impl Progress {
    /// A view of a job of so many orders.
    pub fn new(orders: usize) -> Self {
        let view = View::new(u64::try_from(orders).unwrap_or(u64::MAX), "orders");
        Self { view, began: Instant::now(), executed_before: None }
    }

    /// How often [`show`](Self::show) wants to be called.
    pub fn every(&self) -> Duration {
        self.view.every()
    }

    /// Shows how far the job is: runs finished by lobster's records, and what the ledger has counted.
    pub fn show(&mut self, finished: u64, counts: Counts) {
        let text = self.text(counts, self.began.elapsed());
        self.view.show(finished, &text);
    }

    fn text(&mut self, counts: Counts, elapsed: Duration) -> String {
        let before = *self.executed_before.get_or_insert(counts.executed);
        let per_second = u128::from(counts.executed - before) * 1000 / elapsed.as_millis().max(1);
        let Counts { executed, refused, kills, .. } = counts;
        format!("{executed} calls executed, {refused} refused, {kills} kills, {per_second} calls/s")
    }

    /// Somebody else's way to say something while the bar is there.
    pub fn voice(&self) -> Voice {
        self.view.voice()
    }
}

/// Writes lines to standard error without tearing the bar.
#[derive(Clone)]
pub struct Voice {
    bar: Option<ProgressBar>,
}

impl Voice {
    /// Writes a line above the bar.
    pub fn say(&self, words: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{words}")),
            None => eprintln!("{words}"),
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_counts_only_what_this_job_did() {
        let mut progress = Progress::new(830);
        let counts = |executed| Counts { executed, refused: 2, kills: 1, ..Counts::default() };
        assert!(progress.text(counts(1_000), Duration::ZERO).ends_with("1 kills, 0 calls/s"));
        assert_eq!(progress.text(counts(1_500), Duration::from_secs(2)), "1500 calls executed, 2 refused, 1 kills, 250 calls/s");
    }
}

//! The rule defended here: whatever is killed or interrupted, no cent is lost, every order is executed and confirmed once. The whole
//! `transfers` example, as a person starts it: real processes, real kills.
#![allow(clippy::disallowed_methods, reason = "an application is free to spawn and read clocks")]

#[cfg(feature = "postgres")]
mod at_server;

use std::collections::BTreeMap;
use std::process::{Output, Stdio};

use lobster_examples::transfers::bank::Bank;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::Command;

struct Job {
    /// Of the file, if there is one.
    _folder: TempDir,
    db: String,
}

impl Job {
    /// In a file, in a folder that does not exist yet.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let db = format!("sqlite://{}", folder.path().join("inside/transfers.db").display());
        Self { _folder: folder, db }
    }

    /// In a database of a server.
    #[cfg(feature = "postgres")]
    fn on(db: String) -> Self {
        Self { _folder: tempfile::tempdir().expect("a folder"), db }
    }

    fn transfers(&self, options: &str) -> Command {
        let test = std::env::current_exe().expect("a test knows its own path");
        let profile = test.ancestors().nth(2).expect("a test lies in <profile>/deps");
        let mut command = Command::new(profile.join("examples/transfers"));
        command.args(["--db", &self.db]).args(options.split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn run(&self, options: &str) -> Line {
        Line::of(&self.transfers(options).output().await.expect("the example can be started"))
    }
}

/// The last line, and the exit code.
struct Line {
    code: Option<i32>,
    figures: BTreeMap<String, i64>,
    everything: String,
}

impl Line {
    fn of(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout);
        let words = text.lines().last().unwrap_or_default().split(' ').filter_map(|word| word.split_once('='));
        let figures = words.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect();
        let everything = format!("exit code {:?} after\n{text}{}", output.status.code(), String::from_utf8_lossy(&output.stderr));
        Self { code: output.status.code(), figures, everything }
    }

    fn numbers<const N: usize>(&self, names: [&str; N]) -> [i64; N] {
        names.map(|name| *self.figures.get(name).unwrap_or_else(|| panic!("no {name}: {}", self.everything)))
    }

    /// So many transfers were made and confirmed, once each, after so many kills.
    fn assert_good(&self, transfers: i64, kills: i64) {
        let found = self.numbers(["transfers", "applied", "receipts", "sum", "doubled", "lost", "kills"]);
        assert_eq!(found, [transfers, transfers, transfers, 200_000, 0, 0, kills], "{}", self.everything);
        assert_eq!(self.code, Some(0), "{}", self.everything);
    }
}

async fn made_once_and_never_again(job: &Job) {
    job.run("--transfers 80").await.assert_good(80, 0);
    job.run("--transfers 80").await.assert_good(80, 0);
    // Fewer than are there: nothing is taken back.
    job.run("--transfers 50").await.assert_good(80, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_transfer_is_made_once_and_a_second_run_finds_nothing_to_do() {
    made_once_and_never_again(&Job::new()).await;
}

async fn killed_ten_times(job: &Job) {
    job.run("--transfers 120 --chaos 10 --seed 7").await.assert_good(120, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_kills_lose_and_double_nothing() {
    killed_ten_times(&Job::new()).await;
}

async fn interrupted(job: &Job) {
    let supervisor = job.transfers("--transfers 600").spawn().expect("the example can be started");
    let pid = supervisor.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).expect("it is alive");
    // The tables tell nobody that they have grown, and are not there at first.
    while receipts(&job.db).await.is_none_or(|receipts| receipts < 20) {
        tokio::task::yield_now().await;
    }
    kill_process(pid, Signal::INT).expect("it can be interrupted");
    let line = Line::of(&supervisor.wait_with_output().await.expect("it ends"));
    let [receipts, sum, doubled, lost] = line.numbers(["receipts", "sum", "doubled", "lost"]);
    assert_eq!((line.code, sum, doubled, lost), (Some(130), 200_000, 0, 600 - receipts), "{}", line.everything);
    assert!((20..600).contains(&receipts), "{}", line.everything);
    job.run("--transfers 600").await.assert_good(600, 0);
}

async fn receipts(db: &str) -> Option<u64> {
    let path = db.strip_prefix("sqlite://").map(std::path::Path::new);
    match path.is_some_and(|path| !path.exists()) {
        true => None,
        false => Bank::open(db).await.ok()?.receipts().await.ok(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_drains_and_the_next_run_goes_on() {
    interrupted(&Job::new()).await;
}

/// The same at a server, where the orders are taken in transactions of the shop's own.
#[cfg(feature = "postgres")]
mod postgres {
    use super::at_server::postgres;
    use super::{Job, interrupted, killed_ten_times, made_once_and_never_again};

    #[tokio::test(flavor = "multi_thread")]
    async fn every_transfer_is_made_once_and_a_second_run_finds_nothing_to_do() {
        made_once_and_never_again(&Job::on(postgres())).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn ten_kills_lose_and_double_nothing() {
        killed_ten_times(&Job::on(postgres())).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_interrupt_drains_and_the_next_run_goes_on() {
        interrupted(&Job::on(postgres())).await;
    }
}

//! The rule defended here: whatever is killed or interrupted, every order is charged, shipped and announced once. The whole
//! `orders` example, as a person starts it: real processes, real kills, the ledger apart.
#![allow(clippy::disallowed_methods, reason = "an application is free to spawn and read clocks")]

#[cfg(feature = "postgres")]
mod at_server;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use lobster_examples::book;
use lobster_examples::figures::{Tables, read_tables};
use lobster_examples::ledger::Client;
use lobster_examples::pricing::price;
use rust_decimal::Decimal;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::Command;

/// An example that was built along with this test.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.ancestors().nth(2).expect("a test lies in <profile>/deps");
    let program = profile.join("examples").join(name);
    assert!(program.exists(), "{} is missing: cargo builds it with `--examples` or without any target option", program.display());
    Command::new(program)
}

/// However many orders and kills: an example that people have to wait for is not looked at. On an idle machine it is a few seconds.
const MINUTE: Duration = Duration::from_secs(60);

struct Job {
    folder: TempDir,
    db: String,
}

impl Job {
    /// With its records in a file.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let db = format!("sqlite://{}", folder.path().join("inside/orders.db").display());
        Self { folder, db }
    }

    /// With its records in a database of a server.
    #[cfg(feature = "postgres")]
    fn on(db: String) -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), db }
    }

    /// In a folder that does not exist yet.
    fn ledger(&self) -> PathBuf {
        self.folder.path().join("outside/ledger.db")
    }

    fn orders(&self, options: &str) -> Command {
        let mut command = example("orders");
        command.args(["--db", &self.db, "--ledger"]).arg(self.ledger()).args(options.split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn run(&self, options: &str) -> Line {
        let began = Instant::now();
        let line = Line::of(&self.orders(options).output().await.expect("the example can be started"));
        assert!(began.elapsed() < MINUTE, "it took {:?}; {line}", began.elapsed());
        line
    }

    async fn tables(&self) -> Tables {
        read_tables(&self.ledger()).await.expect("the ledger's file can be read")
    }
}

/// The last line, taken apart, and the exit code.
struct Line {
    code: Option<i32>,
    figures: BTreeMap<String, String>,
    everything: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {:?} after\n{}", self.code, self.everything)
    }
}

impl Line {
    fn of(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout);
        let pairs = text.lines().last().unwrap_or_default().split(' ').filter_map(|pair| pair.split_once('='));
        let figures = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { code: output.status.code(), figures, everything: format!("{text}{}", String::from_utf8_lossy(&output.stderr)) }
    }

    fn get(&self, name: &str) -> &str {
        self.figures.get(name).map_or_else(|| panic!("no {name} in {self}"), String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.get(name).parse().expect("a whole number")
    }

    /// Everything was done for so many orders, worth so much, and nothing twice.
    fn assert_good(&self, orders: usize, total: &str) {
        let orders = orders.to_string();
        let found = ["orders", "charged", "total", "doubled", "lost"].map(|name| self.get(name));
        assert_eq!(found, [&orders, &orders, total, "0", "0"], "{self}");
        assert_eq!(self.code, Some(0), "{self}");
    }
}

const ORDINARY: [&str; 2] = ["price", "check"];
const IRREVERSIBLE: [&str; 3] = ["charge", "ship", "notify"];

/// How often bodies of these steps began again.
fn begun_again(tables: &Tables, steps: &[&str]) -> usize {
    let mut begun: BTreeMap<(&str, u32), usize> = BTreeMap::new();
    for body in tables.bodies.iter().filter(|body| steps.contains(&body.step.as_str())) {
        *begun.entry((&body.step, body.order)).or_default() += 1;
    }
    begun.values().map(|times| times - 1).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_book_is_served_once_and_a_second_run_finds_nothing_to_do() {
    let job = Job::new();
    let first = job.run("").await;
    first.assert_good(830, "1265793.22");
    let quiet = ["kills", "resume_ms_p50", "resume_ms_max"].map(|name| first.number(name));
    assert_eq!(quiet, [0, 0, 0]);
    let tables = job.tables().await;
    assert_eq!(begun_again(&tables, &ORDINARY), 0);
    let second = job.run("").await;
    assert_eq!((second.code, &second.figures), (first.code, &first.figures));
    assert_eq!(job.tables().await.bodies.len(), tables.bodies.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_kills_lose_and_double_nothing() {
    let total: Decimal =
        book::all_orders().expect("the example data are whole").iter().take(120).map(|order| price(order).total).sum();
    let job = Job::new();
    let line = job.run("--orders 120 --chaos 10 --seed 7").await;
    line.assert_good(120, &total.to_string());
    assert_eq!(line.number("kills"), 10, "{line}");
    assert!(line.number("resume_ms_p50") > 0 && line.number("resume_ms_max") >= line.number("resume_ms_p50"), "{line}");
    // What a kill can cost: the one irreversible step that each of the 64 runs was in.
    assert!((1..=640).contains(&line.number("refused")), "{line}");
    assert!(begun_again(&job.tables().await, &IRREVERSIBLE) <= 640, "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_kills_lose_and_double_nothing_and_set_no_order_aside() {
    let job = Job::new();
    let line = job.run("--chaos 50 --seed 7").await;
    // An order that was set aside would have no shipment or no notice: it would be lost.
    line.assert_good(830, "1265793.22");
    assert_eq!(line.number("kills"), 50, "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn four_nodes_on_one_file_share_the_book_and_twenty_kills() {
    shared_by_four(&Job::new(), "--orders 400", 20).await;
}

/// Four working processes, any of which is killed.
async fn shared_by_four(job: &Job, orders: &str, kills: u64) -> Line {
    let line = job.run(&format!("{orders} --nodes 4 --chaos {kills} --seed 7")).await;
    assert_eq!((line.code, line.number("doubled"), line.number("lost")), (Some(0), 0, 0), "{line}");
    assert_eq!(line.number("kills"), kills, "{line}");
    let starts = job.tables().await.starts;
    let after_kill = starts.iter().filter(|start| start.after_kill).count();
    assert_eq!((starts.len() - after_kill, after_kill as u64), (4, kills), "each that was killed is started again");
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_drains_and_the_next_run_goes_on() {
    interrupted(&Job::new(), "").await;
}

/// An interrupt, and what comes after it.
async fn interrupted(job: &Job, options: &str) {
    let mut supervisor = job.orders(options).spawn().expect("the example can be started");
    let pid = supervisor.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).expect("it is alive");
    let ledger = job.ledger();
    tokio::select! {
        () = reached(&ledger, 200) => {}
        ended = supervisor.wait() => panic!("nobody has interrupted it yet: {ended:?}"),
    }
    kill_process(pid, Signal::INT).expect("it can be interrupted");
    let line = Line::of(&supervisor.wait_with_output().await.expect("it ends"));
    assert_eq!((line.code, line.get("doubled")), (Some(130), "0"), "{line}");
    assert!((1..830).contains(&line.number("lost")), "{line}");
    assert_eq!(begun_again(&job.tables().await, &ORDINARY), 0);

    let line = job.run(options).await;
    line.assert_good(830, "1265793.22");
    assert_eq!(line.number("kills"), 0);
    assert_eq!(begun_again(&job.tables().await, &ORDINARY), 0, "a step that had begun before the interrupt was not recorded");
}

/// Waits until the ledger has executed so many calls. It asks again with each answer: the ledger tells by itself only whoever
/// names the working process, and that one is the supervisor's child.
async fn reached(ledger: &Path, calls: u64) {
    let client = Client::open(ledger, 1);
    loop {
        if client.counts().await.is_ok_and(|counts| counts.executed >= calls) {
            return;
        }
    }
}

#[tokio::test]
async fn a_key_is_one_run_whether_its_steps_were_written_by_hand_or_by_macros() {
    let folder = tempfile::tempdir().expect("a folder");
    by_hand_or_by_macros(format!("sqlite://{}", folder.path().join("first_run.db").display())).await;
}

async fn by_hand_or_by_macros(db: String) {
    let mut said = Vec::new();
    for name in ["first_run", "first_run", "by_hand"] {
        let output = example(name).args(["--db", &db]).output().await.expect("the example can be started");
        assert!(output.status.success(), "{output:?}");
        said.push(String::from_utf8(output.stdout).expect("text"));
    }
    let (charging, outcome) = said[0].split_once('\n').expect("two lines");
    assert!(charging.starts_with("charging 1200 cents"), "{said:?}");
    assert_eq!((outcome, outcome), (said[1].as_str(), said[2].as_str()));
}

/// The same with the records on a server.
#[cfg(feature = "postgres")]
mod postgres {
    use super::at_server::postgres;
    use super::{Job, ORDINARY, begun_again, by_hand_or_by_macros, interrupted, shared_by_four};

    #[tokio::test(flavor = "multi_thread")]
    async fn the_whole_book_is_served_once_and_a_second_run_finds_nothing_to_do() {
        let job = Job::on(postgres());
        let first = job.run("").await;
        first.assert_good(830, "1265793.22");
        let tables = job.tables().await;
        assert_eq!(begun_again(&tables, &ORDINARY), 0);
        let second = job.run("").await;
        assert_eq!((second.code, &second.figures), (first.code, &first.figures));
        assert_eq!(job.tables().await.bodies.len(), tables.bodies.len());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn four_nodes_share_the_book_and_fifty_kills() {
        shared_by_four(&Job::on(postgres()), "", 50).await.assert_good(830, "1265793.22");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_interrupt_drains_four_nodes_and_the_next_run_goes_on() {
        interrupted(&Job::on(postgres()), "--nodes 4").await;
    }

    #[tokio::test]
    async fn a_key_is_one_run_whether_its_steps_were_written_by_hand_or_by_macros() {
        by_hand_or_by_macros(postgres()).await;
    }
}

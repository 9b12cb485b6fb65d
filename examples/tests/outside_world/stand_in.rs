//! A stand-in for the working process: it does the job of the engine in the plainest way, a text file of finished orders
//! for its records and keys made of order and kind. So ledger and supervisor are tested without any engine.
//! Parts run as processes of their own: this test binary again, told by its environment which part to play.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lobster_examples::book;
use lobster_examples::ledger::{self, Act, Client, Kind};
use lobster_examples::options::Role;
use lobster_examples::pricing::price;
use lobster_examples::supervisor::{Job, Programs, supervise};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const PLAYS: &str = "STAND_IN_PLAYS";

/// A job for the stand-in.
#[derive(Clone)]
pub struct Play {
    pub folder: PathBuf,
    pub orders: usize,
    pub chaos: u64,
    /// How long each call takes beside the ledger's own time.
    pub pause: Duration,
    /// What the worker does wrong: `nothing`, `doubles`, `forgets`, `gives_up`.
    pub fault: &'static str,
}

impl Play {
    pub fn new(folder: &Path, orders: usize) -> Self {
        Self { folder: folder.to_owned(), orders, chaos: 0, pause: Duration::ZERO, fault: "nothing" }
    }

    pub fn ledger(&self) -> PathBuf {
        self.folder.join("ledger.db")
    }

    pub fn job(&self) -> Job {
        let book = book::all_orders().expect("the example data are whole");
        let orders = book.iter().take(self.orders).map(|order| order.id).collect();
        Job { ledger: self.ledger(), orders, nodes: 1, chaos: self.chaos, seed: 7 }
    }

    pub fn programs(&self) -> Programs {
        let play = self.clone();
        Arc::new(move |role| play.command(role))
    }

    /// This binary in another role.
    pub fn command(&self, role: Role) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
        command.args(["--exact", "stand_in::plays_its_part", "--nocapture", "--test-threads=1"]);
        command.env(PLAYS, format!("{role:?}")).env("STAND_IN_FOLDER", &self.folder).env("STAND_IN_FAULT", self.fault);
        command.env("STAND_IN_ORDERS", self.orders.to_string()).env("STAND_IN_CHAOS", self.chaos.to_string());
        command.env("STAND_IN_PAUSE_MS", self.pause.as_millis().to_string());
        command
    }

    fn from_environment() -> Self {
        let text = |name: &str| std::env::var(name).expect("the parent sets all of the environment");
        let number = |name: &str| text(name).parse::<u64>().expect("the parent writes a number");
        let fault = ["doubles", "forgets", "gives_up"].into_iter().find(|fault| *fault == text("STAND_IN_FAULT"));
        Self {
            folder: text("STAND_IN_FOLDER").into(),
            orders: usize::try_from(number("STAND_IN_ORDERS")).expect("there are few orders"),
            chaos: number("STAND_IN_CHAOS"),
            pause: Duration::from_millis(number("STAND_IN_PAUSE_MS")),
            fault: fault.unwrap_or("nothing"),
        }
    }

    fn records(&self) -> PathBuf {
        self.folder.join("records")
    }

    fn finished(&self) -> BTreeSet<u32> {
        let text = std::fs::read_to_string(self.records()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

/// Not a test: does nothing unless it is started as a part of one.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var(PLAYS) else { return };
    let play = Play::from_environment();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be built");
    // The test runner has begun a line of its own.
    println!();
    match part.as_str() {
        "Ledger" => runtime.block_on(ledger::serve(&play.ledger(), Duration::from_secs(30))).expect("the ledger serves"),
        "Work" => runtime.block_on(work(play)),
        "Report" => play.finished().iter().for_each(|order| println!("succeeded {order}")),
        "Supervise" => {
            let verdict = runtime.block_on(supervise(&play.job(), &play.programs())).expect("the job can be supervised");
            println!("{}", verdict.figures);
            std::process::exit(verdict.exit_code().into());
        }
        other => panic!("there is no part {other}"),
    }
}

async fn work(play: Play) {
    if play.fault == "gives_up" {
        std::process::exit(3);
    }
    let stop = stop_when_asked();
    let client = Client::open(&play.ledger(), 4);
    let slots = Arc::new(Semaphore::new(64));
    let done = play.finished();
    let mut finished = done.len();
    let mut orders = JoinSet::new();
    for order in book::all_orders().expect("the example data are whole").into_iter().take(play.orders) {
        if done.contains(&order.id) {
            continue;
        }
        let (client, slots, play, stop) = (client.clone(), Arc::clone(&slots), play.clone(), Arc::clone(&stop));
        orders.spawn(async move {
            let _slot = slots.acquire_owned().await.expect("nobody closes the semaphore");
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            serve(&client, &play, &order).await;
            true
        });
    }
    while let Some(ended) = orders.join_next().await {
        finished += usize::from(ended.expect("no order panics"));
        println!("finished {finished}");
    }
}

async fn serve(client: &Client, play: &Play, order: &book::Order) {
    for step in ["price", "check"] {
        client.begun(step, order.id, 1, 1).await.expect("the ledger answers");
    }
    for kind in Kind::ALL {
        if play.fault == "forgets" && kind == Kind::Ship {
            continue;
        }
        client.begun(kind.word(), order.id, 1, 1).await.expect("the ledger answers");
        // Work that takes its time, so that a kill finds it unfinished.
        tokio::time::sleep(play.pause).await;
        let amount = (kind == Kind::Charge).then(|| price(order).total);
        let act = Act { key: format!("{}-{}", order.id, kind.word()), kind, order: order.id, amount };
        if play.fault == "doubles" && kind == Kind::Notify {
            client.act(Act { key: format!("again {}", act.key), ..act.clone() }).await.expect("the ledger answers");
        }
        client.act(act).await.expect("the ledger answers");
    }
    let records = std::fs::OpenOptions::new().append(true).create(true).open(play.records());
    let line = format!("{}\n", order.id);
    records.expect("the records can be opened").write_all(line.as_bytes()).expect("the records can be written");
}

/// The supervisor asks by closing the standard input.
fn stop_when_asked() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _end = std::io::stdin().read_to_end(&mut Vec::new());
        asked.store(true, Ordering::Relaxed);
    });
    stop
}

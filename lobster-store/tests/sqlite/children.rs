//! Other processes: this test binary, started again to do one thing.
//!
//! Invariant: a child dies with its handle.

use crate::kit::*;
use lobster_store::{
    contract::{Beat, Clock, Journal, Members},
    sqlite::Sqlite,
};
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

const ROLE: &str = "LOBSTER_TEST_ROLE";
const FILE: &str = "LOBSTER_TEST_FILE";
const NUMBER: &str = "LOBSTER_TEST_NUMBER";

/// A child process.
pub struct Started {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

/// How a child is started: `wrap` is a command that runs it, with its arguments.
pub fn command(wrap: &[&str], role: &str, file: &Path, number: u64) -> Command {
    let this = std::env::current_exe().expect("a test knows its binary");
    let mut command = match wrap {
        [] => Command::new(&this),
        [wrap, args @ ..] => {
            let mut command = Command::new(wrap);
            command.args(args).arg(&this);
            command
        }
    };
    command.args(["--exact", "children::child", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(FILE, file).env(NUMBER, number.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

pub fn start(role: &str, file: &Path, number: u64) -> Started {
    let mut child = command(&[], role, file, number).spawn().expect("a test can start itself");
    let lines = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
    Started { child, lines }
}

impl Started {
    /// What it says next after `word`, which begins a line of its own.
    pub fn says(&mut self, word: &str) -> String {
        loop {
            let line =
                self.lines.next().unwrap_or_else(|| panic!("the child ended before it said {word}")).expect("it says text");
            // The test harness may have printed before it on the same line.
            if let Some((_, said)) = line.split_once(&format!("{word}:")) {
                return said.trim().to_owned();
            }
        }
    }

    pub fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(done.is_ok_and(|status| status.success()));
    }

    /// Lets it go on past the point where it waits.
    pub fn go(&mut self) {
        use std::io::Write;
        let stdin = self.child.stdin.as_mut().expect("its input is piped");
        stdin.write_all(b"go\n").expect("it listens");
    }

    pub fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("a child can be waited for").success());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Does nothing unless it is started by one of these tests.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let file = PathBuf::from(std::env::var(FILE).expect("a child is told its file"));
    let number: u64 = std::env::var(NUMBER).expect("a child is told its number").parse().expect("it is a number");
    block_on(async {
        match role.as_str() {
            "opens" => drop(store(&file).await),
            "submits" => submits(&file, number).await,
            "works" => works(&file, number).await,
            "folds" => crate::folds::folds(&file).await,
            "stubborn" => crate::syncs::stubborn(&file).await,
            "syncs" => crate::syncs::marked(&file).await,
            other => panic!("there is no role {other}"),
        }
    });
}

async fn store(file: &Path) -> Arc<Sqlite> {
    Sqlite::open(file, Arc::new(HostClock)).await.expect("several processes can open a file")
}

/// Waits until the parent says so, or is gone.
fn wait() -> bool {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).is_ok_and(|read| read > 0)
}

async fn submits(file: &Path, number: u64) {
    let store = store(file).await;
    println!("ready:");
    wait();
    let mut slowest = std::time::Duration::ZERO;
    for at in 0..200 {
        let before = HostClock.boot();
        create(&store, number * 1000 + at).await;
        slowest = slowest.max(HostClock.boot().since(before));
    }
    println!("slowest:{}", slowest.as_micros());
}

/// Joins, claims what there is, polls one of the runs and hangs.
async fn works(file: &Path, limit: u64) {
    let store = store(file).await;
    let me = fresh_incarnation();
    join(&store, me).await;
    let grants = claim(&store, me, usize::try_from(limit).expect("it is small")).await;
    let last = grants.last().expect("there is something to claim");
    store.note(me, 0, Some(grants[0].run));
    store.note(me, 1, Some(last.run));
    store.note(me, 1, None);
    assert!(store.attend(me).await.expect("an attend is answered").is_empty());
    println!("incarnation:{me}");
    let mut seq = 0;
    while wait() {
        seq += 1;
        let renewed = store.renew(me, Beat { seq, at: HostClock.boot(), lapsed: false }).await.expect("a renewal is answered");
        println!("renewed:{renewed:?}");
    }
}

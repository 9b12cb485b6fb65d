//! A server lives exactly as long as the command that it was started for.

#![allow(missing_docs, reason = "tests are named as sentences")]
#![allow(clippy::disallowed_methods, reason = "tests are applications: they may look at the clock")]

use lobster_servers::psql;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Runs a command of the shell with a server, and reads the URL that it prints first.
fn with_server(command: &str) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_with-servers"))
        .args(["sh", "-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it was built");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("it is piped")).read_line(&mut line).expect("it prints the URL");
    (child, line.trim().to_owned())
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process has a number");
    kill_process(pid, signal).expect("it has not been waited for");
}

/// Returns when nothing is left of a server, not even its directory.
fn wait_until_gone(url: &str, data: &str) {
    let home = Path::new(data).parent().expect("the data lies in the server's home");
    let deadline = Instant::now() + Duration::from_secs(60);
    while home.exists() {
        assert!(Instant::now() < deadline, "{} is still there", home.display());
        std::thread::yield_now();
    }
    assert!(psql::sql(url, "SELECT 1").is_err(), "the server is still there");
}

#[test]
fn the_code_is_that_of_the_command() {
    let (mut child, url) = with_server("echo $LOBSTER_TEST_POSTGRES; read _; exit 7");
    let data = psql::sql(&url, "SHOW data_directory").unwrap_or_else(|error| panic!("{error}"));
    drop(child.stdin.take());
    assert_eq!(child.wait().ok().and_then(|status| status.code()), Some(7));
    wait_until_gone(&url, &data);
}

#[test]
fn a_request_to_end_is_passed_on() {
    let (mut child, _) = with_server("echo $LOBSTER_TEST_POSTGRES; exec cat");
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().ok().and_then(|status| status.code()), Some(128 + 15));
}

#[test]
fn a_killed_owner_leaves_nothing_behind() {
    let (mut child, url) = with_server("echo $LOBSTER_TEST_POSTGRES; exec cat");
    let data = psql::sql(&url, "SHOW data_directory").unwrap_or_else(|error| panic!("{error}"));
    signal(&child, Signal::KILL);
    assert!(child.wait().is_ok());
    wait_until_gone(&url, &data);
}

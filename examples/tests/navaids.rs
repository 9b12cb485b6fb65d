//! The rule defended here: whatever is killed or interrupted, the state of the import is what the file says, and only what is new
//! is ever written. The whole `navaids` example, as a person starts it: real processes, real kills.
#![allow(clippy::disallowed_methods, reason = "an application is free to spawn and read clocks")]

#[cfg(feature = "postgres")]
mod at_server;

use std::path::PathBuf;
use std::process::{Output, Stdio};

use lobster_examples::navaids::tally::Counts;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::Command;

struct Job {
    folder: TempDir,
    db: String,
}

impl Job {
    /// With its records in a file, in a folder that does not exist yet.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let db = format!("sqlite://{}", folder.path().join("inside/navaids.db").display());
        Self { folder, db }
    }

    /// With its records in a database of a server.
    #[cfg(feature = "postgres")]
    fn on(db: String) -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), db }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("outside/tally")
    }

    fn tally(&self) -> Option<Counts> {
        Counts::read(&self.file()).expect("the tally can be read")
    }

    fn navaids(&self, options: &str) -> Command {
        let test = std::env::current_exe().expect("a test knows its own path");
        let profile = test.ancestors().nth(2).expect("a test lies in <profile>/deps");
        let mut command = Command::new(profile.join("examples/navaids"));
        command.args(["--db", &self.db, "--tally"]).arg(self.file()).args(options.split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn run(&self, options: &str) -> Line {
        Line::of(&self.navaids(options).output().await.expect("the example can be started"))
    }
}

/// The last line, and the exit code.
struct Line {
    code: Option<i32>,
    words: Vec<String>,
    everything: String,
}

impl Line {
    fn of(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout);
        let words = text.lines().last().unwrap_or_default().split(' ').map(str::to_owned).collect();
        let everything = format!("exit code {:?} after\n{text}{}", output.status.code(), String::from_utf8_lossy(&output.stderr));
        Self { code: output.status.code(), words, everything }
    }

    fn number(&self, place: usize, name: &str) -> f64 {
        let value = self.words.get(place).and_then(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in place {place}: {}", self.everything))
    }

    /// Everything was imported, after so many kills, and little was written.
    fn assert_good(&self, kills: u32) {
        assert_eq!(self.code, Some(0), "{}", self.everything);
        assert_eq!(self.words[..5].join(" "), "rows=11008 countries=231 us=2804 ca=622 ndb=6609", "{}", self.everything);
        assert_eq!(self.number(5, "kills"), f64::from(kills), "{}", self.everything);
        assert!(self.number(6, "rerun_pages") <= f64::from(kills), "{}", self.everything);
        let (written, full) = (self.number(7, "written_bytes"), self.number(8, "full_snapshot_bytes"));
        let ratio = self.number(9, "ratio");
        assert!(ratio >= 50.0 && (full / written - ratio).abs() <= 0.051, "{}", self.everything);
        assert_eq!(self.words.len(), 10, "{}", self.everything);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_file_is_imported_and_the_next_time_again() {
    imported_twice(&Job::new()).await;
}

async fn imported_twice(job: &Job) {
    job.run("").await.assert_good(0);
    let first = job.tally().expect("there was an import");
    assert!(first.done && first.begun.len() == 551 && first.full.len() == 551, "{first:?}");
    job.run("").await.assert_good(0);
    let second = job.tally().expect("there was an import");
    assert_ne!(second.import, first.import, "an import that has ended is not gone on with");
    assert_eq!(second.begun, first.begun);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_kills_lose_nothing_and_write_little_more() {
    killed_twenty_times(&Job::new()).await;
}

async fn killed_twenty_times(job: &Job) {
    let line = job.run("--chaos 20 --seed 7").await;
    line.assert_good(20);
    let tally = job.tally().expect("there was an import");
    assert!(tally.begun.values().all(|times| *times <= 2), "a kill costs one page: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_drains_and_the_next_run_goes_on() {
    let job = Job::new();
    let supervisor = job.navaids("").spawn().expect("the example can be started");
    let pid = supervisor.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).expect("it is alive");
    while job.tally().is_none_or(|tally| tally.begun.len() < 20) {
        // The tally is a file, which tells nobody that it has grown.
        tokio::task::yield_now().await;
    }
    kill_process(pid, Signal::INT).expect("it can be interrupted");
    let line = Line::of(&supervisor.wait_with_output().await.expect("it ends"));
    assert_eq!(line.code, Some(130), "{}", line.everything);
    assert!((20.0..11_008.0).contains(&line.number(0, "rows")), "{}", line.everything);
    let interrupted = job.tally().expect("there was an import");
    assert!(!interrupted.done && interrupted.rerun_pages() == 0, "{interrupted:?}");

    let line = job.run("").await;
    line.assert_good(0);
    let tally = job.tally().expect("there was an import");
    assert_eq!((tally.import, tally.begun.len()), (interrupted.import, 551));
    assert_eq!(line.number(6, "rerun_pages"), 0.0, "a page that had begun before the interrupt was not recorded");
}

/// The same with the records on a server.
#[cfg(feature = "postgres")]
mod postgres {
    use super::at_server::postgres;
    use super::{Job, imported_twice, killed_twenty_times};

    #[tokio::test(flavor = "multi_thread")]
    async fn the_whole_file_is_imported_and_the_next_time_again() {
        imported_twice(&Job::on(postgres())).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn twenty_kills_lose_nothing_and_write_little_more() {
        killed_twenty_times(&Job::on(postgres())).await;
    }
}

//! The supervisor with real processes, real kills and the stand-in for the engine.

use std::process::Stdio;
use std::time::Duration;

use lobster_examples::figures::{Figures, read_tables};
use lobster_examples::ledger::{Client, find};
use lobster_examples::options::Role;
use lobster_examples::supervisor::{End, Verdict, supervise};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncReadExt;

use crate::stand_in::Play;

async fn run(play: &Play) -> Verdict {
    supervise(&play.job(), &play.programs()).await.expect("the job can be supervised")
}

fn without_times(figures: &Figures) -> String {
    let text = figures.to_string();
    text[..text.find(" resume_ms_p50").expect("the line has it")].to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undisturbed_job_does_everything_once_and_a_second_one_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let play = Play::new(folder.path(), 830);
    let first = run(&play).await;
    let line = "orders=830 charged=830 total=1265793.22 doubled=0 lost=0 refused=0 rerun_bodies=0 kills=0";
    assert_eq!((without_times(&first.figures).as_str(), &first.end, first.exit_code()), (line, &End::Done, 0));
    assert!(!find(&play.ledger()).await, "the ledger has ended with its supervisor");
    let second = run(&play).await;
    assert_eq!(second.figures, first.figures);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kill_happens_and_every_life_after_it_is_timed() {
    let folder = tempfile::tempdir().expect("a folder");
    let play = Play { chaos: 25, ..Play::new(folder.path(), 300) };
    let verdict = run(&play).await;
    let Figures { charged, doubled, lost, kills, refused, rerun_bodies, resume_ms_p50, .. } = verdict.figures;
    assert_eq!((charged, doubled, lost, kills, verdict.exit_code()), (300, 0, 0, 25, 0));
    assert!(refused > 0 && rerun_bodies > 0, "the kills hit calls in flight: {}", verdict.figures);
    assert!(resume_ms_p50 > 0);
    let tables = read_tables(&play.ledger()).await.expect("the file can be read");
    let starts: Vec<_> = tables.starts.iter().filter(|start| start.after_kill).collect();
    assert_eq!(starts.len(), 25);
    for start in starts {
        assert!(tables.bodies.iter().any(|body| body.pid == start.pid && body.at_ms >= start.at_ms), "{start:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_room_for_few_kills_gets_these() {
    let folder = tempfile::tempdir().expect("a folder");
    let play = Play { chaos: 10, ..Play::new(folder.path(), 1) };
    let verdict = run(&play).await;
    assert_eq!((verdict.figures.kills, verdict.exit_code()), (2, 0), "{}", verdict.figures);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_doubles_or_forgets_is_found_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let doubled = run(&Play { fault: "doubles", ..Play::new(folder.path(), 5) }).await;
    assert_eq!((doubled.figures.doubled, doubled.figures.lost, doubled.exit_code()), (5, 0, 1));
    let folder = tempfile::tempdir().expect("a folder");
    let lost = run(&Play { fault: "forgets", ..Play::new(folder.path(), 5) }).await;
    assert_eq!((lost.figures.doubled, lost.figures.lost, lost.exit_code()), (0, 5, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_gives_up_fails_the_job_and_the_line_is_there_all_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let verdict = run(&Play { fault: "gives_up", ..Play::new(folder.path(), 5) }).await;
    assert!(matches!(&verdict.end, End::Failed(why) if why.contains("exit status: 3")), "{:?}", verdict.end);
    assert_eq!((verdict.figures.lost, verdict.exit_code()), (5, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_dies_is_started_again_and_the_job_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let play = Play { pause: Duration::from_millis(20), ..Play::new(folder.path(), 300) };
    let mut ledger = play.command(Role::Ledger).stdout(Stdio::null()).spawn().expect("the ledger can be started");
    let client = Client::open(&play.ledger(), 1);
    client.counts().await.expect("the ledger comes up");
    let job = tokio::spawn({
        let play = play.clone();
        async move { run(&play).await }
    });
    while client.counts().await.expect("the ledger is alive").executed < 100 {}
    ledger.kill().expect("the ledger can be killed");
    ledger.wait().expect("the ledger is dead");
    drop(client);
    let verdict = job.await.expect("the supervisor does not panic");
    assert_eq!((verdict.figures.charged, verdict.figures.doubled, verdict.exit_code()), (300, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_drains_and_the_next_job_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let play = Play { pause: Duration::from_millis(20), chaos: 3, ..Play::new(folder.path(), 300) };
    let mut command = tokio::process::Command::from(play.command(Role::Supervise));
    let mut supervisor = command.stdout(Stdio::piped()).spawn().expect("the supervisor can be started");
    let client = Client::open(&play.ledger(), 1);
    while client.counts().await.expect("the ledger comes up").executed < 200 {}
    drop(client);
    let pid = supervisor.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).expect("it is alive");
    kill_process(pid, Signal::INT).expect("it can be interrupted");
    let mut text = String::new();
    supervisor.stdout.take().expect("it is piped").read_to_string(&mut text).await.expect("it writes text");
    assert_eq!(supervisor.wait().await.expect("it ends").code(), Some(130));
    let line = text.trim_end().lines().last().expect("it writes a line");
    assert!(line.starts_with("orders=300 charged=") && line.contains(" doubled=0 "), "{text}");

    let before = read_tables(&play.ledger()).await.expect("the file can be read");
    assert!(before.effects.len() >= 200 && before.effects.len() < 900, "{line}");
    let verdict = run(&Play { chaos: 0, ..play }).await;
    let Figures { charged, doubled, lost, kills, .. } = verdict.figures;
    assert_eq!((charged, doubled, lost, kills, verdict.exit_code()), (300, 0, 0, before.kills, 0));
}

//! A process to be killed: submits runs by key, executes them, waits for their outcomes, leaves.
//!
//! `worker <database> <world> <first> <runs>`; `.. books <runs> <rounds>`: runs with state; `.. bookings <runs>`: runs with transactions;
//! `.. serve`: whatever others submit, until it is asked to end; `.. poison <way>`: one run that kills it, among others; or
//! `.. cancel <key>` and `.. resolve <key>`, which only ask.

#![allow(clippy::disallowed_methods, reason = "tests are applications: they may spawn and sleep")]

use lobster_core::{
    Ctx, ErrorKind, Fate, Field, Flow, Lobster, Log, PgTx, Result, RunState, Settings, SqliteTx, State, StepCtx, StepErrorExt,
    Table, Tx, crash_point, step, task,
};
use lobster_tests::world::Line;
use serde::{Deserialize, Deserializer, Serialize};
use std::{process::ExitCode, sync::OnceLock, time::Duration};
use tokio::signal::unix::{SignalKind, signal};

static WORLD: OnceLock<Line> = OnceLock::new();

fn say(what: &str, run: &str, step: &str, key: &str) -> String {
    WORLD.get().expect("main connects before anything runs").say(what, run, step, key)
}

#[step]
async fn ordinary(_ctx: &StepCtx, run: &str, n: u32) -> Result<u32> {
    say("body", run, &format!("ordinary#{n}"), "-");
    tokio::task::yield_now().await;
    crash_point("P7");
    Ok(n)
}

#[step(durable)]
async fn durable(_ctx: &StepCtx, run: &str) -> Result<u32> {
    say("body", run, "durable#0", "-");
    Ok(1)
}

#[step(retry(attempts = 3))]
async fn late(ctx: &StepCtx, run: &str) -> Result<u32> {
    say("body", run, &format!("late#0 attempt {}", ctx.attempt()), "-");
    if ctx.attempt() == 1 {
        Err("not yet").retry_after(Duration::from_millis(250))?;
    }
    Ok(ctx.attempt())
}

fn act(ctx: &StepCtx, run: &str, step: &str) -> Result<u64> {
    let answer = say("call", run, step, ctx.idempotency_key());
    crash_point("P14");
    match answer.strip_prefix("receipt ") {
        Some(receipt) => Ok(receipt.parse()?),
        None => Err(answer).did_not_happen()?,
    }
}

#[step(irreversible, in_doubt = retry, max_duration = 500ms)]
async fn retried(ctx: &StepCtx, run: &str) -> Result<u64> {
    act(ctx, run, "retried#0")
}

#[step(irreversible, in_doubt = probe(ask), max_duration = 500ms)]
async fn probed(ctx: &StepCtx, run: &str) -> Result<u64> {
    act(ctx, run, "probed#0")
}

async fn ask(ctx: &StepCtx, run: &str) -> Result<Fate<u64>> {
    let answer = say("ask", run, "probed#0", ctx.idempotency_key());
    Ok(match answer.strip_prefix("receipt ") {
        Some(receipt) => Fate::Happened(receipt.parse()?),
        None => Fate::Closed,
    })
}

#[step(irreversible, in_doubt = hold, max_duration = 500ms)]
async fn held(ctx: &StepCtx, run: &str) -> Result<u64> {
    act(ctx, run, "held#0")
}

#[task]
async fn job(ctx: Ctx, run: String) -> Result<Vec<u64>> {
    let first = ordinary(&ctx, &run, 0).await?;
    crash_point("P19");
    let durable = durable(&ctx, &run).await?;
    let retried = retried(&ctx, &run).await?;
    let second = ordinary(&ctx, &run, 1).await?;
    let probed = probed(&ctx, &run).await?;
    let late = late(&ctx, &run).await?;
    let held = held(&ctx, &run).await?;
    let (third, fourth) = tokio::join!(ordinary(&ctx, &run, 2), ordinary(&ctx, &run, 3));
    Ok(vec![first.into(), durable.into(), retried, second.into(), probed, late.into(), held, third?.into(), fourth?.into()])
}

/// Steps that need nobody's help.
#[task]
async fn parcel(ctx: Ctx, run: String) -> Result<u64> {
    for n in 0..3 {
        ordinary(&ctx, &run, n).await?;
    }
    durable(&ctx, &run).await?;
    let receipt = retried(&ctx, &run).await?;
    tokio::try_join!(ordinary(&ctx, &run, 3), ordinary(&ctx, &run, 4))?;
    Ok(receipt)
}

/// Executes what others submit, until it is asked to end.
async fn serve(builder: lobster_core::Builder) {
    let mut asked = signal(SignalKind::terminate()).expect("a process may listen for signals");
    let lobster = builder.task(parcel).start().await.expect("the store opens");
    asked.recv().await;
    let drained = lobster.shutdown(Duration::from_secs(30)).await;
    assert_eq!(drained.left_behind, 0, "everything was handed over");
}

/// What a book's run has read, round by round.
#[derive(State, Default)]
struct Pages {
    next: Field<u32>,
    seen: Log<u32>,
    counts: Table<u32, u32>,
}

fn turn(pages: &mut Pages, run: &str, kind: &str, to: u32) -> Result<Flow<u32>> {
    let next = *pages.next;
    if next == to {
        return Ok(Flow::Done(next));
    }
    say("body", run, &format!("{kind}#{next}"), "-");
    pages.next += 1;
    pages.seen.push(next);
    *pages.counts.entry(next % 7).or_default() += 1;
    crash_point("P7");
    Ok(Flow::Again)
}

#[step(durable)]
async fn page(_ctx: &StepCtx, #[state] pages: &mut Pages, run: &str, to: u32) -> Result<Flow<u32>> {
    turn(pages, run, "page", to)
}

#[step]
async fn leaf(_ctx: &StepCtx, #[state] pages: &mut Pages, run: &str, to: u32) -> Result<Flow<u32>> {
    turn(pages, run, "leaf", to)
}

#[task]
async fn book(ctx: Ctx, plan: (String, u32)) -> Result<(u32, u32)> {
    let (run, rounds) = plan;
    let pages = ctx.repeat(|ctx| page(ctx, &run, 30)).await?;
    let leaves = ctx.repeat(|ctx| leaf(ctx, &run, rounds)).await?;
    Ok((pages, leaves))
}

/// Reads some books.
async fn books(builder: lobster_core::Builder, runs: u32, rounds: u32) {
    let lobster = builder.task(book).start().await.expect("the store opens");
    let mut handles = Vec::new();
    for n in 0..runs {
        let key = format!("book-{n}");
        handles.push(lobster.submit(book, (key.clone(), rounds)).key(key).await.expect("the store answers"));
    }
    for run in handles {
        assert_eq!(run.outcome().await.expect("books end"), (30, rounds));
    }
    lobster.shutdown(Duration::from_secs(5)).await;
}

/// One booking: what the bank says of it is a row per time it was made. It is followed by a notice.
const BOOK: &str = "INSERT INTO bookings (number) VALUES ($1)";

#[step(transactional)]
async fn book_in_file(ctx: &StepCtx, tx: &mut SqliteTx, run: &str, number: i64) -> Result<i64> {
    say("body", run, &format!("booking#{number}"), "-");
    sqlx::query(BOOK).bind(number).execute(&mut **tx).await?;
    crash_point("T5");
    follow(ctx, tx, number).await
}

#[step(transactional)]
async fn book_at_server(ctx: &StepCtx, tx: &mut PgTx, run: &str, number: i64) -> Result<i64> {
    say("body", run, &format!("booking#{number}"), "-");
    sqlx::query(BOOK).bind(number).persistent(false).execute(&mut **tx).await?;
    crash_point("T5");
    follow(ctx, tx, number).await
}

fn notice_key(number: i64) -> String {
    format!("notice-{number}")
}

async fn follow(ctx: &StepCtx, tx: &mut impl Tx, number: i64) -> Result<i64> {
    ctx.submit_in(tx, notice, number).key(notice_key(number)).await?;
    crash_point("T6");
    Ok(number)
}

#[task]
async fn notice(ctx: Ctx, number: i64) -> Result<u32> {
    Ok(durable(&ctx, &notice_key(number)).await?)
}

#[task]
async fn booking(ctx: Ctx, plan: (bool, String, i64)) -> Result<i64> {
    let (in_file, run, first) = plan;
    let mut sum = 0;
    for number in first..first + 4 {
        sum += i64::from(ordinary(&ctx, &run, u32::try_from(number)?).await?);
        sum += match in_file {
            true => book_in_file(&ctx, &run, number).await?,
            false => book_at_server(&ctx, &run, number).await?,
        };
    }
    Ok(sum)
}

/// Makes some bookings, four a run.
async fn bookings(builder: lobster_core::Builder, in_file: bool, runs: i64) {
    let lobster = builder.task(booking).task(notice).start().await.expect("the store opens");
    let mut handles = Vec::new();
    for n in 0..runs {
        let key = format!("booking-{n}");
        handles.push(lobster.submit(booking, (in_file, key.clone(), 4 * n)).key(key).await.expect("the store answers"));
    }
    for run in handles {
        run.outcome().await.expect("bookings end");
    }
    for number in 0..4 * runs {
        // One whose process is frozen meanwhile has its session ended.
        let found = loop {
            match lobster.find(notice_key(number)).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                found => break found,
            }
        };
        let run = found.expect("the store answers").expect("it was submitted with its booking");
        lobster.run(notice, run).outcome().await.expect("notices end");
    }
    lobster.shutdown(Duration::from_secs(5)).await;
}

#[step]
async fn deadly(_ctx: &StepCtx, run: &str) -> Result<()> {
    say("body", run, "deadly#0", "-");
    std::process::abort();
}

#[step]
async fn peaceful(_ctx: &StepCtx, run: &str, n: u32) -> Result<()> {
    say("body", run, &format!("peaceful#{n}"), "-");
    // Work that takes its time: what nobody may do beside a run that is executed alone.
    tokio::time::sleep(Duration::from_millis(20)).await;
    say("end", run, &format!("peaceful#{n}"), "-");
    Ok(())
}

#[task]
async fn killer(ctx: Ctx, run: String) -> Result<()> {
    Ok(deadly(&ctx, &run).await?)
}

fn die(run: &str) -> ! {
    say("body", run, "deadly#0", "-");
    std::process::abort();
}

/// An input that nobody lives to decode.
#[derive(Serialize)]
struct Deadly(String);

impl<'de> Deserialize<'de> for Deadly {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        die(&String::deserialize(deserializer)?)
    }
}

#[task]
async fn killer_by_input(_ctx: Ctx, _input: Deadly) -> Result<()> {
    Ok(())
}

#[step(irreversible, in_doubt = probe(deadly_answer))]
async fn unanswered(_ctx: &StepCtx, run: &str) -> Result<()> {
    say("call", run, "unanswered#0", "-");
    Err("no answer")?
}

async fn deadly_answer(_ctx: &StepCtx, run: &str) -> Result<Fate<()>> {
    die(run)
}

#[task]
async fn killer_by_probe(ctx: Ctx, run: String) -> Result<()> {
    Ok(unanswered(&ctx, &run).await?)
}

/// At its end, when the engine lets go of it.
struct Last(String);

impl Drop for Last {
    fn drop(&mut self) {
        die(&self.0)
    }
}

#[step(irreversible, in_doubt = retry, max_duration = 100ms)]
async fn overruns(_ctx: &StepCtx, run: &str) -> Result<()> {
    let _last = Last(run.to_owned());
    std::future::pending().await
}

#[task]
async fn killer_by_destructor(ctx: Ctx, run: String) -> Result<()> {
    Ok(overruns(&ctx, &run).await?)
}

/// Given up before others are.
#[task(max_attempts = 2)]
async fn killer_of_few(ctx: Ctx, run: String) -> Result<()> {
    Ok(deadly(&ctx, &run).await?)
}

#[task]
async fn neighbour(ctx: Ctx, run: String) -> Result<()> {
    for n in 0..5 {
        peaceful(&ctx, &run, n).await?;
    }
    Ok(())
}

/// One run that kills its process in this way, among peaceful ones.
async fn poison(builder: lobster_core::Builder, way: &str) {
    let builder = builder.task(killer).task(killer_by_input).task(killer_by_probe).task(killer_by_destructor).task(killer_of_few);
    let lobster = builder.task(neighbour).start().await.expect("the store opens");
    let run = || "killer".to_owned();
    let deadly = match way {
        "input" => lobster.submit(killer_by_input, Deadly(run())).key(run()).await.map(|run| run.id()),
        "probe" => lobster.submit(killer_by_probe, run()).key(run()).await.map(|run| run.id()),
        "destructor" => lobster.submit(killer_by_destructor, run()).key(run()).await.map(|run| run.id()),
        "few" => lobster.submit(killer_of_few, run()).key(run()).await.map(|run| run.id()),
        _ => lobster.submit(killer, run()).key(run()).await.map(|run| run.id()),
    };
    let deadly = deadly.expect("the store answers");
    let mut handles = Vec::new();
    for n in 0..6 {
        let key = format!("neighbour-{n}");
        handles.push(lobster.submit(neighbour, key.clone()).key(key).await.expect("the store answers"));
    }
    for run in handles {
        run.outcome().await.expect("peaceful runs end");
    }
    println!("{:?}", lobster.run(killer, deadly).outcome().await);
    lobster.shutdown(Duration::from_secs(5)).await;
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, world, rest @ ..] = &arguments[..] else { return ExitCode::from(2) };
    WORLD.set(Line::to(world)).map_err(|_| ()).expect("set once");
    let mut settings = Settings::test();
    if std::env::var_os("LONG_LEASE").is_some() {
        // Longer than any test: whoever takes over has a proof, or waits in vain.
        settings.lease.ttl = Duration::from_secs(3600);
        settings.lease.self_fence = Duration::from_secs(1800);
    }
    if std::env::var_os("CALM_LEASE").is_some() {
        // A slow machine does not lose it.
        settings.lease.ttl = Duration::from_secs(10);
        settings.lease.self_fence = Duration::from_secs(6);
    }
    if std::env::var_os("LONG_POLL").is_some() {
        // Longer than its test: whoever finds work was told of it.
        settings.run.poll = Duration::from_secs(3600);
    }
    let open = || Lobster::open(database).settings(settings.clone());
    match rest {
        [verb, key] if verb == "cancel" => {
            let client = open().connect().await.expect("the store opens");
            let run = client.find(key.as_str()).await.expect("the store answers").expect("the run was submitted");
            client.cancel(run).await.expect("a run can be cancelled");
        }
        [verb, key] if verb == "resolve" => {
            let client = open().connect().await.expect("the store opens");
            let run = client.find(key.as_str()).await.expect("the store answers").expect("the run was submitted");
            let view = client.show(run).await.expect("the run can be shown");
            let step = view.steps.iter().find(|step| step.name == "held#0").expect("the step is recorded").id;
            // The test has asked the world and says what to state.
            let fate = match std::env::var("FATE").ok().and_then(|fate| fate.parse::<u64>().ok()) {
                Some(receipt) => Fate::Happened(receipt),
                None => Fate::Closed,
            };
            match client.resolve(run, step, fate).await {
                Ok(()) => {}
                Err(error) if error.kind() == lobster_core::ErrorKind::Conflict => {}
                Err(error) => panic!("{error}"),
            }
        }
        [verb, runs] if verb == "bookings" => {
            bookings(open(), database.starts_with("sqlite:"), runs.parse().expect("a number")).await;
        }
        [verb, way] if verb == "poison" => poison(open(), way).await,
        [verb] if verb == "serve" => serve(open()).await,
        [verb, runs, rounds] if verb == "books" => {
            settings.state.snapshot.delta_threshold = 5;
            // So that what was said is soon recorded: whoever is killed after some hundred rounds has recorded some.
            settings.commit.lag_deltas = 50;
            let builder = Lobster::open(database).settings(settings);
            books(builder, runs.parse().expect("a number"), rounds.parse().expect("a number")).await;
        }
        [first, runs] => {
            let first: u32 = first.parse().expect("a number");
            let runs: u32 = runs.parse().expect("a number");
            let lobster = open().task(job).start().await.expect("the store opens");
            let mut handles = Vec::new();
            for n in first..first + runs {
                let key = format!("job-{n}");
                handles.push(lobster.submit(job, key.clone()).key(key).await.expect("the store answers"));
            }
            for run in handles {
                // A held run ends when the test resolves it.
                if let Err(error) = run.outcome().await {
                    println!("{} {error}", run.id());
                }
            }
            let left = lobster.runs().state(RunState::Running).count().await.expect("the store answers");
            println!("done, running {left}");
            lobster.shutdown(Duration::from_secs(5)).await;
        }
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

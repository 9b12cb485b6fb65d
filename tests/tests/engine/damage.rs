//! Damaged bytes never reach a body: the run is held with an error that names run, seq and record; the others go on.

use lobster_core::{
    Ctx, ErrorKind, Fate, Field, Lobster, Log, Result, RunFailed, RunId, RunState, Settings, State, StepCtx, StepErrorExt, step,
    task,
};
use lobster_tests::{Place, eventually, happen, happened, held, on_shared, tiers, until};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, SqliteConnection};
use std::time::Duration;

#[step]
async fn value(_ctx: &StepCtx, n: u64) -> Result<u64> {
    Ok(n)
}

#[step(retry(attempts = 2))]
async fn later(ctx: &StepCtx, world: String) -> Result<u64> {
    happen(&world, "later");
    if ctx.attempt() == 1 {
        Err("come back").retry_after(Duration::from_secs(3600))?;
    }
    Ok(1)
}

#[task]
async fn sleeper(ctx: Ctx, world: String) -> Result<u64> {
    let n = value(&ctx, 41).await?;
    Ok(n + later(&ctx, world).await?)
}

#[task]
async fn quick(ctx: Ctx, n: u64) -> Result<u64> {
    Ok(value(&ctx, n).await?)
}

/// A person at the tables.
enum Person {
    AtFile(SqliteConnection),
    AtServer(PgConnection),
}

impl Person {
    async fn at(place: &Place) -> Self {
        match place.database() {
            server if server.starts_with("postgres") => Self::AtServer(PgConnection::connect(server).await.unwrap()),
            file => Self::AtFile(SqliteConnection::connect(file).await.unwrap()),
        }
    }
    fn table(&self, name: &str) -> String {
        match self {
            Self::AtFile(_) => format!("lobster_{name}"),
            Self::AtServer(_) => format!("lobster.{name}"),
        }
    }
    fn id(&self, run: RunId) -> String {
        match self {
            Self::AtFile(_) => format!("x'{}'", run.to_string().replace('-', "")),
            Self::AtServer(_) => format!("'{run}'"),
        }
    }
    async fn tell(&mut self, text: String) {
        let done = match self {
            Self::AtFile(file) => file.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.map(|done| done.rows_affected()),
            Self::AtServer(server) => server.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.map(|done| done.rows_affected()),
        };
        assert_eq!(done.unwrap(), 1, "one row is changed");
    }
    /// The record with the least checksum, which a flipped bit of it does not change.
    async fn record(&mut self, table: &str, run: RunId) -> Vec<u8> {
        let text = format!("SELECT body FROM {} WHERE run = {} ORDER BY crc LIMIT 1", self.table(table), self.id(run));
        match self {
            Self::AtFile(file) => sqlx::query(AssertSqlSafe(text)).fetch_one(file).await.unwrap().get(0),
            Self::AtServer(server) => sqlx::query(AssertSqlSafe(text)).fetch_one(server).await.unwrap().get(0),
        }
    }
    /// Flips one bit of it; returns the bytes that it has now.
    async fn flip(&mut self, table: &str, run: RunId, at: usize) -> Vec<u8> {
        let mut damaged = self.record(table, run).await;
        let at = at % damaged.len();
        damaged[at] ^= 1 << (at % 8);
        let hex: String = damaged.iter().map(|byte| format!("{byte:02x}")).collect();
        let (body, name) = match self {
            Self::AtFile(_) => (format!("x'{hex}'"), self.table(table)),
            Self::AtServer(_) => (format!("'\\x{hex}'"), self.table(table)),
        };
        let run_is = format!("run = {}", self.id(run));
        let least = format!("SELECT min(crc) FROM {name} WHERE {run_is}");
        self.tell(format!("UPDATE {name} SET body = {body} WHERE {run_is} AND crc = ({least})")).await;
        assert_eq!(self.record(table, run).await, damaged);
        damaged
    }
    /// A cancel of it was asked for when it had an owner, who then died for the third time.
    async fn cancel(&mut self, run: RunId) {
        self.tell(format!("UPDATE {} SET cancel = true, deaths = 3 WHERE id = {}", self.table("runs"), self.id(run))).await;
    }
    /// An hour passes.
    async fn make_due(&mut self, run: RunId) {
        self.tell(format!("UPDATE {} SET due = 0 WHERE id = {}", self.table("runs"), self.id(run))).await;
    }
}

/// Damages a record of a run that left memory after it was `later`; the run is held by whoever restores it, and that is all.
async fn damage_holds_its_run(place: &Place, world: &str, run: RunId, (table, record): (&str, &str), at: usize) -> Lobster {
    let mut person = Person::at(place).await;
    let damaged = person.flip(table, run, at).await;
    person.make_due(run).await;
    let lobster = place.open().task(sleeper).task(noting).task(quick).start().await.unwrap();
    let reason = held(place, &lobster, run).await;
    assert!(reason.contains(record) && reason.contains(&run.to_string()) && reason.contains("seq"), "{reason}");
    assert_eq!(lobster.submit(quick, 5).await.unwrap().outcome().await.unwrap(), 5);
    assert_eq!(happened(world, "later"), 1, "no body ran");
    assert_eq!(person.record(table, run).await, damaged, "the data is untouched");
    lobster
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(test);
}

async fn of_an_input_or_a_delta(store: fn() -> Place) {
    for (table, record) in [("inputs", "input"), ("deltas", "delta")] {
        for at in [0, 1, 7, 1_000_003] {
            let place = store();
            let world = format!("damage {table} {at} {}", place.url());
            let lobster = place.open().task(sleeper).start().await.unwrap();
            let run = lobster.submit(sleeper, world.clone()).await.unwrap();
            until(&world, "later", 1).await;
            // It leaves memory, to come back in an hour.
            eventually(&tiers(&place).await, async || (run.state().await.unwrap() == RunState::Ready).then_some(())).await;
            lobster.shutdown(Duration::from_secs(5)).await;
            let lobster = damage_holds_its_run(&place, &world, run.id(), (table, record), at).await;
            if table == "deltas" {
                assert_eq!(lobster.show(run.id()).await.unwrap_err().kind(), ErrorKind::Corrupt);
            }
            lobster.shutdown(Duration::from_secs(5)).await;
        }
    }
}

#[step(durable)]
async fn held_up(_ctx: &StepCtx, world: &str) -> Result<()> {
    happen(world, "held up");
    until(world, "go on", 1).await;
    Ok(())
}

#[task]
async fn forked(ctx: Ctx, world: String) -> Result<()> {
    Ok(held_up(&ctx, &world).await?)
}

/// Somebody else's rows stand in the store under a living holder, as after the promotion of a replica that lost the newest.
async fn forked_under_its_holder(place: &Place, cancelled: bool) {
    let world = format!("forked {cancelled} {}", place.url());
    let lobster = place.open().task(forked).start().await.unwrap();
    let run = lobster.submit(forked, world.clone()).await.unwrap();
    until(&world, "held up", 1).await;
    let mut person = Person::at(place).await;
    person.tell(format!("UPDATE {} SET tail = tail + 7 WHERE id = {}", person.table("runs"), person.id(run.id()))).await;
    if !cancelled {
        happen(&world, "go on");
        let reason = held(place, &lobster, run.id()).await;
        assert!(reason.contains("forked recording") && reason.contains("up to seq 7"), "{reason}");
    }
    lobster.cancel(run.id()).await.unwrap();
    assert!(matches!(run.outcome().await, Err(RunFailed::Cancelled(_))));
    assert_eq!(lobster.runs().list().await.unwrap()[0].tail, 7, "the recording is left as it is");
    lobster.shutdown(Duration::from_secs(5)).await;
}

/// Two cancelled runs, of which one is damaged, with no room for any.
async fn cancelled_without_room(place: Place) {
    let world = format!("cancelled {}", place.url());
    let lobster = place.open().task(sleeper).start().await.unwrap();
    let mut runs = Vec::new();
    for n in 0..2 {
        let run = lobster.submit(sleeper, format!("{world} {n}")).await.unwrap();
        until(&format!("{world} {n}"), "later", 1).await;
        eventually(&tiers(&place).await, async || (run.state().await.unwrap() == RunState::Ready).then_some(())).await;
        runs.push(run);
    }
    lobster.shutdown(Duration::from_secs(5)).await;
    let mut person = Person::at(&place).await;
    person.flip("deltas", runs[0].id(), 7).await;
    let mut settings = Settings::test();
    settings.run.executing = 1;
    let lobster = place.open().settings(settings).task(sleeper).task(forked).start().await.unwrap();
    let busy = lobster.submit(forked, world.clone()).await.unwrap();
    until(&world, "held up", 1).await;
    for run in &runs {
        person.cancel(run.id()).await;
        person.make_due(run.id()).await;
    }
    for run in runs {
        assert!(matches!(lobster.run(sleeper, run.id()).outcome().await, Err(RunFailed::Cancelled(_))));
    }
    happen(&world, "go on");
    busy.outcome().await.unwrap();
    lobster.shutdown(Duration::from_secs(5)).await;
}

#[derive(State, Default)]
struct Notes {
    count: Field<u64>,
    words: Log<String>,
}

#[step(durable)]
async fn note(_ctx: &StepCtx, #[state] notes: &mut Notes, n: u64) -> Result<u64> {
    notes.count += n;
    notes.words.push(format!("word {n}"));
    Ok(n)
}

#[task]
async fn noting(ctx: Ctx, world: String) -> Result<u64> {
    note(&ctx, 1).await?;
    note(&ctx, 2).await?;
    gate(&ctx, &world).await?;
    note(&ctx, 3).await?;
    Ok(later(&ctx, world).await?)
}

#[step]
async fn gate(_ctx: &StepCtx, world: &str) -> Result<()> {
    happen(world, "at the gate");
    until(world, "open", 1).await;
    Ok(())
}

async fn of_a_record_of_state(store: fn() -> Place) {
    for (table, record) in [("changes", "change"), ("manifests", "manifest"), ("parts", "part")] {
        for at in [0, 3, 1_000_003] {
            let place = store();
            let world = format!("damage {table} {at} {}", place.url());
            let lobster = place.open().task(noting).start().await.unwrap();
            let run = lobster.submit(noting, world.clone()).await.unwrap();
            until(&world, "at the gate", 1).await;
            // A snapshot, and a change that comes after it.
            assert!(lobster.fold(run.id()).await.unwrap());
            happen(&world, "open");
            eventually(&tiers(&place).await, async || (run.state().await.unwrap() == RunState::Ready).then_some(())).await;
            lobster.shutdown(Duration::from_secs(5)).await;
            let lobster = damage_holds_its_run(&place, &world, run.id(), (table, record), at).await;
            let state = lobster.state::<Notes>(run.id(), Notes::NAME).await.map(|_| ()).unwrap_err();
            assert_eq!(state.kind(), ErrorKind::Corrupt);
            lobster.shutdown(Duration::from_secs(5)).await;
        }
    }
}

#[step(irreversible, in_doubt = hold, max_duration = 100ms)]
async fn doubtful(_ctx: &StepCtx) -> Result<u64> {
    Err("nobody knows".into())
}

#[task]
async fn doubting(ctx: Ctx, _world: String) -> Result<u64> {
    Ok(doubtful(&ctx).await?)
}

async fn of_a_verdict(place: Place) {
    let lobster = place.open().task(doubting).start().await.unwrap();
    let run = lobster.submit(doubting, String::new()).await.unwrap();
    held(&place, &lobster, run.id()).await;
    lobster.shutdown(Duration::from_secs(5)).await;
    let client = Lobster::open(place.url()).settings(Settings::test()).connect().await.unwrap();
    let step = client.show(run.id()).await.unwrap().steps[0].id;
    client.resolve(run.id(), step, Fate::Happened(7)).await.unwrap();
    let mut person = Person::at(&place).await;
    let damaged = person.flip("verdicts_in", run.id(), 5).await;
    let lobster = place.open().task(doubting).start().await.unwrap();
    let reason = held(&place, &lobster, run.id()).await;
    assert!(reason.contains("verdict") && reason.contains(&run.id().to_string()), "{reason}");
    assert_eq!(person.record("verdicts_in", run.id()).await, damaged, "the data is untouched");
}

async fn of_an_outcome(place: Place) {
    let lobster = place.open().task(quick).start().await.unwrap();
    let run = lobster.submit(quick, 5).await.unwrap();
    run.outcome().await.unwrap();
    lobster.shutdown(Duration::from_secs(5)).await;
    Person::at(&place).await.flip("outcomes", run.id(), 2).await;
    let client = Lobster::open(place.url()).settings(Settings::test()).connect().await.unwrap();
    let Err(RunFailed::Unreadable(error)) = client.run(quick, run.id()).outcome().await else { panic!("it cannot be read") };
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("outcome") && error.to_string().contains(&run.id().to_string()), "{error}");
}

async fn newer_version(place: Place) {
    place.open().start().await.unwrap().shutdown(Duration::from_secs(5)).await;
    let mut person = Person::at(&place).await;
    let meta = person.table("meta");
    person.tell(format!("UPDATE {meta} SET value = 999 WHERE name = 'schema'")).await;
    for error in [place.open().start().await.unwrap_err(), place.open().connect().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::NewerVersion);
        assert!(error.to_string().contains("999"), "{error}");
    }
}

on_shared! {
    fn a_flipped_bit_in_an_input_or_a_delta_holds_its_run_and_touches_nothing(store) {
        block_on(of_an_input_or_a_delta(store));
    }
    fn a_flipped_bit_in_a_record_of_state_holds_its_run_and_touches_nothing(store) {
        block_on(of_a_record_of_state(store));
    }
    fn a_flipped_bit_in_a_verdict_holds_its_run_and_touches_nothing(store) {
        block_on(of_a_verdict(store()));
    }
    fn a_flipped_bit_in_an_outcome_is_told_to_whoever_asks(store) {
        block_on(of_an_outcome(store()));
    }
    fn a_run_that_was_forked_under_its_holder_is_held(store) {
        block_on(forked_under_its_holder(&store(), false));
    }
    fn a_run_that_was_forked_under_its_holder_ends_when_it_is_cancelled(store) {
        block_on(forked_under_its_holder(&store(), true));
    }
    fn a_cancelled_suspect_needs_no_room_and_no_recording_to_end(store) {
        block_on(cancelled_without_room(store()));
    }
    fn a_database_of_a_newer_version_is_refused_and_left_untouched(store) {
        block_on(newer_version(store()));
    }
}

//! Transactional steps: what a step writes and its record are committed together, or not at all.

use lobster_core::{
    Ctx, Lobster, PgTx, Result, RunFailed, Settings, SqliteTx, StepCtx, StepErrorExt, StepFailed, StepFailedKind, step,
    store::memory::MemoryTx, task,
};
use lobster_tests::{
    Place,
    flaky::{Flaky, Mood},
    happen, happened, tiers,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Serialize, Deserialize)]
struct Transfer {
    world: String,
    from: i64,
    to: i64,
    cents: i64,
}

impl Transfer {
    /// Each transaction locks accounts in the same order.
    fn in_order(&self) -> [(i64, i64); 2] {
        let (from, to) = ((self.from, -self.cents), (self.to, self.cents));
        if self.from < self.to { [from, to] } else { [to, from] }
    }
}

const MOVE: &str = "UPDATE accounts SET cents = cents + $1 WHERE id = $2";

#[step(transactional)]
async fn book_sqlite(_ctx: &StepCtx, tx: &mut SqliteTx, order: &Transfer) -> Result<i64> {
    happen(&order.world, "body");
    for (account, cents) in order.in_order() {
        sqlx::query(MOVE).bind(cents).bind(account).execute(&mut **tx).await?;
    }
    Ok(order.cents)
}

#[step(transactional)]
async fn book_postgres(_ctx: &StepCtx, tx: &mut PgTx, order: &Transfer) -> Result<i64> {
    happen(&order.world, "body");
    for (account, cents) in order.in_order() {
        sqlx::query(MOVE).bind(cents).bind(account).persistent(false).execute(&mut **tx).await?;
    }
    Ok(order.cents)
}

#[step(transactional)]
async fn book_memory(_ctx: &StepCtx, tx: &mut MemoryTx, order: &Transfer) -> Result<i64> {
    happen(&order.world, "body");
    let (from, to) = (order.from.to_string(), order.to.to_string());
    tx.set(&from, tx.get(&from) - order.cents);
    tx.set(&to, tx.get(&to) + order.cents);
    Ok(order.cents)
}

#[step]
async fn quote(_ctx: &StepCtx, cents: i64) -> Result<i64> {
    Ok(cents)
}

/// Which store, and so which step.
async fn book(ctx: &Ctx, order: &Transfer) -> Result<i64, StepFailed> {
    match order.world.split(' ').next() {
        Some("sqlite") => book_sqlite(ctx, order).await,
        Some("postgres") => book_postgres(ctx, order).await,
        _ => book_memory(ctx, order).await,
    }
}

#[task]
async fn transfer(ctx: Ctx, order: Transfer) -> Result<i64> {
    let before = quote(&ctx, order.cents).await?;
    let booked = book(&ctx, &order).await?;
    let after = quote(&ctx, booked).await?;
    Ok(before + booked + after)
}

/// A database with accounts 1 to 3 that hold nothing, and how to look at them.
struct Bank {
    place: Place,
    kind: &'static str,
}

impl Bank {
    async fn sqlite() -> Self {
        let bank = Self { place: Place::sqlite(), kind: "sqlite" };
        bank.run("CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL CHECK (cents > -1000))").await;
        bank.run("INSERT INTO accounts VALUES (1, 0), (2, 0), (3, 0)").await;
        bank.run("CREATE TABLE audits (account INTEGER REFERENCES accounts DEFERRABLE INITIALLY DEFERRED)").await;
        bank
    }

    async fn postgres() -> Self {
        let bank = Self { place: Place::postgres(), kind: "postgres" };
        bank.run("CREATE TABLE accounts (id INT8 PRIMARY KEY, cents INT8 NOT NULL CHECK (cents > -1000))").await;
        bank.run("INSERT INTO accounts VALUES (1, 0), (2, 0), (3, 0)").await;
        bank.run("CREATE TABLE audits (account INT8 REFERENCES accounts DEFERRABLE INITIALLY DEFERRED)").await;
        bank
    }

    /// The file or the server's database, without the parameters that are for the engine.
    fn url(&self) -> &str {
        self.place.database()
    }

    async fn run(&self, text: &'static str) {
        use sqlx::{ConnectOptions, Executor};
        if self.kind == "sqlite" {
            let options: sqlx::sqlite::SqliteConnectOptions = self.url().parse().unwrap();
            options.create_if_missing(true).connect().await.unwrap().execute(text).await.unwrap();
        } else {
            let options: sqlx::postgres::PgConnectOptions = self.url().parse().unwrap();
            options.connect().await.unwrap().execute(text).await.unwrap();
        }
    }

    async fn cents(&self) -> Vec<i64> {
        use sqlx::ConnectOptions;
        let text = "SELECT cents FROM accounts ORDER BY id";
        if self.kind == "sqlite" {
            let options: sqlx::sqlite::SqliteConnectOptions = self.url().parse().unwrap();
            sqlx::query_scalar(text).fetch_all(&mut options.connect().await.unwrap()).await.unwrap()
        } else {
            let options: sqlx::postgres::PgConnectOptions = self.url().parse().unwrap();
            sqlx::query_scalar(text).fetch_all(&mut options.connect().await.unwrap()).await.unwrap()
        }
    }
}

async fn transfers_are_applied_once_each(bank: Bank) {
    let lobster = bank.place.open().task(transfer).start().await.unwrap();
    let world = format!("{} once {}", bank.kind, lobster_core::Ctx::detached().run_id());
    let orders = (0..60i64).map(|n| {
        let order = Transfer { world: world.clone(), from: 1 + n % 3, to: 1 + (n + 1) % 3, cents: 1 + n % 7 };
        (format!("{n}").into(), order)
    });
    let runs = lobster.submit_all(transfer, orders).await.unwrap();
    let mut expected = vec![0i64; 3];
    for (n, run) in (0..60i64).zip(&runs) {
        let cents = 1 + n % 7;
        assert_eq!(run.outcome().await.unwrap(), 3 * cents);
        expected[usize::try_from(n % 3).unwrap()] -= cents;
        expected[usize::try_from((n + 1) % 3).unwrap()] += cents;
    }
    assert_eq!(bank.cents().await, expected);
    assert_eq!(bank.cents().await.iter().sum::<i64>(), 0);
    assert_eq!(happened(&world, "body"), 60);
    let view = lobster.show(runs[0].id()).await.unwrap();
    assert_eq!(view.steps.len(), 3, "{view:?}");
    lobster.shutdown(Duration::from_secs(10)).await;
    // And a resume shows what is recorded.
    let lobster = bank.place.open().task(transfer).start().await.unwrap();
    let again = Transfer { world: world.clone(), from: 1, to: 2, cents: 1 };
    assert_eq!(lobster.submit(transfer, again).key("0").await.unwrap().outcome().await.unwrap(), 3);
    assert_eq!(happened(&world, "body"), 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_are_applied_once_each_on_sqlite() {
    transfers_are_applied_once_each(Bank::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_are_applied_once_each_on_postgres() {
    transfers_are_applied_once_each(Bank::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_transaction_of_another_store_is_refused_before_anything_runs() {
    let place = Place::memory();
    let lobster = place.open().task(transfer).start().await.unwrap();
    let order = Transfer { world: "sqlite wrong".into(), from: 1, to: 2, cents: 1 };
    let failed = lobster.submit(transfer, order).await.unwrap().outcome().await.unwrap_err();
    let RunFailed::Failed(failed) = failed else { panic!("{failed:?}") };
    assert_eq!((failed.kind(), failed.code()), (StepFailedKind::Refused, "WrongStore"));
    assert!(failed.message().contains("SqliteTx"), "{failed}");
    assert_eq!(happened("sqlite wrong", "body"), 0);
    let order = Transfer { world: "memory right".into(), from: 1, to: 2, cents: 5 };
    assert_eq!(lobster.submit(transfer, order).await.unwrap().outcome().await.unwrap(), 15);
}

#[derive(Clone, Serialize, Deserialize)]
struct Bad {
    world: String,
    how: String,
}

async fn misbehave(ctx: &StepCtx, how: &Bad) -> Result<bool> {
    happen(&how.world, "body");
    match (how.how.as_str(), ctx.attempt()) {
        ("error", 1 | 2) => Err("not now")?,
        ("panic", 1) => panic!("boom"),
        ("slow", 1) => tokio::time::sleep(Duration::from_secs(60)).await,
        ("fatal", _) => Err("never").fatal()?,
        _ => {}
    }
    Ok(how.how == "commit")
}

#[step(transactional, max_duration = 300ms, retry(attempts = 3, first = 1ms))]
async fn bad_sqlite(ctx: &StepCtx, tx: &mut SqliteTx, how: &Bad) -> Result<u32> {
    sqlx::query(MOVE).bind(1).bind(1).execute(&mut **tx).await?;
    if misbehave(ctx, how).await? {
        sqlx::query("COMMIT").execute(&mut **tx).await?;
    }
    if how.how == "deferred" && ctx.attempt() == 1 {
        sqlx::query("INSERT INTO audits VALUES (99)").execute(&mut **tx).await?;
    }
    if how.how == "constraint" && ctx.attempt() == 1 {
        sqlx::query(MOVE).bind(-5000).bind(1).execute(&mut **tx).await?;
    }
    Ok(ctx.attempt())
}

#[step(transactional, max_duration = 300ms, retry(attempts = 3, first = 1ms))]
async fn bad_postgres(ctx: &StepCtx, tx: &mut PgTx, how: &Bad) -> Result<u32> {
    sqlx::query(MOVE).bind(1i64).bind(1i64).persistent(false).execute(&mut **tx).await?;
    if misbehave(ctx, how).await? {
        sqlx::query("COMMIT").persistent(false).execute(&mut **tx).await?;
    }
    if how.how == "deferred" && ctx.attempt() == 1 {
        sqlx::query("INSERT INTO audits VALUES (99)").persistent(false).execute(&mut **tx).await?;
    }
    if how.how == "constraint" && ctx.attempt() == 1 {
        // Swallowed: the transaction is spoilt all the same.
        sqlx::query(MOVE).bind(-5000i64).bind(1i64).persistent(false).execute(&mut **tx).await.ok();
    }
    Ok(ctx.attempt())
}

#[task]
async fn bad(ctx: Ctx, how: Bad) -> Result<u32> {
    Ok(match how.world.starts_with("sqlite") {
        true => bad_sqlite(&ctx, &how).await?,
        false => bad_postgres(&ctx, &how).await?,
    })
}

async fn what_fails_is_undone_and_tried_again(bank: Bank) {
    let lobster = bank.place.open().task(bad).start().await.unwrap();
    let world = format!("{} bad {}", bank.kind, Ctx::detached().run_id());
    let outcome = async |how: &str| {
        let run = lobster.submit(bad, Bad { world: format!("{world} {how}"), how: how.into() }).await.unwrap();
        run.outcome().await
    };
    let mut applied = 0;
    for (how, attempts) in [("fine", 1), ("error", 3), ("panic", 2), ("slow", 2), ("constraint", 2), ("deferred", 2)] {
        assert_eq!(outcome(how).await.unwrap_or_else(|failed| panic!("{how}: {failed}")), attempts, "{how}");
        applied += 1;
        assert_eq!(bank.cents().await, [applied, 0, 0], "{how}");
        assert_eq!(happened(&format!("{world} {how}"), "body"), u64::from(attempts), "{how}");
    }
    let RunFailed::Failed(failed) = outcome("fatal").await.unwrap_err() else { panic!("the step failed") };
    assert_eq!((failed.kind(), failed.message()), (StepFailedKind::Fatal, "never"));
    assert_eq!(bank.cents().await, [applied, 0, 0], "what a failed step wrote is undone");
    // Whoever commits by himself has committed: but nothing says that the step is done. Many at once: behind a pooler, what comes after
    // each COMMIT then goes to sessions of others.
    let mut runs = Vec::new();
    for _ in 0..16 {
        runs.push(lobster.submit(bad, Bad { world: format!("{world} commit"), how: "commit".into() }).await.unwrap());
    }
    for run in runs {
        let RunFailed::Failed(failed) = run.outcome().await.unwrap_err() else { panic!("the step failed") };
        assert!(failed.message().contains("ended its transaction by itself"), "{failed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_is_undone_and_tried_again_on_sqlite() {
    what_fails_is_undone_and_tried_again(Bank::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_is_undone_and_tried_again_on_postgres() {
    what_fails_is_undone_and_tried_again(Bank::postgres().await).await;
}

#[step(irreversible, in_doubt = hold)]
async fn call(_ctx: &StepCtx, world: &str) -> Result<u64> {
    tokio::task::yield_now().await;
    Ok(happen(world, "call"))
}

#[task]
async fn mixed(ctx: Ctx, world: String) -> Result<i64> {
    let mut sum = 0;
    for n in 0..5 {
        let order = Transfer { world: world.clone(), from: 1, to: 2, cents: n };
        let (quoted, booked, called) = tokio::join!(quote(&ctx, n), book(&ctx, &order), call(&ctx, &world));
        called?;
        sum += quoted? + booked?;
    }
    Ok(sum)
}

#[step]
async fn count(_ctx: &StepCtx, world: &str, n: u32) -> Result<u32> {
    // Others end while a transaction is under way.
    tokio::task::yield_now().await;
    happen(world, "count");
    Ok(n)
}

/// Two blocks of several steps each: what each call of `count` is told depends on the order in which results are shown.
#[task]
async fn blocks(ctx: Ctx, world: String) -> Result<Vec<u32>> {
    let order = Transfer { world: world.clone(), from: 1, to: 2, cents: 1 };
    let booked = async {
        let mut told = Vec::new();
        for n in 0..4 {
            book(&ctx, &order).await?;
            told.push(count(&ctx, &world, 100 + n).await?);
        }
        Ok::<_, StepFailed>(told)
    };
    let counted = async {
        let mut told = Vec::new();
        for n in 0..12 {
            told.push(count(&ctx, &world, n).await?);
        }
        Ok::<_, StepFailed>(told)
    };
    let (booked, counted) = tokio::join!(booked, counted);
    let (mut all, counted) = (booked?, counted?);
    all.extend(counted);
    if happen(&world, "end") == 1 {
        // Once more, from the recording.
        pause(&ctx, &world).await?;
    }
    Ok(all)
}

#[step(retry(attempts = 2, first = 5s, jitter = none))]
async fn pause(ctx: &StepCtx, world: &str) -> Result<()> {
    happen(world, "pause");
    if ctx.attempt() == 1 { Err("later")? } else { Ok(()) }
}

async fn results_are_shown_in_their_order_on_a_resume(bank: Bank) {
    let world = format!("{} blocks {}", bank.kind, Ctx::detached().run_id());
    let lobster = bank.place.open().task(blocks).start().await.unwrap();
    let run = lobster.submit(blocks, world.clone()).key("blocks").await.unwrap().id();
    lobster_tests::until(&world, "pause", 1).await;
    lobster.shutdown(Duration::from_secs(10)).await;
    let lobster = bank.place.open().task(blocks).start().await.unwrap();
    // The body runs again, and every step gives what is recorded: to the call that it was recorded for.
    let told = lobster.run(blocks, run).outcome().await.unwrap();
    let expected: Vec<u32> = (100..104).chain(0..12).collect();
    assert_eq!(told, expected);
    assert_eq!((happened(&world, "count"), happened(&world, "body"), happened(&world, "end")), (16, 4, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_shown_in_their_order_on_a_resume_on_sqlite() {
    results_are_shown_in_their_order_on_a_resume(Bank::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_shown_in_their_order_on_a_resume_on_postgres() {
    results_are_shown_in_their_order_on_a_resume(Bank::postgres().await).await;
}

async fn they_run_beside_other_steps(bank: Bank) {
    let lobster = bank.place.open().task(mixed).start().await.unwrap();
    let world = format!("{} mixed {}", bank.kind, Ctx::detached().run_id());
    let runs: Vec<_> = futures_of(&lobster, &world).await;
    for run in runs {
        assert_eq!(run.outcome().await.unwrap(), 20);
    }
    assert_eq!((happened(&world, "body"), happened(&world, "call")), (50, 50));
    assert_eq!(bank.cents().await[..2], [-100, 100]);
}

async fn futures_of(lobster: &Lobster, world: &str) -> Vec<lobster_core::Handle<mixed>> {
    let all = (0..10).map(|n| (format!("{n}").into(), world.to_owned()));
    lobster.submit_all(mixed, all).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn they_run_beside_other_steps_on_sqlite() {
    they_run_beside_other_steps(Bank::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_run_beside_other_steps_on_postgres() {
    they_run_beside_other_steps(Bank::postgres().await).await;
}

#[task]
async fn tells(ctx: Ctx, order: Transfer) -> Result<i64> {
    let booked = book(&ctx, &order).await;
    happen(&order.world, "shown");
    Ok(booked?)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_body_is_shown_what_it_booked_after_a_cancel_that_was_told_with_it() {
    let place = Place::memory();
    let theirs = tiers(&place).await;
    let (flaky, ours) = Flaky::wrap(&theirs);
    let lobster = Lobster::open("memory:").tiers(ours).settings(Settings::test()).task(tells).start().await.unwrap();
    let other = Lobster::open("memory:").tiers(theirs).settings(Settings::test()).connect().await.unwrap();
    flaky.set(Mood::Deaf);
    let order = Transfer { world: "memory deaf".into(), from: 1, to: 2, cents: 7 };
    let run = lobster.submit(tells, order).await.unwrap();
    // It is booked, and nobody knows.
    flaky.until_struck(1).await;
    other.cancel(run.id()).await.unwrap();
    flaky.set(Mood::Well);
    assert!(matches!(run.outcome().await, Err(RunFailed::Cancelled(_))));
    assert_eq!((happened("memory deaf", "body"), happened("memory deaf", "shown")), (1, 0));
    let steps = lobster.show(run.id()).await.unwrap().steps;
    assert_eq!(steps.len(), 1, "what was booked is recorded: {steps:?}");
    lobster.shutdown(Duration::from_secs(5)).await;
}

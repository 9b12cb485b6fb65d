//! Kills in transactional steps: what was booked was recorded, and what was recorded was booked, once each; and so was what follows.
//!
//! Rule: the bank's own rows are the judge; the engine is not asked.

use lobster_tests::{
    Place,
    process::{Bound, go_on, stopped},
    world::World,
};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, postgres::PgConnectOptions, sqlite::SqliteConnectOptions};
use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

/// Runs of a scenario with one death; four bookings each.
const RUNS: i64 = 6;

/// Before the transaction, in it, and after it: sent, begun, written, followed by a run, about to be recorded, committed.
const POINTS: [&str; 6] = ["T1", "T2", "T5", "T6", "T3", "T4"];

struct Bank {
    place: Place,
    world: World,
    address: String,
}

impl Bank {
    async fn new(place: Place) -> Self {
        let world = World::default();
        let address = world.listen().to_string();
        let bank = Self { place, world, address };
        bank.ask("CREATE TABLE bookings (number BIGINT)").await;
        bank
    }

    /// Where its rows are, without what is for the engine.
    fn url(&self) -> &str {
        self.place.database()
    }

    /// Starts a worker, with this in its environment.
    fn worker(&self, runs: i64, environment: &[(&str, &str)]) -> Bound {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command.args([self.place.url(), &self.address, "bookings", &runs.to_string()]).stdout(Stdio::null());
        Bound(command.env_remove("LOBSTER_CRASH").envs(environment.iter().copied()).spawn().unwrap())
    }

    /// Runs a worker. Did it die at its point?
    fn work(&self, runs: i64, crash: Option<&str>) -> bool {
        let environment: Vec<_> = crash.map(|point| ("LOBSTER_CRASH", point)).into_iter().collect();
        let status = self.worker(runs, &environment).wait().unwrap();
        assert!(status.success() || status.signal() == Some(9), "{status:?}");
        status.signal() == Some(9)
    }

    async fn ask(&self, text: &'static str) {
        if self.url().starts_with("sqlite:") {
            let options: SqliteConnectOptions = self.url().parse().unwrap();
            options.create_if_missing(true).connect().await.unwrap().execute(text).await.unwrap();
        } else {
            let options: PgConnectOptions = self.url().parse().unwrap();
            options.connect().await.unwrap().execute(text).await.unwrap();
        }
    }

    /// How often each booking was made, and how often its notice was submitted.
    async fn booked(&self) -> BTreeMap<i64, (i64, i64)> {
        let from = |table| {
            format!(
                "SELECT number, CAST(max(booked) AS BIGINT), CAST(max(followed) AS BIGINT) FROM \
                 (SELECT number, count(*) AS booked, 0 AS followed FROM bookings GROUP BY number UNION ALL \
                 SELECT CAST(substr(key, 8) AS BIGINT), 0, count(*) FROM {table} WHERE task = 'notice' GROUP BY key) AS found \
                 GROUP BY number"
            )
        };
        let rows: Vec<(i64, i64, i64)> = if self.url().starts_with("sqlite:") {
            let options: SqliteConnectOptions = self.url().parse().unwrap();
            let text = AssertSqlSafe(from("lobster_runs"));
            sqlx::query_as(text).fetch_all(&mut options.connect().await.unwrap()).await.unwrap()
        } else {
            let options: PgConnectOptions = self.url().parse().unwrap();
            let text = AssertSqlSafe(from("lobster.runs"));
            sqlx::query_as(text).fetch_all(&mut options.connect().await.unwrap()).await.unwrap()
        };
        rows.into_iter().map(|(number, booked, followed)| (number, (booked, followed))).collect()
    }
}

async fn every_booking_is_made_once(place: fn() -> Place) {
    let passes: u32 = std::env::var("LOBSTER_PASSES").map_or(5, |passes| passes.parse().unwrap());
    // Enough for each of them to die: so many transactions are done before it does, and at most ten that were on their way.
    let runs = i64::from(passes * (passes + 1) / 2 + 10 * passes) / 4 + RUNS;
    for point in POINTS {
        let bank = Bank::new(place()).await;
        for pass in 1..=passes {
            let before = bank.world.events().len();
            assert!(bank.work(runs, Some(&format!("{point}:{pass}"))), "{point} was not passed {pass} times");
            let booked = bank.booked().await;
            assert!(booked.values().all(|times| *times == (1, 1)), "{point}:{pass} {booked:?}");
            assert!(bank.world.events().len() > before || point == "T1", "{point}:{pass} something begins before it");
        }
        bank.work(runs, None);
        assert_eq!(bank.booked().await, once(0..4 * runs), "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_booking_is_made_once_on_sqlite() {
    every_booking_is_made_once(Place::sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_booking_is_made_once_on_postgres() {
    every_booking_is_made_once(Place::postgres).await;
}

/// Bookings that are made, each once, and followed by a notice.
fn once(numbers: std::ops::Range<i64>) -> BTreeMap<i64, (i64, i64)> {
    numbers.map(|number| (number, (1, 1))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_process_is_frozen_within_a_transaction_of_postgres_other_runs_go_on() {
    let bank = Bank::new(Place::postgres()).await;
    // It has booked, and holds the row of its run; its lease lives.
    let mut frozen = bank.worker(1, &[("LOBSTER_CRASH", "T3:1:stop"), ("LONG_LEASE", "1")]);
    assert!(stopped(&frozen), "T3 was never passed");
    let mut other = bank.worker(3, &[]);
    while bank.booked().await != once(4..12) {}
    go_on(&frozen);
    assert!(frozen.wait().unwrap().success() && other.wait().unwrap().success());
    assert_eq!(bank.booked().await, once(0..12));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_frozen_within_a_transaction_of_postgres_past_its_lease_commits_nothing() {
    for point in ["T2:2:stop", "T3:2:stop", "T6:3:stop"] {
        let bank = Bank::new(Place::postgres()).await;
        let mut frozen = bank.worker(RUNS, &[("LOBSTER_CRASH", point)]);
        assert!(stopped(&frozen), "{point} was never passed");
        // Its session is ended, and its runs move, the one in the transaction too.
        bank.work(RUNS, None);
        assert_eq!(bank.booked().await, once(0..4 * RUNS), "{point}");
        go_on(&frozen);
        assert!(frozen.wait().unwrap().success(), "{point}");
        assert_eq!(bank.booked().await, once(0..4 * RUNS), "{point}");
    }
}

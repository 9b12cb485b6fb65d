//! Kills in transactional steps: what was booked was recorded, and what was recorded was booked, once each; and so was what follows.
//!
//! Rule: the bank's own rows are the judge; the engine is not asked.

use lobster_tests::{Place, world::World};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, postgres::PgConnectOptions, sqlite::SqliteConnectOptions};
use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

/// Runs of one scenario; four bookings each.
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

    /// Runs a worker. Did it die at its point?
    fn work(&self, crash: Option<&str>) -> bool {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command.args([self.place.url(), &self.address, "bookings", &RUNS.to_string()]).stdout(Stdio::null());
        match crash {
            Some(point) => command.env("LOBSTER_CRASH", point),
            None => command.env_remove("LOBSTER_CRASH"),
        };
        let status = command.status().unwrap();
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
    let mut kills = 0;
    for point in POINTS {
        let bank = Bank::new(place()).await;
        for pass in 1..=passes {
            let before = bank.world.events().len();
            let died = bank.work(Some(&format!("{point}:{pass}")));
            kills += u32::from(died);
            let booked = bank.booked().await;
            assert!(booked.values().all(|times| *times == (1, 1)), "{point}:{pass} {booked:?}");
            if !died {
                break;
            }
            assert!(bank.world.events().len() > before || point == "T1", "{point}:{pass} something begins before it");
        }
        bank.work(None);
        let all: BTreeMap<i64, (i64, i64)> = (0..4 * RUNS).map(|number| (number, (1, 1))).collect();
        assert_eq!(bank.booked().await, all, "{point}");
    }
    assert!(kills >= passes.min(2) * u32::try_from(POINTS.len()).unwrap(), "{kills} kills are too few to show anything");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_booking_is_made_once_on_sqlite() {
    every_booking_is_made_once(Place::sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_booking_is_made_once_on_postgres() {
    every_booking_is_made_once(Place::postgres).await;
}

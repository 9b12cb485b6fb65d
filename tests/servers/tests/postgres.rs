//! A private server does what its handle says, and what it acknowledged stays.

#![allow(missing_docs, reason = "tests are named as sentences")]
#![allow(clippy::disallowed_methods, reason = "tests are applications: they may spawn")]

use lobster_servers::{
    Error,
    pgbouncer::PgBouncer,
    postgres::{Durability, Postgres},
    psql, shared,
};
use std::{sync::mpsc, time::Duration};

fn start(durability: Durability) -> Postgres {
    Postgres::start(durability).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn acknowledged_rows_survive_kills_and_stops() {
    let server = start(Durability::Full);
    let sql = |text: &str| server.sql("postgres", text).unwrap_or_else(|error| panic!("{error}"));
    sql("CREATE TABLE t (n INT); INSERT INTO t VALUES (1)");
    // A session in the middle of its work.
    let url = server.url();
    let busy = std::thread::spawn(move || psql::sql(&url, "INSERT INTO t VALUES (7) RETURNING pg_sleep(1000)"));
    while sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") != "1" {}
    server.kill();
    assert!(busy.join().is_ok_and(|answer| answer.is_err()));
    assert!(server.sql("postgres", "SELECT 1").is_err(), "a killed server answers");
    server.start_again();
    sql("INSERT INTO t VALUES (2)");
    server.stop();
    server.start_again();
    assert_eq!(sql("SELECT n FROM t ORDER BY n"), "1\n2");
    assert_eq!(sql("SHOW fsync; SHOW synchronous_commit; SHOW data_checksums"), "on\non\non");
    assert!(server.log().contains("not properly shut down"), "{}", server.log());
}

#[test]
fn a_calendar_of_its_own_is_set_while_the_server_runs() {
    let server = Postgres::start_with_calendar(Durability::Fast).unwrap_or_else(|error| panic!("{error}"));
    let sql = |text: &str| server.sql("postgres", text).unwrap_or_else(|error| panic!("{error}"));
    let ahead = || {
        let host = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let theirs: u64 = sql("SELECT extract(epoch FROM clock_timestamp())::int8").parse().unwrap_or(0);
        i64::try_from(theirs).unwrap_or(0) - i64::try_from(host).unwrap_or(0)
    };
    let near = |ahead: i64, by: i64| (ahead - by).abs() < 20;
    assert!(near(ahead(), 0), "{}", ahead());
    for by in [60, -60, 0] {
        server.set_calendar(by);
        assert!(near(ahead(), by), "{} for {by}", ahead());
    }
}

#[test]
fn a_paused_server_answers_when_it_is_resumed() {
    let server = start(Durability::Fast);
    let url = server.url();
    server.pause();
    let (told, answer) = mpsc::channel();
    let asking = std::thread::spawn(move || told.send(psql::sql(&url, "SELECT 1")));
    assert!(answer.recv_timeout(Duration::from_millis(300)).is_err(), "a paused server answers");
    server.resume();
    assert_eq!(answer.recv_timeout(Duration::from_secs(60)).ok().and_then(Result::ok).as_deref(), Some("1"));
    assert!(asking.join().is_ok());
    // A paused one can be killed, and removed.
    server.pause();
    server.kill();
    server.start_again();
    server.set("statement_timeout", "50ms");
    assert_eq!(server.sql("postgres", "SHOW statement_timeout").ok().as_deref(), Some("50ms"));
    server.pause();
}

#[test]
fn a_standby_takes_over_with_all_that_was_acknowledged() {
    let primary = start(Durability::Fast);
    let standby = primary.standby(true);
    let of = |server: &Postgres, text: &str| server.sql("postgres", text).unwrap_or_else(|error| panic!("{error}"));
    of(&primary, "CREATE TABLE t (n INT); INSERT INTO t VALUES (1)");
    assert!(standby.sql("postgres", "INSERT INTO t VALUES (2)").is_err(), "a standby accepts writes");
    primary.kill();
    standby.promote();
    of(&standby, "INSERT INTO t VALUES (2)");
    assert_eq!(of(&standby, "SELECT n FROM t ORDER BY n"), "1\n2");
}

#[test]
fn a_certificate_is_good_for_this_server() {
    let server = Postgres::start_with_tls(Durability::Fast).unwrap_or_else(|error| panic!("{error}"));
    let ca = server.ca().unwrap_or_else(|| panic!("no certificate")).display();
    let trusting = format!("{}?sslmode=verify-full&sslrootcert={ca}", server.url());
    let encrypted = psql::sql(&trusting, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
    assert_eq!(encrypted.unwrap_or_else(|error| panic!("{error}")), "t");
    assert!(psql::sql(&format!("{}?sslmode=disable", server.url()), "SELECT 1").is_err(), "it speaks without TLS");
}

#[test]
fn a_pooler_lends_sessions_for_transactions() {
    let server = start(Durability::Fast);
    let pooler = PgBouncer::start(&server).unwrap_or_else(|error| panic!("{error}"));
    let url = pooler.url("postgres");
    let pid = || psql::sql(&url, "SELECT pg_backend_pid()").unwrap_or_else(|error| panic!("{error}\n{}", pooler.log()));
    assert_eq!(pid(), pid(), "two clients one after the other get the same session");
    pooler.kill();
    assert!(psql::sql(&url, "SELECT 1").is_err(), "a killed pooler answers");
}

#[test]
fn an_error_is_told_in_the_words_of_the_server() {
    let server = start(Durability::Fast);
    assert_eq!(server.sql("postgres", "SHOW fsync").ok().as_deref(), Some("off"));
    match server.sql("postgres", "SELECT 1/0") {
        Err(Error::Failed(why)) => assert!(why.contains("division by zero"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_database_of_the_shared_server_is_empty() {
    let (one, two) = (shared::postgres(), shared::postgres());
    psql::sql(&one, "CREATE TABLE t (n INT)").unwrap_or_else(|error| panic!("{error}"));
    assert!(psql::sql(&two, "SELECT * FROM t").is_err());
}

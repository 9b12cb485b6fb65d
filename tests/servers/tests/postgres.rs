//! A private server does what its handle says, and what it acknowledged stays.

#![allow(missing_docs, reason = "tests are named as sentences")]

use lobster_servers::{
    Error,
    postgres::{Durability, Postgres},
    psql, shared,
};

fn start(durability: Durability) -> Postgres {
    Postgres::start(durability).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn acknowledged_rows_survive_kills_and_stops() {
    let server = start(Durability::Full);
    let url = server.fresh_database();
    let sql = |text: &str| psql::sql(&url, text).unwrap_or_else(|error| panic!("{error}"));
    sql("CREATE TABLE t (n INT)");
    for n in 1..=3 {
        sql(&format!("INSERT INTO t VALUES ({n})"));
        server.kill();
        assert!(psql::sql(&url, "SELECT 1").is_err(), "a killed server answers");
        server.start_again();
    }
    server.stop();
    server.start_again();
    assert_eq!(sql("SELECT n FROM t ORDER BY n"), "1\n2\n3");
    assert_eq!(sql("SHOW fsync; SHOW synchronous_commit; SHOW data_checksums"), "on\non\non");
    assert!(server.log().contains("not properly shut down"), "{}", server.log());
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

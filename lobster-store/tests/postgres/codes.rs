//! Errors that a server raises by itself, each provoked for real: the call changed nothing, says so, and the same again goes through.

use crate::kit::*;
use lobster_servers::{
    postgres::{Durability, Postgres},
    shared,
};
use lobster_store::{
    Tiers,
    contract::{Answer, Batch, Failed, Grant, Incarnation},
};
use tokio::task::JoinHandle;

const ME: u64 = 1;

type Appending = JoinHandle<Result<Vec<Answer>, Failed>>;

/// A batch of one row of each of these runs, which waits for their locks.
fn patient(tiers: &Tiers, grants: &[Grant], seq: u64) -> Appending {
    let offers = grants.iter().map(|grant| offer(grant, seq)).collect();
    let batch = Batch { patient: Some(LONG), ..batch(incarnation(ME), true, offers) };
    let tiers = tiers.clone();
    tokio::spawn(async move { tiers.journal.append(batch).await })
}

/// A person who begins a transaction and locks the row of a run.
async fn lock(person: &mut Session, grant: &Grant) {
    person.tell(&format!("BEGIN; SELECT 1 FROM lobster.runs WHERE id = '{}' FOR UPDATE", grant.run)).await;
}

/// Whoever waits for a lock in this database, and is no person.
const WAITS: &str =
    "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name LIKE 'lobster %'";

async fn until_it_waits(eye: &mut Session) {
    eye.until(&format!("SELECT EXISTS (SELECT 1 {WAITS})")).await;
}

async fn refused(appending: Appending, code: &str) {
    let failed = failed(soon(appending).await.expect("it does not panic"));
    assert!(matches!(&failed, Failed::Unavailable(why) if why.contains(code)), "{failed:?}");
}

/// Ends the sessions of processes, so that they begin new ones. A pooler may have one that nobody has had yet.
async fn end_sessions(person: &mut Session) {
    let theirs = "FROM pg_stat_activity WHERE datname = current_database() AND usename <> current_user";
    person.tell(&format!("SELECT pg_terminate_backend(pid) {theirs}")).await;
}

/// Asks until the store is there again: batches have connections of their own.
async fn goes_on(tiers: &Tiers, me: Incarnation, grant: &Grant, seq: u64) {
    let asks = async {
        while let Err(failed) = tiers.journal.attend(me).await {
            assert!(failed.is_transient(), "{failed}");
        }
        loop {
            match tiers.journal.append(batch(me, true, vec![offer(grant, seq)])).await {
                Ok(answers) => match &answers[0] {
                    Answer::Seen(seen) => return assert!(seen.mine && seen.tail == seq, "{seen:?}"),
                    Answer::Busy => {}
                },
                Err(failed) => assert!(failed.is_transient(), "{failed}"),
            }
        }
    };
    soon(asks).await;
}

#[test]
fn a_serialization_failure_changes_nothing_and_is_tried_again() {
    let url = shared::postgres();
    block_on(async {
        let process = process(&way(&url)).await;
        let (me, grants) = (incarnation(ME), owner(&process.tiers, incarnation(ME), 1).await);
        let (mut person, mut eye) = (Session::of(&url).await, Session::of(&url).await);
        // Set behind the back of a process that has looked at it: its next sessions have it.
        person.tell(&format!("ALTER DATABASE {} SET default_transaction_isolation = 'repeatable read'", database(&url))).await;
        end_sessions(&mut person).await;
        goes_on(&process.tiers, me, &grants[0], 1).await;
        person.tell(&format!("BEGIN; UPDATE lobster.runs SET wake = wake WHERE id = '{}'", grants[0].run)).await;
        let appending = patient(&process.tiers, &grants, 2);
        until_it_waits(&mut eye).await;
        person.tell("COMMIT").await;
        refused(appending, "40001").await;
        assert_eq!(eye.number("SELECT tail FROM lobster.runs").await, 1);
        // Whoever is told of an error is told before the server has let go of the row.
        goes_on(&process.tiers, me, &grants[0], 2).await;
    });
}

#[test]
fn a_deadlock_with_a_persons_transaction_costs_one_of_both_and_is_tried_again() {
    let url = shared::postgres();
    block_on(async {
        let process = process(&way(&url)).await;
        let grants = owner(&process.tiers, incarnation(ME), 2).await;
        let (mut person, mut eye) = (Session::of(&url).await, Session::of(&url).await);
        for seq in 1.. {
            lock(&mut person, &grants[1]).await;
            let appending = patient(&process.tiers, &grants, seq);
            until_it_waits(&mut eye).await;
            let crossed = format!("SELECT 1 FROM lobster.runs WHERE id = '{}' FOR UPDATE", grants[0].run);
            match person.try_tell(&crossed).await {
                Ok(()) => {
                    refused(appending, "40P01").await;
                    assert_eq!(eye.number("SELECT max(tail) FROM lobster.runs").await, seq as i64 - 1);
                    person.tell("COMMIT").await;
                    for grant in &grants {
                        goes_on(&process.tiers, incarnation(ME), grant, seq).await;
                    }
                    break;
                }
                // The server chose the person: then once more.
                Err(error) => {
                    assert!(error.to_string().contains("deadlock"), "{error}");
                    person.tell("ROLLBACK").await;
                    let answers = soon(appending).await.expect("it does not panic").expect("an append is answered");
                    assert!(answers.iter().all(|answer| matches!(answer, Answer::Seen(seen) if seen.rows == 1)), "{answers:?}");
                }
            }
        }
    });
}

/// Without a pooler: that one ends a session whose transaction has failed.
#[test]
fn a_statement_that_a_person_cancels_changes_nothing_and_one_whose_session_is_ended_is_unknown() {
    let url = shared::postgres();
    block_on(async {
        let process = process(&with(&worker(&url), "lobster_connections=1")).await;
        let grants = owner(&process.tiers, incarnation(ME), 1).await;
        let (mut person, mut eye) = (Session::of(&url).await, Session::of(&url).await);
        lock(&mut person, &grants[0]).await;
        let appending = patient(&process.tiers, &grants, 1);
        until_it_waits(&mut eye).await;
        let session = eye.ask(&format!("SELECT pid {WAITS}")).await;
        eye.tell(&format!("SELECT pg_cancel_backend({session})")).await;
        refused(appending, "57014").await;

        // The session is as good as before.
        let appending = patient(&process.tiers, &grants, 1);
        until_it_waits(&mut eye).await;
        assert_eq!(eye.ask(&format!("SELECT pid {WAITS}")).await, session);
        eye.tell(&format!("SELECT pg_terminate_backend({session})")).await;
        let unknown = failed(soon(appending).await.expect("it does not panic"));
        assert!(matches!(&unknown, Failed::Unknown(why) if why.contains("57P01")), "{unknown:?}");
        person.tell("COMMIT").await;
        goes_on(&process.tiers, incarnation(ME), &grants[0], 1).await;
    });
}

/// Without a pooler: behind one it is its clients that wait.
#[test]
fn a_server_whose_connections_are_used_up_is_unavailable_or_waited_for() {
    let server = Postgres::start(Durability::Fast).expect("a private server can be started");
    let url = server.fresh_database();
    block_on(async {
        let (me, worker) = (incarnation(ME), worker(&url));
        let process = process(&worker).await;
        let grant = owner(&process.tiers, me, 1).await.remove(0);
        // The settings hold from the next start.
        server.set("max_connections", "12");
        server.set("superuser_reserved_connections", "0");
        server.stop();
        server.start_again();
        let mut people = vec![Session::of(&url).await];
        let full = loop {
            match Session::try_of(&url).await {
                Ok(person) => people.push(person),
                Err(error) => break error.to_string(),
            }
            assert!(people.len() <= 12, "twelve are all it has");
        };
        assert!(full.contains("too many clients"), "{full}");
        let opens = failed(try_process(&worker).await);
        assert!(
            matches!(&opens, Failed::Unavailable(why) if why.contains("no more connections") && why.contains("53300")),
            "{opens}"
        );
        // Whatever session the process has begun again meanwhile is ended, and somebody else is quicker.
        end_sessions(&mut people[0]).await;
        while let Ok(person) = Session::try_of(&url).await {
            people.push(person);
        }
        let runs = failed(process.tiers.journal.append(batch(me, true, vec![offer(&grant, 1)])).await);
        assert!(matches!(&runs, Failed::Unavailable(why) if why.contains("53300")), "{runs:?}");

        let waiting = with(&worker, "lobster_wait_ms=60000&lobster_connections=2");
        let opens = tokio::spawn(async move { self::process(&waiting).await });
        people.truncate(1);
        goes_on(&process.tiers, me, &grant, 1).await;
        create(&soon(opens).await.expect("it opens").tiers, 2).await;
    });
}

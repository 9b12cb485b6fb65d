//! How a schema comes about: whoever only looks writes nothing, a printed file makes what opening makes, and whoever opens waits
//! for whoever migrates already. A superuser does all this, by the pooler if the run has one; whoever looks on a server of his own does not.

use crate::kit::*;
use lobster_servers::{
    postgres::{Durability, Postgres as Server},
    psql,
    shared::{self, by_the_pooler},
};
use lobster_store::{
    contract::Failed,
    postgres::{self, Options, Postgres, Role, SCHEMA},
};
use std::fs;

/// What looking answers, and that it wrote nothing. The server writes a line of its own now and then, and the first use of a page
/// may be logged: then once more.
async fn verified(eye: &mut Session, url: &str, role: Role) -> Result<(), Failed> {
    let options = Options::from_url(url).expect("a URL");
    let now = "SELECT concat_ws(' ', pg_snapshot_xmax(pg_current_snapshot()), pg_current_wal_insert_lsn())";
    for _ in 0..20 {
        let before = eye.ask(now).await;
        let verified = Postgres::verify(&options, role).await;
        if eye.ask(now).await == before {
            return verified;
        }
    }
    panic!("each time something was written, or took a transaction's number");
}

#[test]
fn whoever_looks_whether_a_role_has_its_rights_is_told_which_it_lacks_and_writes_nothing() {
    let server = Server::start(Durability::Fast).expect("a private server can be started");
    server.set("autovacuum", "off");
    let url = server.fresh_database();
    let users = ["worker", "submit", "view"].map(|name| format!("CREATE ROLE a_{name} LOGIN IN ROLE lobster_{name};\n"));
    let whole = [postgres::sql(SCHEMA, 0), postgres::roles(SCHEMA), users.concat(), "CREATE ROLE a_nobody LOGIN;\n".to_owned()];
    psql::sql(&url, &whole.concat()).expect("a superuser can apply it");
    block_on(async {
        let mut eye = Session::of(&url).await;
        let inserts = "may not INSERT on runs, UPDATE on runs, INSERT on inputs, INSERT on outcomes, INSERT on tags: apply";
        for (user, lacks) in [
            ("lobster", [None; 3]),
            ("a_worker", [None; 3]),
            ("a_submit", [Some("may not DELETE on runs, DELETE on inputs, INSERT on deltas, DELETE on deltas, "), None, None]),
            ("a_view", [Some("may not INSERT on runs, UPDATE on runs, DELETE on runs, "), Some(inserts), None]),
            ("a_nobody", [Some("permission denied for schema lobster"); 3]),
        ] {
            for (asked, lacks) in [Role::Worker, Role::Submit, Role::View].into_iter().zip(lacks) {
                let answer = verified(&mut eye, &role(&url, user), asked).await;
                let right = match (&answer, lacks) {
                    (Err(Failed::Refused(why)), Some(lacks)) => why.contains(lacks),
                    (answer, lacks) => answer.is_ok() && lacks.is_none(),
                };
                assert!(right, "{user} as {asked:?}: {answer:?}");
            }
        }
        eye.tell("REVOKE DELETE ON lobster.parts FROM lobster_worker").await;
        let one = failed(verified(&mut eye, &role(&url, "a_worker"), Role::Worker).await);
        assert!(matches!(&one, Failed::Refused(why) if why.contains("may not DELETE on parts: apply what ")), "{one}");
        eye.tell("UPDATE lobster.meta SET value = 99 WHERE name = 'schema'").await;
        let newer = failed(verified(&mut eye, &url, Role::View).await);
        assert!(matches!(newer, Failed::NewerVersion { found: 99, known: 1 }), "{newer}");
    });
}

/// Tables and indexes of a schema, with their columns.
fn shape(schema: &str) -> String {
    format!(
        "SELECT concat_ws(' ', c.relname, c.relkind, c.reloptions, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod),
            a.attnotnull, a.attstorage, replace(pg_get_indexdef(c.oid), '{schema}', ''))
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = '{schema}'::regnamespace AND a.attnum > 0 ORDER BY 1"
    )
}

/// Which files are tables and indexes of an installation, its version and its id, and its runs.
const ALL: &str = "
SELECT concat_ws(' ', relname, oid, relfilenode) FROM pg_class WHERE relnamespace = 'lobster'::regnamespace
UNION ALL SELECT m::text FROM lobster.meta m UNION ALL SELECT r::text FROM lobster.runs r ORDER BY 1";

#[test]
fn a_printed_file_makes_what_opening_makes_and_fails_the_second_time_with_nothing_changed() {
    let url = shared::postgres();
    let file = postgres::sql(SCHEMA, 0);
    psql::sql(&url, &file).expect("a person can apply it");
    block_on(async {
        let (mut eye, way) = (Session::of(&url).await, by_the_pooler(&url));
        drop(process(&with(&way, "lobster_schema=orders")).await);
        let (printed, opened) = (eye.column(&shape(SCHEMA)).await, eye.column(&shape("orders")).await);
        assert!(printed.iter().any(|line| line.starts_with("runs_ready i")), "{printed:?}");
        assert_eq!(printed, opened);

        let process = process(&with(&way, "lobster_migrate=false")).await;
        create(&process.tiers, 1).await;
        let before = eye.column(ALL).await;
        let again = psql::sql(&url, &file).expect_err("there are tables already").to_string();
        assert!(again.contains("ERROR:  relation \"runs\" already exists"), "{again}");
        assert_eq!(eye.column(ALL).await, before);
        create(&process.tiers, 2).await;
    });
}

#[test]
fn whoever_opens_while_somebody_migrates_waits_for_it_and_all_find_one_installation() {
    let url = shared::postgres();
    let local = tempfile::tempdir().expect("a directory can be made");
    block_on(async {
        let (mut person, mut eye, way) = (Session::of(&url).await, Session::of(&url).await, by_the_pooler(&url));
        // As somebody who migrates does.
        let migrates = "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('lobster lobster', 0))";
        person.tell(migrates).await;
        let opens: Vec<_> = (0..8)
            .map(|_| {
                let (way, local) = (way.clone(), local.path().to_owned());
                tokio::spawn(async move { try_open(&way, &local).await })
            })
            .collect();
        let waiters = "FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND NOT l.granted
            AND a.datname = current_database() AND a.application_name = 'lobster'";
        eye.until(&format!("SELECT count(*) = 8 {waiters}")).await;
        // Each gives its place away after a while, and comes again.
        let moment = eye.ask("SELECT clock_timestamp()::text").await;
        eye.until(&format!("SELECT count(*) = 8 AND min(a.xact_start) > '{moment}' {waiters}")).await;
        assert_eq!(eye.ask("SELECT to_regnamespace('lobster')::text").await, "", "nobody has begun");
        person.tell("COMMIT").await;
        for opens in opens {
            soon(opens).await.expect("it does not panic").expect("it opens");
        }
        // Each has made the directory of the installation that it found.
        let dirs = fs::read_dir(local.path()).expect("a directory can be read");
        let found: Vec<_> = dirs.map(|dir| dir.expect("an entry").file_name().into_string().expect("an id")).collect();
        assert_eq!(found, [eye.ask("SELECT value FROM lobster.meta WHERE name = 'installation'").await]);

        person.tell(migrates).await;
        let opens = tokio::spawn(async move { try_open(&way, local.path()).await });
        soon(opens).await.expect("it does not panic").expect("nothing is to be done, and nobody is waited for");
    });
}

//! Servers that are down, go away and come back, or refuse: the caller is told what that means for his call, and afterwards all is well.
//! Whoever opens a store that nobody has made yet does so as a superuser.

use crate::kit::*;
use bytes::Bytes;
use lobster_servers::{
    postgres::{Durability, Postgres},
    shared,
};
use lobster_store::contract::{Answer, Batch, Failed, Grant, Hold, Offer, Row, Submitted, Transacted, Work};
use sqlx::{Connection, Executor, PgConnection};
use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

fn private(durability: Durability) -> Arc<Postgres> {
    Arc::new(Postgres::start(durability).expect("a private server can be started"))
}

/// What blocks, on a thread where that hurts nobody.
async fn aside(server: &Arc<Postgres>, what: impl FnOnce(&Postgres) + Send + 'static) {
    let server = server.clone();
    tokio::task::spawn_blocking(move || what(&server)).await.expect("servers do as told");
}

/// Without a pooler, which takes clients for a server that is down.
#[test]
fn a_server_that_is_down_is_unavailable_at_once_or_waited_for() {
    let server = private(Durability::Fast);
    let url = worker(&server.fresh_database());
    server.stop();
    block_on(async {
        let failed = failed(try_process(&url).await);
        assert!(matches!(&failed, Failed::Unavailable(why) if why.contains("refused")), "{failed}");
        let began = Instant::now();
        let waited = self::failed(try_process(&with(&url, "lobster_wait_ms=400")).await);
        assert!(matches!(waited, Failed::Unavailable(_)) && began.elapsed() >= Duration::from_millis(400), "{waited}");
        let waiting = with(&url, "lobster_wait_ms=60000");
        let opens = tokio::spawn(async move { process(&waiting).await });
        aside(&server, Postgres::start_again).await;
        let process = soon(opens).await.expect("it opens");
        create(&process.tiers, 1).await;
    });
}

/// Without a pooler, which waits for a server in place of its clients.
#[test]
fn a_server_that_stops_and_starts_loses_nothing() {
    let server = private(Durability::Full);
    let url = server.fresh_database();
    block_on(async {
        let process = process(&worker(&url)).await;
        let grants = owner(&process.tiers, incarnation(1), 2).await;
        let over = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = grants
            .iter()
            .map(|grant| {
                let (tiers, grant, over) = (process.tiers.clone(), grant.clone(), over.clone());
                tokio::spawn(async move {
                    let (mut seq, mut asked) = (0, 0);
                    while !over.load(Ordering::Relaxed) {
                        seq += 1;
                        asked += insist(&tiers, incarnation(1), &grant, seq, true).await;
                    }
                    (seq, asked)
                })
            })
            .collect();
        for stop in [Postgres::stop, Postgres::kill, Postgres::stop] {
            aside(&server, stop).await;
            aside(&server, Postgres::start_again).await;
            // A hint of its own that it is back: somebody gets in.
            Session::of(&url).await;
        }
        over.store(true, Ordering::Relaxed);
        for (writer, grant) in writers.into_iter().zip(&grants) {
            let (seq, asked) = soon(writer).await.expect("a writer gets through");
            assert!(asked > 0, "the server was away");
            let stored = process.tiers.catalog.read(grant.run).await.expect("a read is answered").expect("the run is there");
            let seqs: Vec<_> = stored.recording.deltas.iter().map(|row| row.from).collect();
            assert_eq!(seqs, (1..=seq).collect::<Vec<_>>());
        }
        assert_eq!(claim(&process.tiers, incarnation(1), 1).await, [], "everything else works too");
    });
}

#[test]
fn a_killed_server_keeps_what_was_synced_and_tells_of_what_was_not() {
    let server = private(Durability::Full);
    // Nothing is written for another reason than that somebody waits for it.
    server.set("wal_writer_delay", "10s");
    server.set("bgwriter_lru_maxpages", "0");
    let url = server.fresh_database();
    block_on(async {
        let process = process(&way(&url)).await;
        let (me, grant) = (incarnation(1), owner(&process.tiers, incarnation(1), 1).await.remove(0));
        let crash = async || {
            aside(&server, |server| {
                server.kill();
                server.start_again();
            })
            .await;
        };
        append_one(&process.tiers, me, &grant, 1, false).await;
        append_one(&process.tiers, me, &grant, 2, true).await;
        let ask = async |seq| loop {
            match process.tiers.journal.append(batch(me, true, vec![offer(&grant, seq)])).await {
                Ok(answers) => match answers.into_iter().next() {
                    Some(Answer::Seen(seen)) => return seen,
                    other => panic!("nobody else has locked this row: {other:?}"),
                },
                Err(Failed::Unavailable(_) | Failed::Unknown(_)) => {}
                Err(failed) => panic!("{failed}"),
            }
        };
        // The server may have written more than anybody waited for, but not every time. What it has not written its holder is told of: the
        // row follows a gap.
        let (mut tail, mut lost) = (2, 0);
        for _ in 0..4 {
            for seq in tail + 1..=tail + 18 {
                append_one(&process.tiers, me, &grant, seq, false).await;
            }
            crash().await;
            let (said, seen) = (tail + 18, ask(tail + 19).await);
            assert!(seen.mine && (tail..=said + 1).contains(&seen.tail), "{seen:?}");
            assert_eq!(seen.rows == 1, seen.tail == said + 1, "{seen:?}");
            assert_eq!(seen.mark, row(grant.run, grant.epoch, seen.tail).mark);
            lost += said.saturating_sub(seen.tail);
            tail = seen.tail;
        }
        assert_ne!(lost, 0, "four crashes, and nobody has lost anything");
        append_one(&process.tiers, me, &grant, tail + 1, false).await;
        append_one(&process.tiers, me, &grant, tail + 2, true).await;
        crash().await;
        assert_eq!(ask(tail + 2).await.tail, tail + 2, "a synced row takes everything before it along");
        for seq in tail + 3..=tail + 8 {
            append_one(&process.tiers, me, &grant, seq, false).await;
        }
        let seen = append(&process.tiers, batch(me, true, vec![Offer { rows: Vec::new(), ..offer(&grant, tail + 9) }])).await;
        assert_eq!(seen[0].tail, tail + 8);
        crash().await;
        let seen = ask(tail + 8).await;
        assert_eq!((seen.rows, seen.tail), (0, tail + 8), "and so does a synced batch with nothing in it");
    });
}

// ---- what a server refuses ------------------------------------------------------------------------------------------

#[test]
fn what_the_server_says_is_told_as_what_it_means() {
    let url = shared::postgres();
    block_on(async {
        let process = process(&with(&way(&url), "lobster_connections=1")).await;
        let (me, grant) = (incarnation(1), owner(&process.tiers, incarnation(1), 1).await.remove(0));
        let mut person = Session::of(&url).await;
        person
            .tell(
                "CREATE TABLE public.says (code text); INSERT INTO public.says VALUES ('');
                CREATE FUNCTION public.says() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE c text := (SELECT code FROM public.says); BEGIN
                    IF c <> '' THEN RAISE EXCEPTION 'so it is' USING ERRCODE = c; END IF;
                    RETURN NEW;
                END $$;
                CREATE TRIGGER says BEFORE INSERT ON lobster.deltas FOR EACH ROW EXECUTE FUNCTION public.says()",
            )
            .await;
        for code in [
            "40001", "40P01", "55P03", "57014", "53300", "53100", "53200", "25006", "58030", "57P03", "40003", "42501", "XX001",
            "22012",
        ] {
            person.tell(&format!("UPDATE public.says SET code = '{code}'")).await;
            let failed = failed(process.tiers.journal.append(batch(me, true, vec![offer(&grant, 1)])).await);
            let right = match code {
                "40003" => matches!(failed, Failed::Unknown(_)),
                "42501" | "XX001" => matches!(failed, Failed::Refused(_)),
                "22012" => matches!(failed, Failed::Internal(_)),
                _ => matches!(failed, Failed::Unavailable(_)),
            };
            assert!(right && failed.to_string().contains(code), "{code}: {failed:?}");
        }
        person.tell("UPDATE public.says SET code = ''").await;
        append_one(&process.tiers, me, &grant, 1, true).await;
    });
}

/// Without a pooler, whose sessions may be older than a setting.
#[test]
fn timeouts_of_the_server_and_a_read_only_database_are_unavailable() {
    let url = shared::postgres();
    block_on(async {
        let (mut person, worker) = (Session::of(&url).await, worker(&url));
        let mine = process(&worker).await;
        let (me, grant) = (incarnation(1), owner(&mine.tiers, incarnation(1), 1).await.remove(0));
        person.tell(&format!("ALTER DATABASE {} SET statement_timeout = '200ms'", database(&url))).await;
        let hasty = process(&worker).await;
        person.tell(&format!("BEGIN; SELECT 1 FROM lobster.runs WHERE id = '{}' FOR UPDATE", grant.run)).await;
        let waits = Batch { patient: Some(LONG), ..batch(me, true, vec![offer(&grant, 1)]) };
        let late = failed(hasty.tiers.journal.append(waits).await);
        assert!(matches!(&late, Failed::Unavailable(why) if why.contains("57014")), "{late}");
        person.tell("COMMIT").await;
        append_one(&hasty.tiers, me, &grant, 1, true).await;

        person.tell(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", database(&url))).await;
        let reads = process(&with(&worker, "lobster_migrate=false")).await;
        let failed = failed(reads.tiers.journal.append(batch(me, true, vec![offer(&grant, 2)])).await);
        assert!(matches!(&failed, Failed::Unavailable(why) if why.contains("25006") && why.contains("standby")), "{failed}");
        assert!(reads.tiers.catalog.read(grant.run).await.expect("a read is answered").is_some());
    });
}

/// Work in a transaction: tells that it began, and lasts until it is told to end; nothing is kept.
fn lasting() -> (Work, oneshot::Receiver<()>, oneshot::Sender<()>) {
    let ((begins, begun), (ends, ended)) = (oneshot::channel(), oneshot::channel());
    let work: Work = Box::new(move |_| {
        Box::pin(async move {
            begins.send(()).ok();
            ended.await.ok();
            None
        })
    });
    (work, begun, ends)
}

#[test]
fn a_process_without_a_free_connection_is_unavailable_for_that_work_only() {
    let url = shared::postgres();
    block_on(async {
        let me = incarnation(1);
        let few = process(&with(&way(&url), "lobster_connections=1&lobster_deadline_ms=3000")).await;
        let grants = owner(&few.tiers, me, 3).await;
        let transacts = |grant: &Grant, work| {
            let (tiers, Grant { run, epoch, .. }) = (few.tiers.clone(), grant.clone());
            let hold = Hold { incarnation: me, run, epoch, head: 1, most: LONG };
            tokio::spawn(async move { tiers.journal.transact(hold, work).await })
        };
        let (work, begun, ends) = lasting();
        let lasts = transacts(&grants[0], work);
        soon(begun).await.expect("it begins");
        // The one connection for transactions is lent.
        let (work, begun, _ends) = lasting();
        let refused = failed(soon(transacts(&grants[1], work)).await.expect("it does not panic"));
        assert!(matches!(&refused, Failed::Unavailable(why) if why.contains("are busy")), "{refused}");
        assert!(begun.await.is_err(), "its work has not begun");
        // Everything else has another.
        insist(&few.tiers, me, &grants[2], 1, true).await;
        ends.send(()).expect("it waits");
        assert_eq!(soon(lasts).await.expect("it does not panic").expect("it is answered"), Transacted::Undone);
        let (work, _begun, ends) = lasting();
        ends.send(()).expect("it will wait");
        assert_eq!(
            soon(transacts(&grants[1], work)).await.expect("it does not panic").expect("it is answered"),
            Transacted::Undone
        );
    });
}

#[test]
fn a_call_that_outlasts_its_deadline_is_unknown_and_a_role_without_connections_is_told_so() {
    let url = shared::postgres();
    block_on(async {
        let mut person = Session::of(&url).await;
        let few = process(&with(&way(&url), "lobster_connections=1&lobster_deadline_ms=1000")).await;
        let grant = owner(&few.tiers, incarnation(1), 1).await.remove(0);
        person.tell(&format!("BEGIN; SELECT 1 FROM lobster.runs WHERE id = '{}' FOR UPDATE", grant.run)).await;
        let (tiers, began) = (few.tiers.clone(), Instant::now());
        let waits = Batch { patient: Some(LONG), ..batch(incarnation(1), true, vec![offer(&grant, 1)]) };
        let late = failed(tiers.journal.append(waits).await);
        assert!(matches!(late, Failed::Unknown(_)) && began.elapsed() < Duration::from_secs(10), "{late}");
        person.tell("COMMIT").await;
        insist(&few.tiers, incarnation(1), &grant, 1, true).await;

        let name = format!("many_{}", database(&url));
        person.tell(&format!("CREATE ROLE {name} LOGIN CONNECTION LIMIT 0")).await;
        let failed = failed(try_process(&role(&url, &name)).await);
        assert!(matches!(&failed, Failed::Unavailable(why) if why.contains("no more connections")), "{failed}");
    });
}

#[test]
fn a_server_that_is_too_old_is_refused_before_anything_is_written() {
    let url = shared::postgres();
    block_on(async {
        let mut person = Session::of(&url).await;
        // It says of itself that it is of 2021.
        let settings = format!(
            "CREATE SCHEMA of_2021;
            CREATE FUNCTION of_2021.current_setting(name text) RETURNS text LANGUAGE sql AS $$ SELECT CASE name
                WHEN 'server_version_num' THEN '130005' WHEN 'server_version' THEN '13.5' ELSE pg_catalog.current_setting(name) END $$;
            ALTER DATABASE {} SET search_path = of_2021, pg_catalog",
            database(&url)
        );
        person.tell(&settings).await;
        let old = failed(try_process(&url).await);
        assert!(matches!(&old, Failed::Refused(why) if why == "PostgreSQL 13.5 is too old: 14 is needed"), "{old}");
        assert_eq!(person.ask("SELECT to_regnamespace('lobster')::text").await, "");
    });
}

#[test]
fn what_would_break_the_fence_is_refused_before_anything_is_written() {
    let url = shared::postgres();
    block_on(async {
        let mut person = Session::of(&url).await;
        let set = |value: &str| format!("ALTER DATABASE {} SET default_transaction_isolation = '{value}'", database(&url));
        person.tell(&set("repeatable read")).await;
        let other = failed(try_process(&url).await);
        assert!(matches!(&other, Failed::Refused(why) if why.contains("default_transaction_isolation")), "{other}");
        assert_eq!(person.ask("SELECT to_regnamespace('lobster')::text").await, "");
        person.tell(&set("read committed")).await;
        drop(process(&url).await);

        person.tell("UPDATE lobster.meta SET value = 99 WHERE name = 'schema'").await;
        let all =
            "SELECT string_agg(c::text, ',' ORDER BY attrelid, attnum) || (SELECT string_agg(m::text, ',') FROM lobster.meta m)
            FROM pg_attribute c WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'lobster'::regnamespace)";
        let before = person.ask(all).await;
        let newer = failed(try_process(&url).await);
        assert!(matches!(newer, Failed::NewerVersion { found: 99, known: 1 }), "{newer}");
        assert_eq!(person.ask(all).await, before);
    });
}

/// A small file system, until it is dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Self {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let path = dir.path().to_str().expect("a path of ours is UTF-8");
        for command in ["chmod 755 $0", "mount -t tmpfs -o size=8m none $0", "chown postgres $0"] {
            let done = Command::new("sh").args(["-c", command, path]).status().expect("there is a shell");
            assert!(done.success(), "{command}");
        }
        Self(dir)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Without a pooler: a disk is full whatever stands before it.
#[test]
fn a_full_disk_is_unavailable_until_there_is_room_again() {
    let small = Small::mount();
    let server = private(Durability::Fast);
    let url = server.fresh_database();
    block_on(async {
        let process = process(&worker(&url)).await;
        let (me, grants) = (incarnation(1), owner(&process.tiers, incarnation(1), 2).await);
        let mut person = Session::of(&url).await;
        person.tell(&format!("CREATE TABLESPACE small LOCATION '{}'", small.0.path().display())).await;
        person.tell("ALTER TABLE lobster.deltas SET TABLESPACE small").await;
        let large = |seq| {
            let body = Bytes::from(vec![7; 1 << 20]);
            let rows = vec![Row::new(grants[0].run, grants[0].epoch, seq, seq, Some(body), None)];
            batch(me, true, vec![Offer { rows, ..offer(&grants[0], seq) }])
        };
        let mut seq = 1;
        let full = loop {
            match process.tiers.journal.append(large(seq)).await {
                Ok(_) => seq += 1,
                Err(failed) => break failed,
            }
            assert!(seq < 20, "it holds eight megabytes");
        };
        assert!(matches!(&full, Failed::Unavailable(why) if why.contains("disk is full")), "{full}");
        process.tiers.journal.attend(me).await.expect("what needs no room goes on");
        person.tell("ALTER TABLE lobster.deltas SET TABLESPACE pg_default").await;
        assert_eq!(append(&process.tiers, large(seq)).await[0].tail, seq);
    });
    drop(server);
}

#[test]
fn a_key_that_somebody_has_not_committed_is_waited_for_but_not_for_long() {
    let url = shared::postgres();
    block_on(async {
        let process = process(&way(&url)).await;
        create(&process.tiers, 1).await;
        let mut person = Session::of(&url).await;
        person
            .tell(
                "BEGIN; INSERT INTO lobster.runs SELECT (r).* FROM (SELECT jsonb_populate_record(r,
                '{\"id\": \"00000000-0000-0000-0000-000000000009\", \"key\": \"key-7\"}') AS r FROM lobster.runs r) r",
            )
            .await;
        let began = Instant::now();
        let waits = failed(process.tiers.journal.submit(vec![new_run(7)]).await);
        assert!(matches!(&waits, Failed::Unavailable(why) if why.contains("somebody's open transaction")), "{waits}");
        assert!(began.elapsed() >= Duration::from_secs(2) && began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        create(&process.tiers, 8).await;
        person.tell("ROLLBACK").await;
        create(&process.tiers, 7).await;
    });
}

#[test]
fn a_submit_that_finds_its_run_vouches_for_it_however_it_was_committed() {
    block_on(async {
        let url = shared::postgres();
        let process = process(&way(&url)).await;
        let mut person = PgConnection::connect(&url).await.expect("the server is up");
        person.execute("BEGIN; SET LOCAL synchronous_commit = off").await.expect("a person may do that");
        let made = process.tiers.journal.submit_in(&mut person, new_run(1)).await;
        assert_eq!(made.expect("it is this installation's"), Submitted::Created);
        person.execute("COMMIT").await.expect("nobody waits for the disk");
        let mut eye = Session::of(&url).await;
        let written = eye.ask("SELECT pg_current_wal_insert_lsn()::text").await;
        let again = process.tiers.journal.submit(vec![new_run(1)]).await.expect("a submit is answered");
        assert_eq!(again, [Submitted::Existing { id: run_id(1), same: true }]);
        assert!(eye.is(&format!("SELECT pg_current_wal_flush_lsn() >= '{written}'::pg_lsn")).await, "it is synced");
    });
}

/// Without a pooler, which ends the session of a client that is gone.
#[test]
fn a_call_that_is_dropped_costs_its_connection_and_nothing_else() {
    let url = shared::postgres();
    block_on(async {
        let process = process(&with(&worker(&url), "lobster_connections=1")).await;
        let (me, grant) = (incarnation(1), owner(&process.tiers, incarnation(1), 1).await.remove(0));
        let (mut person, mut eye) = (Session::of(&url).await, Session::of(&url).await);
        person.tell(&format!("BEGIN; SELECT 1 FROM lobster.runs WHERE id = '{}' FOR UPDATE", grant.run)).await;
        let (tiers, waits) = (process.tiers.clone(), Batch { patient: Some(LONG), ..batch(me, true, vec![offer(&grant, 1)]) });
        let dropped = tokio::spawn(async move { tiers.journal.append(waits).await });
        eye.until(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')",
        )
        .await;
        dropped.abort();
        assert!(dropped.await.expect_err("it was dropped").is_cancelled());
        assert_eq!(process.tiers.catalog.outcomes(&[grant.run]).await.expect("there is a connection again"), [Some(None)]);
        person.tell("COMMIT").await;
        // The server was not told, and applies it.
        eye.until("SELECT tail = 1 FROM lobster.runs").await;
        assert_eq!(insist(&process.tiers, me, &grant, 1, true).await, 0);
    });
}

//! What a statement costs does not grow with the runs that have ended, and what changes often changes in place. Without a
//! pooler: plans are those of sessions.

use crate::kit::*;
use lobster_servers::{
    postgres::{Durability, Postgres},
    shared,
};
use lobster_store::{
    contract::{
        Batch, Beat, Boot, Claim, Evidence, Grant, Hold, NewVerdict, Offer, Origin, Sealed, Transacted, Vouched, Wall, Work,
        record,
    },
    postgres::PgTx,
};
use std::time::Duration;
use tokio::sync::oneshot;

const ENDED: u32 = 200_000;

/// Runs that have ended, with all they have.
async fn history(person: &mut Session) {
    let ended = format!("FROM generate_series(1, {ENDED}) n");
    for text in [
        "runs (id, key, digest, task, version, state, owner, epoch, tail, mark, wake, wake_seen, cancel, attempts, deaths, due, submitted,
            ended, reason, timeline) SELECT md5(n::text)::uuid, 'old-' || n, '\\x00', 'work', 1, 3, NULL, 1, 1, 7, 0, 0, false, 0, 0, n, n, n, '', 1",
        "inputs (run, crc, body) SELECT md5(n::text)::uuid, 1, '\\x00'",
        "outcomes (run, crc, body) SELECT md5(n::text)::uuid, 1, '\\x00'",
        "deltas (run, seq_from, seq_to, epoch, crc, body) SELECT md5(n::text)::uuid, 1, 1, 1, 1, '\\x00'",
        "changes (run, seq_from, seq_to, epoch, crc, body) SELECT md5(n::text)::uuid, 1, 1, 1, 1, '\\x00'",
        "manifests (run, seq, crc, body) SELECT md5(n::text)::uuid, 1, 1, '\\x00'",
        "parts (run, id, crc, body) SELECT md5(n::text)::uuid, 1, 1, '\\x00'",
        "verdicts_in (run, intent, step, origin, at, crc, body) SELECT md5(n::text)::uuid, 1, '\\x00', 1, n, 1, '\\x00'",
        "tags (run, tag) SELECT md5(n::text)::uuid, 'tag'",
    ] {
        person.tell(&format!("INSERT INTO lobster.{text} {ended}")).await;
    }
}

/// Everything that a process does all day, with runs that have not ended. Of those that ended before a moment so many are removed.
async fn a_day(process: &Process, node: u64, first: u64, before: i64, removed: usize) {
    let (tiers, me, other) = (&process.tiers, incarnation(node), incarnation(node + 1));
    join(tiers, me).await;
    join(tiers, other).await;
    tiers.journal.submit((first..first + 20).map(new_run).collect()).await.expect("a submit is answered");
    let grants = claim(tiers, me, 10).await;
    assert_eq!(grants.len(), 10);
    tiers.journal.restore(me, &grants).await.expect("a restore is answered");
    append(tiers, batch(me, true, grants.iter().map(|grant| offer(grant, 1)).collect())).await;
    append(tiers, Batch { patient: Some(LONG), ..batch(me, false, vec![offer(&grants[0], 2)]) }).await;
    append(tiers, batch(me, false, vec![Offer { progress: true, ..offer(&grants[4], 2) }])).await;
    let hold = Hold { incarnation: me, run: grants[5].run, epoch: grants[5].epoch, head: 2, most: LONG };
    let recorded = row(grants[5].run, grants[5].epoch, 2);
    let work: Work = Box::new(move |_| Box::pin(async move { Some(recorded) }));
    assert_eq!(tiers.journal.transact(hold, work).await.expect("a transaction is answered"), Transacted::Done);
    tiers.journal.fold(fold(&grants[0], me, 1)).await.expect("a fold is answered");
    tiers.journal.attend(me).await.expect("attention is answered");
    tiers.members.renew(me, Beat { seq: 1, at: Boot::default(), lapsed: false }).await.expect("a renewal is answered");
    tiers.members.peers().await.expect("peers are answered");
    let runs: Vec<_> = grants.iter().map(|grant| grant.run).collect();
    tiers.catalog.outcomes(&runs).await.expect("outcomes are answered");
    tiers.catalog.read(runs[0]).await.expect("a read is answered");
    tiers.catalog.find("key-1").await.expect("a key is looked up");
    tiers.journal.parts(runs[0], &[1]).await.expect("parts are answered");
    let (run, fate) = (runs[1], Sealed::new(record::Kind::Verdict, runs[1], &record::Fate { happened: None, forced: false }));
    let verdict = NewVerdict {
        run,
        step: record::StepName::default(),
        intent: 1,
        tail: 1,
        origin: Origin::Person,
        fate,
        at: HostClock::now(),
    };
    tiers.journal.verdict(verdict).await.expect("a verdict is answered");
    tiers.journal.cancel(runs[2], outcome(runs[2]), HostClock::now()).await.expect("a cancel is answered");
    append(tiers, batch(me, true, vec![ends(&grants[3], 1, finish(runs[3], HostClock::now()))])).await;
    let evidence = Evidence::Silence { beat: 1, age: Duration::ZERO };
    tiers.members.revoke(me, evidence).await.expect("a revoke is answered");
    assert_eq!(claim(tiers, other, 4).await.len(), 4, "orphans and ready ones");
    assert_eq!(tiers.journal.sweep(Wall(before), 10).await.expect("a sweep is answered"), removed);
    assert_eq!(claim(tiers, other, 0).await, []);
    let alone = tiers.journal.claim(Claim { alone: true, ..asks(other, 4) }).await;
    assert_eq!(alone.expect("a claim is answered"), []);
    let knows = Vouched { run: runs[6], epoch: 1, tail: 0, ended: false, held: Some(other) };
    assert_eq!(tiers.journal.vouch(vec![knows]).await.expect("it is heard"), []);
}

/// The plans that a server has logged: the statement, and its nodes with what they did.
fn plans(log: &str) -> Vec<String> {
    let plans = log.split("plan:\n").skip(1);
    plans.map(|text| text.lines().take_while(|line| line.starts_with('\t')).collect::<Vec<_>>().join("\n")).collect()
}

/// Pages that a plan looked at: of its first node, which counts those below it.
fn pages(plan: &str) -> u64 {
    let line = plan.lines().find_map(|line| line.trim().strip_prefix("Buffers: shared ")).unwrap_or("");
    let count = |word: &str| line.split(word).nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0);
    count("hit=") + count("read=")
}

#[test]
fn no_statement_of_the_day_looks_at_runs_that_have_ended() {
    let server = Postgres::start(Durability::Fast).expect("a private server can be started");
    server.set("autovacuum", "off");
    let url = server.fresh_database();
    block_on(async {
        let worker = worker(&url);
        let mut person = Session::of(&url).await;
        for (name, value) in [
            ("session_preload_libraries", "auto_explain"),
            ("auto_explain.log_min_duration", "0"),
            ("auto_explain.log_analyze", "on"),
            ("auto_explain.log_buffers", "on"),
            ("auto_explain.log_timing", "off"),
        ] {
            let database = database(&url);
            person.tell(&format!("ALTER DATABASE {database} SET {name} = '{value}'")).await;
        }
        // Statements that were planned when the tables were empty; tables nobody has counted, and counted ones.
        let early = process(&worker).await;
        a_day(&early, 10, 1, 3, 0).await;
        history(&mut person).await;
        a_day(&early, 20, 101, 3, 2).await;
        a_day(&process(&worker).await, 30, 201, 5, 2).await;
        // No time of a lease is in an index: what changes with each renewal changes in place.
        let leases =
            "SELECT count(*) = 0 FROM pg_indexes WHERE schemaname = 'lobster' AND (tablename = 'nodes' AND indexdef NOT LIKE
            '%(incarnation)' OR indexdef ~ 'beat|ttl|lease')";
        assert!(person.is(leases).await);
        person.tell("ANALYZE").await;
        a_day(&process(&worker).await, 40, 301, 7, 2).await;
        // Sessions that a pooler lends to others too are set to nothing.
        a_day(&process(&with(&worker, "lobster_pooled=true")).await, 50, 401, 9, 2).await;
    });
    let plans: Vec<_> = plans(&server.log()).into_iter().filter(|plan| plan.contains("\"lobster\".")).collect();
    for word in [
        "INSERT INTO \"lobster\".deltas",
        "WITH RECURSIVE",
        "FOR NO KEY UPDATE OF r SKIP LOCKED",
        "wake > wake_seen",
        "blamed AS",
        "UNION ALL SELECT 6",
        "RETURNING own.wake",
        "r.deaths >= 3",
        "'lobster.business'",
        "lacking AS",
    ] {
        assert!(plans.iter().any(|plan| plan.contains(word)), "nothing was logged of {word}");
    }
    for plan in &plans {
        for table in ["runs", "inputs", "outcomes", "deltas", "changes", "manifests", "parts", "verdicts_in", "tags"] {
            assert!(
                !plan.contains(&format!("Seq Scan on {table}")) && !plan.contains(&format!("Seq Scan on lobster.{table}")),
                "{plan}"
            );
        }
        let passed =
            plan.lines().filter_map(|line| line.trim().strip_prefix("Rows Removed by ")?.rsplit(' ').next()?.parse::<u64>().ok());
        assert!(passed.sum::<u64>() < 1_000, "{plan}");
        assert!(pages(plan) < 2_000, "{} pages\n{plan}", pages(plan));
    }
}

#[test]
fn appends_and_renewals_touch_no_index() {
    let server = Postgres::start(Durability::Fast).expect("a private server can be started");
    // Whoever counts rows for the planner keeps the versions that it sees, and pages fill up meanwhile.
    server.set("autovacuum", "off");
    let url = server.fresh_database();
    block_on(async {
        let process = process(&worker(&url)).await;
        let (me, mut eye) = (incarnation(1), Session::of(&url).await);
        let grants = owner(&process.tiers, me, 4).await;
        for seq in 1..=250 {
            append(&process.tiers, batch(me, false, grants.iter().map(|grant| offer(grant, seq)).collect())).await;
        }
        for seq in 1..=1_000 {
            process
                .tiers
                .members
                .renew(me, Beat { seq, at: Boot::default(), lapsed: false })
                .await
                .expect("a renewal is answered");
        }
        // What a session counts is seen by others when it ends, if not before.
        drop(process);
        for table in ["runs", "nodes"] {
            let of = format!("FROM pg_stat_user_tables WHERE schemaname = 'lobster' AND relname = '{table}'");
            eye.until(&format!("SELECT n_tup_upd >= 1000 {of}")).await;
            let (all, hot) =
                (eye.number(&format!("SELECT n_tup_upd {of}")).await, eye.number(&format!("SELECT n_tup_hot_upd {of}")).await);
            assert!(hot * 100 >= all * 98, "{table}: {hot} of {all}");
        }
    });
}

#[test]
fn a_claim_that_finds_nothing_writes_nothing() {
    let server = Postgres::start(Durability::Fast).expect("a private server can be started");
    server.set("autovacuum", "off");
    let url = server.fresh_database();
    block_on(async {
        let process = process(&worker(&url)).await;
        let (me, mut eye) = (incarnation(1), Session::of(&url).await);
        owner(&process.tiers, me, 4).await;
        let now = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text || pg_current_wal_insert_lsn()::text";
        let mut quiet = false;
        // A hint of the submit may still be on its way, a first use of a page may be logged, and the server writes a line of its own now
        // and then.
        for _ in 0..20 {
            let before = eye.ask(now).await;
            for alone in [false, true] {
                let asked = Claim { alone, ..asks(me, 4) };
                assert_eq!(process.tiers.journal.claim(asked).await.expect("a claim is answered"), []);
            }
            process.tiers.journal.attend(me).await.expect("attention is answered");
            process.tiers.journal.sweep(HostClock::now(), 10).await.expect("a sweep is answered");
            quiet |= eye.ask(now).await == before;
        }
        assert!(quiet, "each time something was written, or took a transaction's number");
    });
}

#[test]
fn a_business_transaction_is_planned_as_the_server_says() {
    let url = shared::postgres();
    block_on(async {
        let text = "SELECT concat_ws(' ', current_setting('plan_cache_mode'), current_setting('enable_seqscan'), current_setting('jit'))";
        let process = process(&worker(&url)).await;
        let grants = owner(&process.tiers, incarnation(1), 1).await;
        let (tells, told) = oneshot::channel();
        let work: Work = Box::new(move |business| {
            Box::pin(async move {
                let tx = business.downcast_mut::<PgTx>().expect("a transaction of this tier");
                tells.send(sqlx::query_scalar::<_, String>(text).fetch_one(&mut **tx).await).expect("it is waited for");
                None
            })
        });
        let Grant { run, epoch, .. } = grants[0].clone();
        let hold = Hold { incarnation: incarnation(1), run, epoch, head: 1, most: LONG };
        let done = process.tiers.journal.transact(hold, work).await.expect("it is answered");
        assert_eq!(done, Transacted::Undone);
        let said = told.await.expect("the work was done").expect("it is answered");
        assert_eq!(said, Session::of(&url).await.ask(text).await);
    });
}

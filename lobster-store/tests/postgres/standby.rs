//! A standby that takes over: what a synced acknowledgement is worth on it, and what its holder is told where it is worth nothing.

use crate::kit::*;
use lobster_servers::{
    postgres::{Durability, Postgres},
    proxy::Proxy,
};
use lobster_store::contract::{
    Beat, Boot, Cancelled, Evidence, Failed, Grant, Hold, Incarnation, RunId, RunState, RunSummary, Submitted, Vouched, Work,
    limits,
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tokio::sync::oneshot;

/// A server, a standby of its, and a database on both.
struct Pair {
    server: Postgres,
    url: String,
    standby: Postgres,
    other: String,
}

impl Pair {
    fn start(synchronous: bool) -> Self {
        let server = Postgres::start(Durability::Full).expect("a private server can be started");
        let (url, standby) = (server.fresh_database(), server.standby(synchronous));
        let other = format!("postgres://lobster@127.0.0.1:{}/{}", standby.port(), database(&url));
        Self { server, url, standby, other }
    }
}

fn address(server: &Postgres) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, server.port()).into()
}

#[test]
fn a_promoted_synchronous_standby_has_everything_that_was_synced() {
    let Pair { server, url, standby, other } = Pair::start(true);
    block_on(async {
        let (me, on_primary) = (incarnation(1), process(&way(&url)).await);
        let grant = owner(&on_primary.tiers, me, 1).await.remove(0);
        let refused = failed(try_process(&other).await);
        assert!(matches!(&refused, Failed::Unavailable(why) if why.contains("standby")), "{refused}");
        for seq in 1..=20 {
            append_one(&on_primary.tiers, me, &grant, seq, seq % 4 == 0).await;
        }
        append_one(&on_primary.tiers, me, &grant, 21, false).await;
        server.kill();
        standby.promote();
        // Its holder goes on where the tail says.
        let on_standby = process(&way(&other)).await;
        let seen = append(&on_standby.tiers, batch(me, true, vec![offer(&grant, 22)])).await.remove(0);
        let tail = if seen.rows == 1 { 21 } else { seen.tail };
        assert!(seen.mine && (20..=21).contains(&tail), "{seen:?}");
        let stored = on_standby.tiers.catalog.read(grant.run).await.expect("a read is answered").expect("the run is there");
        assert_eq!(stored.recording.deltas.iter().map(|row| row.from).collect::<Vec<_>>(), (1..=seen.tail).collect::<Vec<_>>());
    });
}

#[test]
fn a_promoted_asynchronous_standby_may_lack_the_newest_and_its_holder_is_told() {
    let Pair { server, url, standby, other } = Pair::start(false);
    block_on(async {
        let (me, on_primary) = (incarnation(1), process(&way(&url)).await);
        let grants = owner(&on_primary.tiers, me, 2).await;
        append(&on_primary.tiers, batch(me, true, grants.iter().map(|grant| offer(grant, 1)).collect())).await;
        let mut eye = Session::of(&url).await;
        let now = eye.ask("SELECT pg_current_wal_lsn()::text").await;
        eye.until(&format!("SELECT bool_and(replay_lsn >= '{now}') FROM pg_stat_replication")).await;
        // From now on it hears nothing.
        standby.set("primary_conninfo", "");
        eye.until("SELECT NOT EXISTS (SELECT 1 FROM pg_stat_replication)").await;
        for seq in 2..=5 {
            append(&on_primary.tiers, batch(me, true, grants.iter().map(|grant| offer(grant, seq)).collect())).await;
        }
        server.kill();
        standby.promote();
        let on_standby = process(&way(&other)).await;
        // The gap: nothing is applied on top of what is missing, and the tail says from where to offer again.
        let seen = append(&on_standby.tiers, batch(me, true, vec![offer(&grants[0], 6)])).await.remove(0);
        assert_eq!((seen.mine, seen.rows, seen.tail), (true, 0, 1));
        assert_eq!(seen.mark, row(grants[0].run, grants[0].epoch, 1).mark, "of the line that its holder knows");
        for seq in 2..=6 {
            append_one(&on_standby.tiers, me, &grants[0], seq, true).await;
        }
        // The fork: somebody else went on from what was left.
        let evidence = Evidence::Silence { beat: 0, age: Duration::ZERO };
        on_standby.tiers.members.revoke(me, evidence).await.expect("a revoke is answered");
        join(&on_standby.tiers, incarnation(2)).await;
        let taken = claim_settled(&other, &on_standby, incarnation(2), 2).await;
        assert_eq!(taken.iter().find(|grant| grant.run == grants[1].run).map(|grant| grant.tail), Some(1));
        for grant in &taken {
            append_one(&on_standby.tiers, incarnation(2), grant, grant.tail + 1, true).await;
        }
        let seen = append(&on_standby.tiers, batch(me, true, vec![offer(&grants[1], 6)])).await.remove(0);
        assert_eq!((seen.mine, seen.rows, seen.tail), (false, 0, 2), "it has lost the run, and is told so");
    });
}

/// Claims on a server that was promoted, once it gives runs: its nodes have renewed for the longest lease, and had nothing to say.
async fn claim_settled(url: &str, process: &Process, node: Incarnation, limit: usize) -> Vec<Grant> {
    let mut eye = Session::of(url).await;
    // Of the server's clock nothing depends.
    for seq in 1_000.. {
        process.tiers.members.renew(node, Beat { seq, at: Boot::default(), lapsed: false }).await.expect("it is taken");
        assert_eq!(process.tiers.journal.vouch(Vec::new()).await.expect("it is heard"), []);
        if eye.ask("SELECT bool_and(settled)::text FROM lobster.timelines").await == "true" {
            break;
        }
        assert_eq!(claim(&process.tiers, node, limit).await, [], "somebody may live who knows better");
    }
    claim(&process.tiers, node, limit).await
}

/// What a holder knows of its run.
fn knows(grant: &Grant, tail: u64) -> Vouched {
    Vouched { run: grant.run, epoch: grant.epoch, tail, ended: false, held: None }
}

async fn vouch(process: &Process, vouched: &[Vouched]) -> Vec<(RunId, bool)> {
    let lacking = process.tiers.journal.vouch(vouched.to_vec()).await.expect("it is heard");
    let mut lacking: Vec<_> = lacking.into_iter().map(|of| (of.run, of.taken)).collect();
    lacking.sort_unstable();
    lacking
}

async fn summary(process: &Process, run: RunId) -> RunSummary {
    process.tiers.catalog.read(run).await.expect("a read is answered").expect("the run is there").summary
}

#[test]
fn what_a_promoted_standby_lacks_is_held_before_anybody_is_given_a_run() {
    let Pair { server, url, standby, other } = Pair::start(false);
    block_on(async {
        let (me, on_primary) = (incarnation(1), process(&way(&url)).await);
        join(&on_primary.tiers, me).await;
        on_primary.tiers.journal.submit((1..=5).map(new_run).collect()).await.expect("a submit is answered");
        let early = claim(&on_primary.tiers, me, 2).await;
        append(&on_primary.tiers, batch(me, true, early.iter().map(|grant| offer(grant, 1)).collect())).await;
        let mut eye = Session::of(&url).await;
        let now = eye.ask("SELECT pg_current_wal_lsn()::text").await;
        eye.until(&format!("SELECT bool_and(replay_lsn >= '{now}') FROM pg_stat_replication")).await;
        standby.set("primary_conninfo", "");
        eye.until("SELECT NOT EXISTS (SELECT 1 FROM pg_stat_replication)").await;
        // A row of the first, and two claims, are lost.
        append_one(&on_primary.tiers, me, &early[0], 2, true).await;
        let late = claim(&on_primary.tiers, me, 2).await;
        server.kill();
        standby.promote();

        let (on_standby, you) = (process(&way(&other)).await, incarnation(2));
        join(&on_standby.tiers, you).await;
        assert_eq!(claim(&on_standby.tiers, you, 5).await, [], "somebody may live who knows better");
        // The first renewals are reasons to vouch.
        let before = on_standby.tiers.members.history();
        on_standby.tiers.members.renew(you, Beat { seq: 1, at: Boot::default(), lapsed: false }).await.expect("it is taken");
        assert_ne!(on_standby.tiers.members.history(), before);
        let vouched = [knows(&early[0], 2), knows(&early[1], 1), knows(&late[0], 0), knows(&late[1], 0)];
        // What somebody has locked is said to be so.
        let mut person = Session::of(&other).await;
        person.tell("BEGIN").await;
        person.ask(&format!("SELECT task FROM lobster.runs WHERE id = '{}' FOR UPDATE", late[0].run)).await;
        assert_eq!(vouch(&on_standby, &vouched).await, [(run_id(1), true), (run_id(3), false), (run_id(4), true)]);
        person.tell("ROLLBACK").await;
        assert_eq!(vouch(&on_standby, &vouched).await, [(run_id(3), true)], "once is enough of the others");
        for run in [1, 3, 4].map(run_id) {
            let held = summary(&on_standby, run).await;
            assert_eq!((held.state, held.owner, held.epoch), (RunState::Held, None, 1));
            assert!(held.reason.starts_with("forked recording: "), "{}", held.reason);
        }
        // Somebody else held one of them later than the first that speaks of it: its token is the one that must not fall.
        let later = Vouched { epoch: 7, ..knows(&late[0], 0) };
        assert_eq!(vouch(&on_standby, &[later]).await, [(run_id(3), true)]);
        assert_eq!(vouch(&on_standby, &vouched).await, []);
        assert_eq!(summary(&on_standby, run_id(3)).await.epoch, 7);

        let taken = claim_settled(&other, &on_standby, you, 5).await;
        assert_eq!(taken.iter().map(|grant| grant.run).collect::<Vec<_>>(), [run_id(5)], "the others are held, or have an owner");
        let before = on_standby.tiers.members.history();
        on_standby
            .tiers
            .members
            .renew(you, Beat { seq: 1_000_000, at: Boot::default(), lapsed: false })
            .await
            .expect("it is taken");
        assert_eq!(on_standby.tiers.members.history(), before, "it is settled");
        // Of the second only its end was lost. Somebody had asked for its cancel: that is what becomes of it.
        let cancelled =
            on_standby.tiers.journal.cancel(run_id(2), outcome(run_id(2)), HostClock::now()).await.expect("it is heard");
        assert_eq!(cancelled, Cancelled::Asked);
        let ended = [Vouched { ended: true, ..knows(&early[1], 1) }];
        assert_eq!(vouch(&on_standby, &ended).await, [(run_id(2), true)]);
        assert_eq!(vouch(&on_standby, &ended).await, []);
        let again = claim(&on_standby.tiers, you, 5).await.remove(0);
        assert_eq!((again.run, again.epoch, again.cancel), (run_id(2), early[1].epoch + limits::EPOCH_LEAP, true));
    });
}

#[test]
fn who_claims_what_nobody_vouched_for_is_told_that_it_is_in_doubt() {
    let Pair { server, url, standby, other } = Pair::start(false);
    block_on(async {
        let (me, on_primary) = (incarnation(1), process(&way(&url)).await);
        join(&on_primary.tiers, me).await;
        on_primary.tiers.journal.submit((1..=3).map(new_run).collect()).await.expect("a submit is answered");
        let mine = claim(&on_primary.tiers, me, 3).await;
        append(&on_primary.tiers, batch(me, true, mine.iter().map(|grant| offer(grant, 1)).collect())).await;
        on_primary.tiers.journal.submit((4..=5).map(new_run).collect()).await.expect("a submit is answered");
        assert!(mine.iter().all(|grant| grant.doubt.is_none()), "{mine:?}");
        let mut eye = Session::of(&url).await;
        let now = eye.ask("SELECT pg_current_wal_lsn()::text").await;
        eye.until(&format!("SELECT bool_and(replay_lsn >= '{now}') FROM pg_stat_replication")).await;
        server.kill();
        standby.promote();

        let (on_standby, you) = (process(&way(&other)).await, incarnation(2));
        join(&on_standby.tiers, you).await;
        on_standby.tiers.journal.submit(vec![new_run(6)]).await.expect("a submit is answered");
        // The first is held by who says so, the second is not; of the third nobody says anything.
        let vouched = [Vouched { held: Some(me), ..knows(&mine[0], 1) }, Vouched { held: Some(you), ..knows(&mine[1], 1) }];
        assert_eq!(vouch(&on_standby, &vouched).await, []);
        let mut eye = Session::of(&other).await;
        assert_eq!(eye.ask("SELECT string_agg(timeline::text, ' ' ORDER BY id) FROM lobster.runs").await, "2 1 1 1 1 2");
        let first = claim_settled(&other, &on_standby, you, 1).await;
        assert_eq!(first.iter().map(|grant| (grant.run, grant.doubt)).collect::<Vec<_>>(), [(run_id(4), Some(0))]);
        // One that nobody had, and that was not due then, nor for a long time.
        eye.tell("UPDATE lobster.timelines SET noted = -7200000").await;
        let evidence = Evidence::Silence { beat: 0, age: Duration::ZERO };
        on_standby.tiers.members.revoke(me, evidence).await.expect("a revoke is answered");
        let doubts = async |grants: Vec<Grant>| {
            let mut doubts: Vec<_> = grants.into_iter().map(|grant| (grant.run, grant.doubt)).collect();
            doubts.sort_unstable();
            doubts
        };
        let all = claim(&on_standby.tiers, you, 9).await;
        // The token of the first goes on; of the others it is above what may have been given out.
        assert!(all.iter().all(|grant| grant.epoch > limits::EPOCH_LEAP || grant.doubt.is_none()), "{all:?}");
        assert_eq!(all.iter().filter(|grant| grant.epoch < 3).count(), 3);
        let expected = [(1, None), (2, Some(1)), (3, Some(1)), (5, None), (6, None)].map(|(run, doubt)| (run_id(run), doubt));
        assert_eq!(doubts(all).await, expected);
        // Whoever comes later is told the same, of the epoch that the promotion found.
        on_standby.tiers.members.leave(you).await.expect("a farewell is answered");
        join(&on_standby.tiers, incarnation(3)).await;
        let again = claim(&on_standby.tiers, incarnation(3), 9).await;
        assert!(again.iter().all(|grant| grant.epoch % limits::EPOCH_LEAP <= 3), "once is enough: {again:?}");
        let mut expected = expected.to_vec();
        expected.insert(3, (run_id(4), Some(0)));
        assert_eq!(doubts(again).await, expected);
        // A person says that this is a backup: the statement of the guide.
        eye.tell("UPDATE lobster.runs SET doubt = epoch, epoch = epoch + 1048576 WHERE ended IS NULL").await;
        on_standby.tiers.members.leave(incarnation(3)).await.expect("a farewell is answered");
        join(&on_standby.tiers, incarnation(4)).await;
        let restored = claim(&on_standby.tiers, incarnation(4), 9).await;
        assert!(
            restored.len() == 6 && restored.iter().all(|grant| grant.doubt == Some(grant.epoch - limits::EPOCH_LEAP - 1)),
            "{restored:?}"
        );
        // And that nothing is lost although the number is another one.
        let number = "('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int8";
        eye.tell("UPDATE lobster.runs SET timeline = 1, doubt = NULL").await;
        eye.tell(&format!("UPDATE lobster.runs SET timeline = {number} WHERE ended IS NULL")).await;
        on_standby.tiers.members.leave(incarnation(4)).await.expect("a farewell is answered");
        join(&on_standby.tiers, incarnation(5)).await;
        let moved = claim(&on_standby.tiers, incarnation(5), 9).await;
        assert!(moved.len() == 6 && moved.iter().all(|grant| grant.doubt.is_none()), "{moved:?}");
    });
}

#[test]
fn a_promoted_standby_that_is_trusted_leaves_nothing_in_doubt() {
    let Pair { server, url, standby, other } = Pair::start(true);
    block_on(async {
        let on_primary = process(&way(&url)).await;
        join(&on_primary.tiers, incarnation(1)).await;
        on_primary.tiers.journal.submit((1..=4).map(new_run).collect()).await.expect("a submit is answered");
        // Said of the next server, before it is one: what the guide has for a planned switchover.
        let mut eye = Session::of(&url).await;
        let foretold = "INSERT INTO lobster.timelines (system, number, settled, noted, trusted)
            SELECT system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int8 + 1, false, 0, true
            FROM pg_control_system()";
        eye.tell(foretold).await;
        server.kill();
        standby.promote();

        let (process, you) = (process(&way(&other)).await, incarnation(2));
        join(&process.tiers, you).await;
        let told = claim_settled(&other, &process, you, 1).await;
        assert_eq!((told.len(), told[0].doubt), (1, None));
        // Nobody has said so; but this process takes every promoted server for a good one.
        let mut eye = Session::of(&other).await;
        eye.tell("UPDATE lobster.timelines SET trusted = false").await;
        let trusts = crate::kit::process(&with(&way(&other), "lobster_trust_promoted=true")).await;
        join(&trusts.tiers, incarnation(3)).await;
        assert_eq!(claim(&trusts.tiers, incarnation(3), 1).await[0].doubt, None);
        assert_eq!(claim(&process.tiers, you, 1).await[0].doubt, Some(0));
        // A word on one promotion is none on those before it.
        eye.tell("UPDATE lobster.timelines SET trusted = true").await;
        eye.tell("UPDATE lobster.runs SET timeline = -1, due = submitted WHERE state = 0").await;
        let late = claim(&process.tiers, you, 1).await.remove(0);
        assert_eq!(
            (late.doubt, late.epoch),
            (Some(0), 3 * limits::EPOCH_LEAP),
            "above what each of the three may have given out"
        );
    });
}

#[test]
fn a_run_that_is_offered_again_after_a_promotion_is_of_the_time_before_it() {
    let Pair { server, url, standby, other } = Pair::start(false);
    block_on(async {
        let proxy = Proxy::start(address(&server));
        let process = process(&proxy.url_through(&url)).await;
        let submit = async |number| process.tiers.journal.submit(vec![new_run(number)]).await;
        let mut eye = Session::of(&url).await;
        let now = eye.ask("SELECT pg_current_wal_lsn()::text").await;
        eye.until(&format!("SELECT bool_and(replay_lsn >= '{now}') FROM pg_stat_replication")).await;
        standby.set("primary_conninfo", "");
        eye.until("SELECT NOT EXISTS (SELECT 1 FROM pg_stat_replication)").await;
        // Created, and for all that anybody can know executed there; the answer is lost, and so is the row.
        proxy.cut_when_client_sends(b"key-7", true);
        let lost = failed(submit(7).await);
        assert!(matches!(lost, Failed::Unknown(_)), "{lost}");
        eye.until(&format!("SELECT EXISTS (SELECT 1 FROM lobster.runs WHERE id = '{}')", run_id(7))).await;
        server.kill();
        standby.promote();
        proxy.lead_to(address(&standby));
        proxy.cut();

        for number in [7, 8] {
            let created = loop {
                match submit(number).await {
                    Err(Failed::Unavailable(_)) => {}
                    answer => break answer.expect("the new primary answers"),
                }
            };
            assert_eq!(created, [Submitted::Created]);
        }
        let on_standby = crate::kit::process(&other).await;
        join(&on_standby.tiers, incarnation(2)).await;
        let mut grants = claim_settled(&other, &on_standby, incarnation(2), 9).await;
        grants.sort_unstable_by_key(|grant| grant.run);
        let doubts: Vec<_> = grants.into_iter().map(|grant| (grant.run, grant.doubt)).collect();
        assert_eq!(doubts, [(run_id(7), Some(0)), (run_id(8), None)]);
    });
}

#[test]
fn what_a_reader_is_told_is_on_the_synchronous_standby_too() {
    let Pair { server: _server, url, standby, .. } = Pair::start(true);
    block_on(async {
        let (me, writer, mut eye) = (incarnation(1), process(&way(&url)).await, Session::of(&url).await);
        let grants = owner(&writer.tiers, me, 2).await;
        append_one(&writer.tiers, me, &grants[0], 1, true).await;
        standby.pause();
        let finish = ends(&grants[0], 1, finish(grants[0].run, HostClock::now()));
        let ending = tokio::spawn({
            let journal = writer.tiers.journal.clone();
            async move { journal.append(batch(me, true, vec![finish])).await }
        });
        let submitted = tokio::spawn({
            let journal = writer.tiers.journal.clone();
            async move { journal.submit(vec![new_run(9)]).await }
        });
        let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let both = format!("SELECT count(*) = 2 FROM ({waiting}) AS w");
        eye.until(&both).await;
        // Who revokes a node ends its sessions: its commit is shown, and is not on the standby.
        eye.ask(&format!("SELECT count(pg_terminate_backend(pid)) FROM ({waiting}) AS w")).await;
        assert!(ending.await.expect("it ends").is_err() && submitted.await.expect("it ends").is_err());
        eye.until(&format!("SELECT state > 2 FROM lobster.runs WHERE id = '{}'", grants[0].run)).await;
        eye.until(&format!("SELECT EXISTS (SELECT 1 FROM lobster.runs WHERE id = '{}')", new_run(9).id)).await;

        let reader = process(&way(&url)).await;
        let runs = [grants[0].run];
        let (outcome, again) = (reader.tiers.catalog.outcomes(&runs), reader.tiers.journal.submit(vec![new_run(9)]));
        let mut answers = std::pin::pin!(async { tokio::join!(outcome, again) });
        tokio::select! {
            answers = &mut answers => panic!("told before it was on the standby: {answers:?}"),
            () = eye.until(&both) => {}
        }
        standby.resume();
        let (outcome, again) = soon(answers).await;
        assert!(outcome.expect("an answer")[0].as_ref().is_some_and(Option::is_some), "it has ended");
        assert!(matches!(again.expect("an answer")[..], [Submitted::Existing { same: true, .. }]));
        // One that has not ended needs no waiting for.
        standby.pause();
        let open = reader.tiers.catalog.outcomes(&[grants[1].run]).await.expect("an answer");
        assert_eq!(open, [Some(None)]);
        standby.resume();
    });
}

/// Two runs with a row each on both servers, of which the standby hears no more; and the way to the primary. Without a pooler: behind one
/// only new connections tell where they lead.
async fn two_histories(server: &Postgres, standby: &Postgres, url: &str) -> (Proxy, Process, Vec<Grant>) {
    let proxy = Proxy::start(address(server));
    let process = process(&proxy.url_through(&worker(url))).await;
    let grants = owner(&process.tiers, incarnation(1), 2).await;
    append(&process.tiers, batch(incarnation(1), true, grants.iter().map(|grant| offer(grant, 1)).collect())).await;
    let mut eye = Session::of(url).await;
    let now = eye.ask("SELECT pg_current_wal_lsn()::text").await;
    eye.until(&format!("SELECT bool_and(replay_lsn >= '{now}') FROM pg_stat_replication")).await;
    standby.set("primary_conninfo", "");
    eye.until("SELECT NOT EXISTS (SELECT 1 FROM pg_stat_replication)").await;
    (proxy, process, grants)
}

/// How many rows of a run a server has.
async fn rows(url: &str, grant: &Grant) -> String {
    Session::of(url).await.ask(&format!("SELECT count(*)::text FROM lobster.deltas WHERE run = '{}'", grant.run)).await
}

#[test]
fn an_old_primary_that_comes_back_is_not_spoken_to() {
    let Pair { server, url, standby, other } = Pair::start(false);
    block_on(async {
        let (me, (proxy, process, grants)) = (incarnation(1), two_histories(&server, &standby, &url).await);
        server.kill();
        standby.promote();
        proxy.lead_to(address(&standby));
        proxy.cut();
        insist(&process.tiers, me, &grants[0], 2, true).await;

        server.start_again();
        proxy.lead_to(address(&server));
        proxy.cut();
        // What its tables would take.
        loop {
            match process.tiers.journal.append(batch(me, true, vec![offer(&grants[1], 2)])).await {
                Err(Failed::Unavailable(why)) if why.contains("is it the old primary?") => break,
                // Of a connection that was cut.
                Err(Failed::Unavailable(_) | Failed::Unknown(_)) => {}
                answer => panic!("the old primary was asked: {answer:?}"),
            }
        }
        assert_eq!(rows(&url, &grants[1]).await, "1");
        proxy.lead_to(address(&standby));
        insist(&process.tiers, me, &grants[1], 2, true).await;
        assert_eq!((rows(&other, &grants[1]).await, rows(&url, &grants[1]).await), ("2".to_owned(), "1".to_owned()));
    });
}

#[test]
fn an_old_primary_that_lives_on_is_given_up_when_the_new_one_is_seen() {
    let Pair { server, url, standby, other } = Pair::start(false);
    block_on(async {
        let (me, (proxy, process, grants)) = (incarnation(1), two_histories(&server, &standby, &url).await);
        let ((begins, begun), (ends, ended)) = (oneshot::channel(), oneshot::channel::<()>());
        let lasts = tokio::spawn({
            let (tiers, Grant { run, epoch, .. }) = (process.tiers.clone(), grants[0].clone());
            let work: Work = Box::new(move |_| {
                Box::pin(async move {
                    begins.send(()).ok();
                    ended.await.ok();
                    Some(row(run, epoch, 2))
                })
            });
            async move { tiers.journal.transact(Hold { incarnation: me, run, epoch, head: 2, most: LONG }, work).await }
        });
        soon(begun).await.expect("the transaction begins");
        standby.promote();
        proxy.lead_to(address(&standby));
        append_one(&process.tiers, me, &grants[1], 2, true).await;
        assert_eq!(rows(&url, &grants[1]).await, "2", "nobody has told");

        // The lease has a connection of its own: its first leads to the new one.
        let beat = Beat { seq: 1, at: Boot::default(), lapsed: false };
        process.tiers.members.renew(me, beat).await.expect("the new primary takes beats");
        let heard = process.tiers.wake.hints();
        ends.send(()).expect("it waits");
        let late = failed(soon(lasts).await.expect("it does not panic"));
        assert!(matches!(&late, Failed::Unavailable(why) if why.contains("promoted")), "{late}");
        append_one(&process.tiers, me, &grants[0], 2, true).await;
        assert_eq!((rows(&other, &grants[0]).await, rows(&url, &grants[0]).await), ("2".to_owned(), "1".to_owned()));

        // Hints are heard of the new one.
        let (speaker, mut eye) = (crate::kit::process(&way(&other)).await, Session::of(&other).await);
        let speaks = async {
            loop {
                speaker.tiers.wake.hint();
                eye.ask("SELECT 1::text").await;
            }
        };
        soon(async {
            tokio::select! {
                _ = process.tiers.wake.hinted(heard) => {}
                () = speaks => {}
            }
        })
        .await;
    });
}

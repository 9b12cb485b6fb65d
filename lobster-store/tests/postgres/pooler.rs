//! Clients that freeze behind a pooler: their sessions belong to it, and are ended all the same once their node was revoked.

use crate::kit::*;
use lobster_servers::{
    pgbouncer::PgBouncer,
    proxy::Proxy,
    shared::{self, behind},
};
use lobster_store::contract::{Batch, Beat, Boot, Evidence, Failed, NewNode, Renewed, Revoked};
use std::time::Duration;

#[test]
fn a_pooler_that_is_gone_takes_no_lease_with_it_where_there_is_a_direct_way() {
    let url = shared::postgres();
    block_on(async {
        let (worker, me) = (worker(&url), incarnation(1));
        let pooler = PgBouncer::before(address(&url).port()).expect("PgBouncer can be started");
        let encoded: String = worker.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let pooled = with(&behind(&pooler.url(""), &worker), &format!("lobster_direct={encoded}"));
        let process = process(&pooled).await;
        let grant = owner(&process.tiers, me, 1).await.remove(0);
        append_one(&process.tiers, me, &grant, 1, true).await;
        let beat = |seq| Beat { seq, at: Boot::default(), lapsed: false };
        assert_eq!(process.tiers.members.renew(me, beat(1)).await.expect("it is taken"), Renewed::Good);
        pooler.kill();
        let failed = failed(process.tiers.journal.append(batch(me, true, vec![offer(&grant, 2)])).await);
        assert!(matches!(failed, Failed::Unavailable(_) | Failed::Unknown(_)), "{failed}");
        assert_eq!(process.tiers.members.renew(me, beat(2)).await.expect("it is taken"), Renewed::Good);
    });
}

/// A node with two runs freezes within the transaction in which it appends to the first; a person has locked the second.
fn frozen_behind_a_pooler(hidden: bool) {
    let url = shared::postgres();
    block_on(async {
        let pooler = PgBouncer::before(address(&url).port()).expect("PgBouncer can be started");
        let pooled = behind(&pooler.url(""), &worker(&url));
        let proxy = Proxy::start(address(&pooled));
        let freezes = process(&with(&proxy.url_through(&pooled), "lobster_deadline_ms=600000")).await;
        let other = process(&pooled).await;
        let (me, successor) = (incarnation(1), incarnation(2));
        let ttl = Duration::from_secs(1);
        let node = NewNode { incarnation: me, name: None, tasks: vec![task()], slots: 4, ttl };
        freezes.tiers.members.join(node).await.expect("nothing stands in the way of this join");
        for number in [1, 2] {
            create(&freezes.tiers, number).await;
        }
        let grants = claim(&freezes.tiers, me, 2).await;
        let (mut person, mut eye) = (Session::of(&url).await, Session::of(&url).await);
        if hidden {
            // As behind a pooler that gives its sessions a name of its own.
            eye.tell("UPDATE lobster.nodes SET connections = 'of nobody'").await;
        }
        let name = format!("person_{}", database(&url));
        eye.tell(&format!(
            "CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA lobster TO {name}; GRANT SELECT, UPDATE ON lobster.runs TO {name}"
        ))
        .await;
        let mut careless = Session::of(&role(&url, &name)).await;
        careless.tell(&format!("BEGIN; SELECT 1 FROM lobster.runs WHERE id = '{}' FOR UPDATE", grants[1].run)).await;

        // It waits for the row, and hears nothing any more when it gets it.
        person.tell(&format!("BEGIN; SELECT 1 FROM lobster.runs WHERE id = '{}' FOR UPDATE", grants[0].run)).await;
        let waits = Batch { patient: Some(LONG), ..batch(me, true, vec![offer(&grants[0], 1)]) };
        let (tiers, sent) = (freezes.tiers.clone(), waits.clone());
        let stuck = tokio::spawn(async move { tiers.journal.append(sent).await });
        let theirs = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        eye.until(&format!("SELECT EXISTS (SELECT 1 {theirs} AND wait_event_type = 'Lock')")).await;
        let session = eye.ask(&format!("SELECT pid {theirs} AND wait_event_type = 'Lock'")).await;
        proxy.hold_to_client(true);
        person.tell("COMMIT").await;
        eye.until(&format!("SELECT state = 'idle in transaction' {theirs} AND pid = {session}")).await;

        join(&other.tiers, successor).await;
        let evidence = Evidence::Silence { beat: 0, age: Duration::ZERO };
        let revoked = other.tiers.members.revoke(me, evidence).await.expect("a revoke waits for no run");
        assert_eq!(revoked, Revoked::Failed { suspects: Vec::new() });
        let takes = async {
            loop {
                other.tiers.journal.sweep(HostClock::now(), 1).await.expect("a sweep is answered");
                if let Some(grant) = claim(&other.tiers, successor, 2).await.pop() {
                    return grant;
                }
            }
        };
        let taken = soon(takes).await;
        assert_eq!((taken.run, taken.tail), (grants[0].run, 0), "nothing of the batch was stored");
        careless.tell("COMMIT").await;

        proxy.hold_to_client(false);
        let failed = failed(soon(stuck).await.expect("it does not panic"));
        assert!(failed.is_transient(), "{failed}");
        let seen = append(&freezes.tiers, waits).await.remove(0);
        assert!(!seen.mine && seen.rows == 0, "{seen:?}");
    });
}

#[test]
fn a_client_that_froze_behind_a_pooler_keeps_its_run_only_until_it_is_revoked() {
    frozen_behind_a_pooler(false);
}

#[test]
fn a_client_that_froze_behind_a_pooler_that_hides_its_name_keeps_its_run_for_a_ttl() {
    frozen_behind_a_pooler(true);
}

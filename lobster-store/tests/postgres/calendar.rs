//! A server whose calendar is wrong, or is set while everything runs: waits are as long as they were meant to be, and a beat that the
//! server cannot date is no silence.

use crate::kit::*;
use lobster_servers::postgres::{Durability, Postgres};
use lobster_store::{
    Tiers,
    contract::{
        Beat, Boot, Evidence, Incarnation, NewRun, NewVerdict, NodeState, Origin, Renewed, Revoked, RunId, Sealed, Then,
        VerdictAnswer,
        record::{Fate, Kind, StepName},
    },
};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Milliseconds from now, by the server, until a run is due.
async fn waits(eye: &mut Session, number: u64) -> i64 {
    let text = "SELECT due - (extract(epoch FROM clock_timestamp()) * 1000)::int8 FROM lobster.runs WHERE id =";
    eye.number(&format!("{text} '{}'", run_id(number))).await
}

fn is_an_hour(ms: i64) -> bool {
    (3_600_000 - 30_000..=3_600_000).contains(&ms)
}

/// A person's verdict on the intent at seq 1.
async fn verdict(tiers: &Tiers, run: RunId) {
    let step = StepName { scope: String::new(), name: "call".to_owned(), which: None };
    let fate = Sealed::new(Kind::Verdict, run, &Fate { happened: None, forced: false });
    let verdict = NewVerdict { run, step, intent: 1, tail: 1, origin: Origin::Person, fate, at: HostClock::now() };
    let answer = tiers.journal.verdict(verdict).await.expect("a verdict is answered");
    assert_eq!(answer, VerdictAnswer::Accepted);
}

async fn beat(tiers: &Tiers, incarnation: Incarnation, seq: u64) {
    let beat = Beat { seq, at: Boot::default(), lapsed: false };
    let renewed = tiers.members.renew(incarnation, beat).await.expect("a renewal is answered");
    assert_eq!(renewed, Renewed::Good);
}

#[test]
fn a_wait_is_as_long_as_it_was_meant_to_be_on_a_server_whose_calendar_is_wrong() {
    let server = Postgres::start_with_calendar(Durability::Fast).expect("a private server can be started");
    let url = server.fresh_database();
    block_on(async {
        let (process, mut eye) = (process(&way(&url)).await, Session::of(&url).await);
        let me = incarnation(1);
        join(&process.tiers, me).await;
        for (ahead, first) in [(60, 1), (-60, 11)] {
            server.set_calendar(ahead);
            let submit = async |number, due| {
                process.tiers.journal.submit(vec![NewRun { due, ..new_run(number) }]).await.expect("a submit is answered");
            };
            submit(first, HostClock::now()).await;
            submit(first + 1, HostClock::now().plus(HOUR)).await;
            let waits_for = waits(&mut eye, first + 1).await;
            assert!(is_an_hour(waits_for), "{waits_for} ms for an hour, {ahead} s ahead");
            let granted = claim(&process.tiers, me, 8).await;
            assert_eq!(granted.iter().map(|grant| grant.run).collect::<Vec<_>>(), [run_id(first)], "{ahead} s ahead");

            let due = HostClock::now().plus(HOUR);
            let evict = Then::Evict { due, wake: granted[0].wake, reason: "waits".to_owned() };
            assert!(append(&process.tiers, batch(me, true, vec![ends(&granted[0], 0, evict)])).await[0].then);
            let waits_for = waits(&mut eye, first).await;
            assert!(is_an_hour(waits_for), "{waits_for} ms for an hour, {ahead} s ahead");
        }
    });
}

#[test]
fn a_verdict_wakes_its_run_at_once_on_a_server_whose_calendar_is_wrong() {
    let server = Postgres::start_with_calendar(Durability::Fast).expect("a private server can be started");
    let url = server.fresh_database();
    block_on(async {
        let (process, me) = (process(&way(&url)).await, incarnation(1));
        join(&process.tiers, me).await;
        for (ahead, number) in [(60, 1), (-60, 2)] {
            server.set_calendar(ahead);
            create(&process.tiers, number).await;
            let grant = claim(&process.tiers, me, 1).await.remove(0);
            append_one(&process.tiers, me, &grant, 1, true).await;
            let hold = Then::Hold { wake: grant.wake, reason: "in doubt".to_owned() };
            assert!(append(&process.tiers, batch(me, true, vec![ends(&grant, 1, hold)])).await[0].then);
            verdict(&process.tiers, grant.run).await;
            let again = claim(&process.tiers, me, 1).await;
            assert_eq!(again.iter().map(|grant| grant.run).collect::<Vec<_>>(), [run_id(number)], "{ahead} s ahead");
        }
    });
}

#[test]
fn a_step_of_the_calendar_is_no_silence_and_a_silence_after_it_is_told() {
    let server = Postgres::start_with_calendar(Durability::Fast).expect("a private server can be started");
    let url = server.fresh_database();
    block_on(async {
        let process = process(&way(&url)).await;
        let me = incarnation(1);
        let age = async || {
            let peers = process.tiers.members.peers().await.expect("peers are answered");
            peers.into_iter().find(|peer| peer.incarnation == me && peer.state == NodeState::Active).expect("it joined").age
        };
        join(&process.tiers, me).await;
        beat(&process.tiers, me, 1).await;
        // Back: its beat is of the future, and has no age by which it could be taken for silent.
        server.set_calendar(-60);
        assert_eq!(age().await, None);
        let silence = Evidence::Silence { beat: 1, age: Duration::ZERO };
        let refused = process.tiers.members.revoke(me, silence).await.expect("a revoke is answered");
        assert_eq!(refused, Revoked::Refused);
        beat(&process.tiers, me, 2).await;
        assert!(age().await.is_some_and(|age| age < Duration::from_secs(30)));
        // Forward: it looks silent for a minute, which is why nobody believes the server's clock alone, until it beats.
        server.set_calendar(60);
        assert!(age().await.is_some_and(|age| age >= Duration::from_secs(60)));
        beat(&process.tiers, me, 3).await;
        for watched in [2, 3] {
            let silence = Evidence::Silence { beat: watched, age: Duration::from_secs(30) };
            let refused = process.tiers.members.revoke(me, silence).await.expect("a revoke is answered");
            assert_eq!(refused, Revoked::Refused, "it beats");
        }
        let silence = Evidence::Silence { beat: 3, age: Duration::ZERO };
        let revoked = process.tiers.members.revoke(me, silence).await.expect("a revoke is answered");
        assert_eq!(revoked, Revoked::Failed { suspects: Vec::new() });
    });
}

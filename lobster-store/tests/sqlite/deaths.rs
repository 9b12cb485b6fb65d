//! A dead process is told from a slow one, and any doubt means that it lives.

use crate::{children, kit::*, scratch::Scratch};
use lobster_store::{
    contract::{Beat, Boot, Catalog, Evidence, Incarnation, Journal, Members, NodeState, Renewed, Revoked},
    sqlite::Sqlite,
};
use std::{fs, path::PathBuf, sync::Arc, time::Duration};

async fn host_store(path: &std::path::Path) -> Arc<Sqlite> {
    Sqlite::open(path, Arc::new(HostClock)).await.expect("the store can be opened")
}

async fn revoke(store: &Sqlite, incarnation: Incarnation, evidence: Evidence) -> Revoked {
    store.revoke(incarnation, evidence).await.expect("a revoke is answered")
}

fn beat_file(dir: &Scratch, incarnation: Incarnation) -> PathBuf {
    dir.join(&format!("store.db.nodes/{incarnation}"))
}

#[test]
fn a_killed_process_is_revoked_and_its_runs_go_on() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let store = host_store(&path).await;
        let me = incarnation(1);
        join(&store, me).await;
        for number in 0..3 {
            create(&store, number).await;
        }
        let mut child = children::start("works", &path, 3);
        let dead: Incarnation = child.says("incarnation").parse().expect("it says its incarnation");
        store.peers().await.expect("peers are answered");
        assert!(!store.proves_dead(dead), "it lives");
        assert_eq!(revoke(&store, dead, Evidence::Death).await, Revoked::Refused);
        // Frozen is not dead.
        child.signal("-STOP");
        assert!(!store.proves_dead(dead));
        assert_eq!(revoke(&store, dead, Evidence::Death).await, Revoked::Refused);
        child.signal("-KILL");
        drop(child);
        // Where nothing can be proved, it takes the silence that a frozen process would be revoked for.
        assert_eq!(store.proves_dead(dead), PROVABLE);
        assert!(claim(&store, me, 10).await.is_empty(), "a proof is not yet a revoke");
        let evidence = match PROVABLE {
            true => Evidence::Death,
            false => {
                assert_eq!(revoke(&store, dead, Evidence::Death).await, Revoked::Refused);
                Evidence::Silence { beat: 0, age: Duration::ZERO }
            }
        };
        // It was polling the first run, and no longer the last.
        assert_eq!(revoke(&store, dead, evidence).await, Revoked::Failed { suspects: vec![run_id(0)] });
        let grants = claim(&store, me, 10).await;
        let counts: Vec<_> = grants.iter().map(|grant| (grant.run, grant.epoch, grant.attempts, grant.deaths)).collect();
        assert_eq!(counts, [(run_id(0), 2, 2, 1), (run_id(1), 2, 1, 0), (run_id(2), 2, 1, 0)]);
        assert_eq!(beat_file(&dir, dead).exists(), !PROVABLE);
    });
}

#[test]
fn a_living_sibling_in_this_very_process_is_not_dead() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let (one, other) = (open(&path).await, open(&path).await);
        join(&one, incarnation(1)).await;
        join(&other, incarnation(2)).await;
        for store in [&one, &other] {
            store.peers().await.expect("peers are answered");
            for number in [1, 2] {
                assert!(!store.proves_dead(incarnation(number)));
                assert_eq!(revoke(store, incarnation(number), Evidence::Death).await, Revoked::Refused);
            }
        }
        // Looking at the locks did not let go of them.
        drop(other);
        assert_eq!(one.proves_dead(incarnation(2)), PROVABLE);
        assert!(!one.proves_dead(incarnation(1)));
    });
}

#[test]
fn a_beat_file_that_was_made_anew_proves_nothing() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let (one, other) = (open(&path).await, open(&path).await);
        join(&other, incarnation(2)).await;
        one.peers().await.expect("peers are answered");
        let file = beat_file(&dir, incarnation(2));
        let bytes = fs::read(&file).expect("it is there");
        fs::remove_file(&file).expect("it is there");
        fs::write(&file, bytes).expect("the directory can be written");
        assert!(!one.proves_dead(incarnation(2)));
        assert_eq!(revoke(&one, incarnation(2), Evidence::Death).await, Revoked::Refused);
        // And its owner notices that nobody sees its beats any more.
        other
            .renew(incarnation(2), Beat { seq: 1, at: Boot::default(), lapsed: false })
            .await
            .expect_err("a beat that nobody sees");
    });
}

#[test]
fn a_file_of_rubbish_in_its_place_proves_nothing() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let (one, other) = (open(&path).await, open(&path).await);
        join(&other, incarnation(2)).await;
        for rubbish in [&b""[..], b"x", &[0; 200], &[255; 200]] {
            let file = beat_file(&dir, incarnation(2));
            fs::remove_file(&file).expect("it is there");
            fs::write(&file, rubbish).expect("the directory can be written");
            assert!(!one.proves_dead(incarnation(2)));
            let peer = one.peers().await.expect("peers are answered").remove(0);
            assert_eq!((peer.state, peer.beat), (NodeState::Active, 0));
        }
    });
}

#[test]
fn who_was_revoked_in_silence_finds_it_in_its_file() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let store = host_store(&path).await;
        create(&store, 0).await;
        let mut child = children::start("works", &path, 1);
        let other: Incarnation = child.says("incarnation").parse().expect("it says its incarnation");
        child.go();
        assert_eq!(child.says("renewed"), format!("{:?}", Renewed::Good));
        let peers = store.peers().await.expect("peers are answered");
        let (beat, age) = (peers[0].beat, peers[0].age.expect("it is of this boot"));
        assert_eq!(beat, 1);
        // Not old enough, and not the last one.
        let hour = Duration::from_secs(3600);
        assert_eq!(revoke(&store, other, Evidence::Silence { beat: 1, age: age + hour }).await, Revoked::Refused);
        assert_eq!(revoke(&store, other, Evidence::Silence { beat: 0, age }).await, Revoked::Refused);
        let revoked = revoke(&store, other, Evidence::Silence { beat: 1, age }).await;
        assert!(matches!(revoked, Revoked::Failed { .. }));
        child.go();
        assert_eq!(child.says("renewed"), format!("{:?}", Renewed::Revoked));
        child.end();
    });
}

#[test]
fn a_renewal_after_a_lapse_goes_through_the_row() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let store = open(&path).await;
        let me = incarnation(1);
        join(&store, me).await;
        let beat = |seq, lapsed| Beat { seq, at: Boot::default(), lapsed };
        let renew = async |seq, lapsed| store.renew(me, beat(seq, lapsed)).await.expect("a renewal is answered");
        assert_eq!(renew(1, false).await, Renewed::Good);
        assert_eq!(renew(2, true).await, Renewed::Good);
        assert_eq!(renew(3, false).await, Renewed::Good);
        // A beat that is not above the last one is somebody else's.
        assert_eq!(renew(3, false).await, Renewed::Revoked);
        assert_eq!(renew(3, true).await, Renewed::Revoked);
        assert_eq!(renew(4, true).await, Renewed::Good);
        // The watched beat is not the last one, whatever the file says.
        assert_eq!(revoke(&store, me, Evidence::Silence { beat: 3, age: Duration::ZERO }).await, Revoked::Refused);
    });
}

#[test]
fn a_renewal_does_not_wait_for_the_writer() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let store = open(&path).await;
        join(&store, incarnation(1)).await;
        let gate = fs::File::options().write(true).open(dir.join("store.db.gate")).expect("the gate is there");
        gate.lock().expect("nobody is in it");
        let submit = store.submit(vec![new_run(1)]);
        let renew = store.renew(incarnation(1), Beat { seq: 1, at: Boot::default(), lapsed: false });
        let renewed = async {
            assert_eq!(renew.await.expect("a renewal is answered"), Renewed::Good);
            assert!(store.find("key-1").await.expect("readers do not wait either").is_none());
            gate.unlock().expect("it is locked");
        };
        let (submitted, ()) = tokio::join!(submit, renewed);
        submitted.expect("the gate is open again");
    });
}

#[test]
fn files_of_those_who_are_over_are_cleared_away() {
    use lobster_store::contract::Wall;
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let (one, other) = (open(&path).await, open(&path).await);
        join(&one, incarnation(1)).await;
        join(&other, incarnation(2)).await;
        let silent = Evidence::Silence { beat: 0, age: Duration::ZERO };
        assert!(matches!(revoke(&one, incarnation(2), silent).await, Revoked::Failed { .. }));
        one.sweep(Wall(0), 10).await.expect("a sweep is answered");
        assert!(beat_file(&dir, incarnation(2)).exists(), "its process lives");
        drop(other);
        one.sweep(Wall(0), 10).await.expect("a sweep is answered");
        assert!(!beat_file(&dir, incarnation(2)).exists());
        assert!(beat_file(&dir, incarnation(1)).exists());
        assert_eq!(one.peers().await.expect("peers are answered").len(), 1);
        one.leave(incarnation(1)).await.expect("anybody may leave");
        assert!(!beat_file(&dir, incarnation(1)).exists());
        assert_eq!(one.count(Default::default()).await.expect("a count is answered"), 0);
    });
}

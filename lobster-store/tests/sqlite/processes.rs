//! Several processes on one file lose nothing, starve nobody, and may all come first.

#![allow(clippy::disallowed_methods, reason = "tests are applications, on a real runtime")]

use crate::{children, kit::*, scratch::Scratch};
use lobster_store::contract::{Catalog, Journal, Wake};
use std::time::Duration;

#[test]
fn many_processes_may_open_a_fresh_file_at_once() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    let children: Vec<_> = (0..8).map(|number| children::start("opens", &path, number)).collect();
    children.into_iter().for_each(children::Started::end);
    block_on(async {
        let store = open(&path).await;
        create(&store, 1).await;
    });
}

#[test]
fn several_processes_write_at_once_and_nobody_starves() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    let mut children: Vec<_> = (1..4).map(|number| children::start("submits", &path, number)).collect();
    for child in &mut children {
        child.says("ready");
    }
    children.iter_mut().for_each(children::Started::go);
    for mut child in children {
        let slowest = Duration::from_micros(child.says("slowest").parse().expect("it says a number"));
        // A lease lives longer than this; without the gate some wait for ten seconds.
        assert!(slowest < Duration::from_secs(5), "{slowest:?}");
        child.end();
    }
    block_on(async {
        let store = open(&path).await;
        assert_eq!(store.count(Default::default()).await.expect("a count is answered"), 600);
    });
}

#[test]
fn stores_of_one_process_take_turns() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let (one, other) = (open(&path).await, open(&path).await);
        let submits = async |store: &lobster_store::sqlite::Sqlite, from: u64| {
            for number in from..from + 100 {
                create(store, number).await;
            }
        };
        tokio::join!(submits(&one, 0), submits(&other, 1000));
        assert_eq!(one.count(Default::default()).await.expect("a count is answered"), 200);
    });
}

#[test]
fn two_submits_of_one_key_from_two_stores_are_one_run() {
    use lobster_store::contract::Submitted;
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let (one, other) = (open(&path).await, open(&path).await);
        for number in 0..50 {
            let mut twin = new_run(1000 + number);
            twin.key = new_run(number).key;
            let (a, b) = tokio::join!(one.submit(vec![new_run(number)]), other.submit(vec![twin]));
            let answers = [a.expect("a submit is answered")[0], b.expect("a submit is answered")[0]];
            assert_eq!(answers.iter().filter(|answer| **answer == Submitted::Created).count(), 1, "{answers:?}");
        }
    });
}

#[test]
fn a_hint_of_one_process_wakes_another() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let (one, other) = (open(&path).await, open(&path).await);
        let seen = (one.hints(), other.hints());
        one.hint();
        // Its own hint is there at once, the other one's within a few looks.
        assert_eq!(one.hinted(seen.0).await, seen.0 + 1);
        let waited = tokio::time::timeout(Duration::from_secs(20), other.hinted(seen.1)).await;
        assert_eq!(waited.expect("a hint arrives"), seen.1 + 1);
        // Told once, and not again.
        assert_eq!((one.hints(), other.hints()), (seen.0 + 1, seen.1 + 1));
        // What changes a run hints by itself.
        create(&other, 1).await;
        assert!(one.hints() > seen.0 + 1);
    });
}

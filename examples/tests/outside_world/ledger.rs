//! The ledger over its real door: once per key, receipts for ever, one ledger per file.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lobster_examples::figures::read_tables;
use lobster_examples::ledger::wire::{LINE_BYTES_MAX, Started, Watch};
use lobster_examples::ledger::{Act, Client, Fate, Kind, LedgerError, Receipt, find, find_or_start, serve};
use lobster_examples::options::Role;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

use crate::stand_in::Play;

const LONG: Duration = Duration::from_secs(60);

fn charge(key: &str, order: u32) -> Act {
    Act { key: key.to_owned(), kind: Kind::Charge, order, amount: Some(order.into()) }
}

async fn open(file: &Path) -> (JoinHandle<anyhow::Result<()>>, Client) {
    let served = file.to_owned();
    let server = tokio::spawn(async move { serve(&served, LONG).await });
    (server, Client::open(file, 1))
}

async fn end(server: JoinHandle<anyhow::Result<()>>, client: Client) {
    client.stop().await.expect("the ledger agrees to end");
    server.await.expect("the ledger does not panic").expect("the ledger ends well");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_holds_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ledger.db");
    let (server, client) = open(&file).await;
    let receipt = client.act(charge("a", 1)).await.expect("a new key is executed");
    assert_eq!(client.act(charge("a", 1)).await.expect("a repeated key has a receipt"), receipt);
    assert_eq!(client.close("b").await.expect("a new key can be closed"), Fate::Closed);
    assert_eq!(client.did_happen("c").await.expect("the ledger knows"), Fate::NotSeen);
    end(server, client).await;

    let (server, client) = open(&file).await;
    assert_eq!(client.did_happen("a").await.expect("the ledger knows"), Fate::Happened(receipt.clone()));
    assert_eq!(client.close("a").await.expect("it is too late to close it"), Fate::Happened(receipt.clone()));
    assert!(matches!(client.act(charge("b", 2)).await, Err(LedgerError::Closed)));
    assert!(matches!(client.act(charge("a", 2)).await, Err(LedgerError::Conflict(first)) if *first == receipt));
    assert!(matches!(client.act(charge("", 2)).await, Err(LedgerError::Invalid(_))));
    let counts = client.counts().await.expect("the ledger counts");
    assert_eq!((counts.executed, counts.refused, counts.requests), (1, 2, 9));
    end(server, client).await;
    let tables = read_tables(&file).await.expect("the file can be read");
    assert_eq!((tables.effects.len(), tables.refused), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_and_starts_are_written_down_as_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ledger.db");
    let (server, client) = open(&file).await;
    for attempt in [1, 2] {
        client.begun("price", 7, attempt, 3).await.expect("a body is noted");
    }
    client.started(Started { pid: 5, at_ms: 9, after_kill: true }).await.expect("a start is noted");
    end(server, client).await;
    let tables = read_tables(&file).await.expect("the file can be read");
    let bodies: Vec<_> = tables.bodies.iter().map(|body| (body.step.as_str(), body.order, body.pid)).collect();
    assert_eq!(bodies, [("price", 7, std::process::id()); 2]);
    assert_eq!(tables.starts, [Started { pid: 5, at_ms: 9, after_kill: true }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_count_is_told_and_new_calls_wait_at_the_hold() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, watcher) = open(&folder.path().join("ledger.db")).await;
    let client = Client::open(&folder.path().join("ledger.db"), 1);
    let pid = std::process::id();
    let watching = tokio::spawn({
        let watcher = watcher.clone();
        async move { watcher.reached(Watch { executed: 1, hold: 2, pids: vec![pid + 1, pid] }).await }
    });
    client.act(charge("a", 1)).await.expect("a new key is executed");
    assert!(!watching.is_finished(), "this process has begun no body");
    client.begun("charge", 1, 1, 1).await.expect("a body is noted");
    watching.await.expect("the watcher does not panic").expect("the count is reached");

    client.act(charge("b", 2)).await.expect("the hold is not reached yet");
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.act(charge("c", 3)).await }
    });
    client.act(charge("a", 1)).await.expect("a known key is answered");
    assert_eq!(client.did_happen("c").await.expect("the ledger knows"), Fate::NotSeen);
    assert!(!waiting.is_finished());
    watcher.release().await.expect("a release is noted");
    waiting.await.expect("the client does not panic").expect("a released call is executed");
    drop(client);
    end(server, watcher).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_given_up_before_it_left_is_never_executed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ledger.db");
    let client = Client::open(&file, 1);
    let given_up = tokio::time::timeout(Duration::from_millis(50), client.act(charge("a", 1))).await;
    assert!(given_up.is_err(), "there is no ledger yet");
    let served = file.clone();
    let server = tokio::spawn(async move { serve(&served, LONG).await });
    client.act(charge("b", 2)).await.expect("the client comes to the new ledger by itself");
    assert_eq!(client.did_happen("a").await.expect("the ledger knows"), Fate::NotSeen);
    end(server, client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_file_has_one_ledger_and_one_that_nobody_uses_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ledger.db");
    let (server, client) = open(&file).await;
    client.counts().await.expect("the ledger is up");
    let refused = serve(&file, LONG).await.expect_err("the file is taken");
    assert!(refused.to_string().contains("another ledger serves"), "{refused}");
    assert!(find(&file).await, "the first one lives on");
    end(server, client).await;

    serve(&file, Duration::from_millis(20)).await.expect("an idle ledger ends well");
    assert!(!find(&file).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_ends_its_own_connection_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ledger.db");
    let (server, client) = open(&file).await;
    client.counts().await.expect("the ledger is up");
    let port = std::fs::read_to_string(folder.path().join("ledger.db.port")).expect("the port is published");
    let port: u16 = port.trim().parse().expect("it is a port");
    for nonsense in [b"{}\n".to_vec(), vec![b'x'; 2 * LINE_BYTES_MAX], b"\xff\xfe\n".to_vec()] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the door is open");
        // The ledger may close while this is still being written.
        let _closed = stream.write_all(&nonsense).await;
        let _reset = stream.read_to_end(&mut Vec::new()).await;
    }
    client.act(charge("a", 1)).await.expect("others go on");
    end(server, client).await;
}

/// 64 calls in flight, the ledger killed again and again: whoever got a receipt finds exactly it in the file.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_ledger_loses_nothing_it_has_answered() {
    const KILLS: usize = 5;
    let folder = tempfile::tempdir().expect("a folder");
    let play = Play::new(folder.path(), 0);
    let file = play.ledger();
    let client = Client::open(&file, 4);
    let mut calls = JoinSet::new();
    for caller in 0..64_u32 {
        let client = client.clone();
        calls.spawn(async move {
            let mut receipts = BTreeMap::new();
            for call in 0..100_u32 {
                let key = format!("{caller}-{call}");
                let receipt = client.act(charge(&key, caller * 1_000 + call)).await.expect("a ledger comes back in time");
                receipts.insert(key, receipt);
            }
            receipts
        });
    }
    for kill in 1..=KILLS {
        let mut ledger = play.command(Role::Ledger).stdout(Stdio::null()).spawn().expect("the ledger can be started");
        let enough = 6_400 * kill as u64 / (KILLS as u64 + 1);
        loop {
            let counts = client.counts().await.expect("the new ledger answers");
            if counts.executed >= enough {
                break;
            }
        }
        ledger.kill().expect("the ledger can be killed");
        ledger.wait().expect("the ledger is dead");
    }
    find_or_start(&file, || play.command(Role::Ledger)).await.expect("the last ledger comes up");
    let mut receipts: BTreeMap<String, Receipt> = BTreeMap::new();
    while let Some(given) = calls.join_next().await {
        receipts.extend(given.expect("no caller panics"));
    }
    assert_eq!(receipts.len(), 6_400);
    for (key, receipt) in &receipts {
        assert_eq!(client.did_happen(key).await.expect("the ledger knows"), Fate::Happened(receipt.clone()));
    }
    drop(client);
    Client::open(&file, 1).stop().await.expect("the ledger agrees to end");
    let tables = read_tables(&file).await.expect("the file can be read");
    let keys: BTreeMap<_, _> = tables.effects.iter().map(|effect| (effect.key.clone(), effect.order)).collect();
    assert_eq!((keys.len(), tables.effects.len()), (6_400, 6_400));
}

//! What these tests make their runs, nodes and batches with.
//!
//! Invariant: no randomness; what is made is told apart by numbers.

use bytes::Bytes;
use lobster_store::{
    conformance::TestClock,
    contract::{
        Answer, Batch, Boot, Claim, Clock, Failed, Grant, Incarnation, Journal, Members, NewNode, NewRun, Offer, Row, RunId,
        RunState, Sealed, Seen, Snapshot, StoredPart, Submitted, TaskVersion, Then, Wall,
        record::{Ending, Input, Kind, Manifest, MemberParts, Outcome, Part, PartRef, StateParts, Whole},
    },
    sqlite::Sqlite,
};
use std::{path::Path, sync::Arc, time::Duration};
use uuid::{Builder, Uuid};

pub const TTL: Duration = Duration::from_secs(10);

/// Can the death of a process be proved on this system?
pub const PROVABLE: bool = cfg!(all(target_os = "linux", not(lobster_portable)));

/// The clock of this host, so that several processes agree.
#[derive(Debug)]
pub struct HostClock;

impl Clock for HostClock {
    fn boot(&self) -> Boot {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Boot(Duration::new(
            u64::try_from(now.tv_sec).expect("no boot is in the future"),
            u32::try_from(now.tv_nsec).expect("under a second"),
        ))
    }
    fn wall(&self) -> Wall {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Wall(now.tv_sec * 1000 + now.tv_nsec / 1_000_000)
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a test may start two threads").block_on(future)
}

pub async fn open(path: &Path) -> Arc<Sqlite> {
    try_open(path).await.expect("the store can be opened")
}

pub async fn try_open(path: &Path) -> Result<Arc<Sqlite>, Failed> {
    Sqlite::open(path, TestClock::new()).await
}

pub fn task() -> TaskVersion {
    TaskVersion { task: "work".to_owned(), version: 1 }
}

/// The run with this number.
pub fn run_id(number: u64) -> RunId {
    let mut tail = [0; 10];
    tail[2..].copy_from_slice(&number.to_be_bytes());
    RunId(Builder::from_unix_timestamp_millis(1_780_000_000_000, &tail).into_uuid())
}

pub fn incarnation(number: u64) -> Incarnation {
    Incarnation(Builder::from_random_bytes(u128::from(number).to_be_bytes()).into_uuid())
}

pub fn new_run(number: u64) -> NewRun {
    let id = run_id(number);
    let input = Sealed::new(Kind::Input, id, &Input { payload: None });
    NewRun {
        id,
        key: Some(format!("key-{number}")),
        digest: [1; 32],
        task: task(),
        tags: vec!["tag".to_owned()],
        due: Wall(0),
        input,
    }
}

pub async fn create(store: &Sqlite, number: u64) -> RunId {
    let answers = store.submit(vec![new_run(number)]).await.expect("a submit is answered");
    assert_eq!(answers, [Submitted::Created]);
    run_id(number)
}

pub fn new_node(incarnation: Incarnation) -> NewNode {
    NewNode { incarnation, name: None, tasks: vec![task()], slots: 4, ttl: TTL }
}

pub async fn join(store: &Sqlite, incarnation: Incarnation) {
    store.join(new_node(incarnation)).await.expect("nothing stands in the way of this join");
}

pub fn asks(incarnation: Incarnation, limit: usize) -> Claim {
    Claim { incarnation, tasks: vec![task()], limit, alone: false, now: Wall(i64::MAX / 2) }
}

pub async fn claim(store: &Sqlite, incarnation: Incarnation, limit: usize) -> Vec<Grant> {
    store.claim(asks(incarnation, limit)).await.expect("a claim is answered")
}

pub fn row(run: RunId, epoch: u64, seq: u64, bytes: usize) -> Row {
    let body = Bytes::from(vec![u8::try_from(seq % 251).expect("under 251"); bytes]);
    Row::new(run, epoch, seq, seq, Some(body), None)
}

/// A row with both halves.
pub fn full_row(run: RunId, epoch: u64, seq: u64, bytes: usize) -> Row {
    let body = row(run, epoch, seq, bytes).deltas.map(|half| half.body);
    Row::new(run, epoch, seq, seq, body.clone(), body)
}

pub fn part(run: RunId, id: u64, bytes: usize) -> StoredPart {
    let data = Bytes::from(vec![u8::try_from(id % 251).expect("under 251"); bytes]);
    StoredPart { id, sealed: Part { whole: Some(Whole::Value(data)) }.seal(run, id) }
}

/// A manifest that names these parts.
pub fn manifest(run: RunId, seq: u64, parts: &[StoredPart]) -> Sealed {
    let refer =
        |part: &StoredPart| PartRef { id: part.id, crc: part.sealed.crc, bytes: part.sealed.body.len() as u64, segment: part.id };
    let members = vec![MemberParts { member: "total".to_owned(), parts: parts.iter().map(refer).collect() }];
    let states = vec![StateParts { members, ..StateParts::default() }];
    Sealed::new(Kind::Manifest, run, &Manifest { seq, states, ..Manifest::default() })
}

/// Ids and checksums of the parts that a snapshot's manifest names.
pub fn named(run: RunId, snapshot: &Snapshot) -> Vec<(u64, u32)> {
    let manifest: Manifest = snapshot.manifest.open(Kind::Manifest, run).expect("a manifest comes back as it was stored");
    assert_eq!(manifest.seq, snapshot.seq);
    let parts = manifest.states.iter().flat_map(|state| &state.members).flat_map(|member| &member.parts);
    parts.map(|part| (part.id, part.crc)).collect()
}

/// One row at `seq`.
pub fn offer(grant: &Grant, seq: u64, bytes: usize) -> Offer {
    let rows = vec![row(grant.run, grant.epoch, seq, bytes)];
    Offer { run: grant.run, epoch: grant.epoch, head: seq, rows, progress: true, then: None }
}

pub fn outcome(run: RunId) -> Sealed {
    Sealed::new(Kind::Outcome, run, &Outcome { ending: Some(Ending::Cancelled("done".to_owned())) })
}

pub fn finish(grant: &Grant, tail: u64, at: Wall) -> Offer {
    let then = Some(Then::Finish { state: RunState::Succeeded, outcome: outcome(grant.run), at });
    Offer { run: grant.run, epoch: grant.epoch, head: tail + 1, rows: Vec::new(), progress: false, then }
}

pub async fn append(store: &Sqlite, incarnation: Incarnation, synced: bool, offers: Vec<Offer>) -> Vec<Seen> {
    let answers = store.append(Batch { incarnation, synced, patient: None, offers }).await.expect("an append is answered");
    let seen = |answer| match answer {
        Answer::Seen(seen) => seen,
        Answer::Busy => panic!("no row of a SQLite file is ever busy"),
    };
    answers.into_iter().map(seen).collect()
}

/// An id that no other call returns, in this process or another.
pub fn fresh_incarnation() -> Incarnation {
    let now = HostClock.boot().nanos();
    Incarnation(Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{} {now}", std::process::id()).as_bytes()))
}

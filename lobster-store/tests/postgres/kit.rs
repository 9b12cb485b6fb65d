//! What these tests make their stores, runs, nodes and batches with, and a second session for what a person or a rival does.
//!
//! Invariant: no randomness but the names of databases; what is made is told apart by numbers.

use bytes::Bytes;
use lobster_servers::shared::{as_member, by_the_pooler};
use lobster_store::{
    Tiers,
    contract::{
        Answer, Batch, Boot, Claim, Clock, Failed, Fold, Grant, Incarnation, NewNode, NewRun, Offer, Row, RunId, RunState,
        Sealed, Seen, StoredPart, Submitted, TaskVersion, Then, Wall,
        record::{Ending, Input, Kind, Manifest, MemberParts, Outcome, Part, PartRef, StateParts, Whole},
    },
    postgres::{Options, Postgres, SCHEMA, roles, sql},
};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row as _};
use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;
use uuid::Builder;

/// Longer than anything takes on a slow machine.
pub const LONG: Duration = Duration::from_secs(60);

/// The clock of this host. The server has its own.
#[derive(Debug)]
pub struct HostClock;

impl Clock for HostClock {
    fn boot(&self) -> Boot {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).expect("no boot is in the future");
        Boot(Duration::new(seconds, u32::try_from(now.tv_nsec).expect("under a second")))
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

/// What must come does come.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.expect("it comes in time")
}

// ---- stores ---------------------------------------------------------------------------------------------------------

/// A process's own view of a store: its connections, and its directory for slots.
pub struct Process {
    pub tiers: Tiers,
    _local: TempDir,
}

/// Opens what a URL names, with its parameters.
pub async fn try_open(url: &str, local: &Path) -> Result<Arc<Postgres>, Failed> {
    Postgres::open(Options::from_url(url)?.local_path(local), Arc::new(HostClock)).await
}

/// As one more host: no proofs of death.
pub async fn try_process(url: &str) -> Result<Process, Failed> {
    let local = tempfile::tempdir().expect("a directory can be made");
    let store = try_open(url, local.path()).await?;
    Ok(Process { tiers: Tiers::of(store, "postgres"), _local: local })
}

pub async fn process(url: &str) -> Process {
    try_process(url).await.expect("the store can be opened")
}

/// The same URL with one more parameter.
pub fn with(url: &str, parameter: &str) -> String {
    format!("{url}{}{parameter}", if url.contains('?') { '&' } else { '?' })
}

/// The same URL for another role.
pub fn role(url: &str, role: &str) -> String {
    let (_, rest) = url.split_once('@').expect("URLs of tests name a role");
    format!("postgres://{role}@{rest}")
}

/// What somebody applies who makes an installation for people of least privilege.
pub fn schema() -> String {
    [sql(SCHEMA, 0), roles(SCHEMA)].concat()
}

/// The same URL for a role that may do no more than a worker; somebody else makes the schema.
pub fn worker(url: &str) -> String {
    as_member(url, "lobster_worker", &schema())
}

/// By which a process of these tests reaches a database: as a worker, and by the pooler if the run has one.
pub fn way(url: &str) -> String {
    by_the_pooler(&worker(url))
}

/// The database that a URL names.
pub fn database(url: &str) -> &str {
    url.rsplit_once('/').map_or("", |(_, rest)| rest.split('?').next().unwrap_or(""))
}

// ---- a session of somebody else -------------------------------------------------------------------------------------

/// A session of somebody who knows SQL.
pub struct Session(PgConnection);

impl Session {
    pub async fn of(url: &str) -> Self {
        Self::try_of(url).await.expect("the server takes a connection")
    }

    pub async fn try_of(url: &str) -> Result<Self, sqlx::Error> {
        PgConnection::connect(url).await.map(Self)
    }

    pub async fn try_tell(&mut self, text: &str) -> Result<(), sqlx::Error> {
        self.0.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.map(drop)
    }

    pub async fn tell(&mut self, text: &str) {
        self.try_tell(text).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    /// The first column of each row, as text.
    pub async fn column(&mut self, text: &str) -> Vec<String> {
        let rows = self.0.fetch_all(sqlx::raw_sql(AssertSqlSafe(text))).await;
        let rows = rows.unwrap_or_else(|error| panic!("{text}: {error}"));
        rows.iter().map(|row| row.try_get_unchecked::<Option<String>, _>(0).expect("a text").unwrap_or_default()).collect()
    }

    /// The first column of the first row, as text; empty for none and for NULL.
    pub async fn ask(&mut self, text: &str) -> String {
        self.column(text).await.into_iter().next().unwrap_or_default()
    }

    pub async fn number(&mut self, text: &str) -> i64 {
        let found = self.ask(text).await;
        found.parse().unwrap_or_else(|_| panic!("{text}: {found:?} is no number"))
    }

    pub async fn is(&mut self, text: &str) -> bool {
        self.ask(text).await == "t"
    }

    /// Asks until it is true.
    pub async fn until(&mut self, text: &str) {
        let asks = async { while !self.is(text).await {} };
        tokio::time::timeout(LONG, asks).await.unwrap_or_else(|_| panic!("never true: {text}"));
    }
}

// ---- runs, nodes, batches -------------------------------------------------------------------------------------------

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
    let key = Some(format!("key-{number}"));
    NewRun { id, key, digest: [1; 32], task: task(), tags: vec!["tag".to_owned()], due: Wall(0), input }
}

pub async fn create(tiers: &Tiers, number: u64) -> RunId {
    let answers = tiers.journal.submit(vec![new_run(number)]).await.expect("a submit is answered");
    assert_eq!(answers, [Submitted::Created]);
    run_id(number)
}

pub async fn join(tiers: &Tiers, incarnation: Incarnation) {
    let node = NewNode { incarnation, name: None, tasks: vec![task()], slots: 4, ttl: Duration::from_secs(10) };
    tiers.members.join(node).await.expect("nothing stands in the way of this join");
}

pub fn asks(incarnation: Incarnation, limit: usize) -> Claim {
    Claim { incarnation, tasks: vec![task()], limit, alone: false, now: Wall(i64::MAX / 2) }
}

pub async fn claim(tiers: &Tiers, incarnation: Incarnation, limit: usize) -> Vec<Grant> {
    tiers.journal.claim(asks(incarnation, limit)).await.expect("a claim is answered")
}

/// A node that owns so many runs, numbered from 1, each without any row.
pub async fn owner(tiers: &Tiers, owner: Incarnation, runs: u64) -> Vec<Grant> {
    join(tiers, owner).await;
    let made = tiers.journal.submit((1..=runs).map(new_run).collect()).await.expect("a submit is answered");
    assert!(made.iter().all(|made| *made == Submitted::Created));
    let mut grants = claim(tiers, owner, runs as usize).await;
    assert_eq!(grants.len() as u64, runs);
    grants.sort_by_key(|grant| grant.run);
    grants
}

/// A row with both halves.
pub fn row(run: RunId, epoch: u64, seq: u64) -> Row {
    let body = Bytes::from(format!("row {seq} of epoch {epoch}"));
    Row::new(run, epoch, seq, seq, Some(body.clone()), Some(body))
}

/// One row at `seq`.
pub fn offer(grant: &Grant, seq: u64) -> Offer {
    let rows = vec![row(grant.run, grant.epoch, seq)];
    Offer { run: grant.run, epoch: grant.epoch, head: seq, rows, progress: true, then: None }
}

/// No row, after `tail`; something becomes of the run.
pub fn ends(grant: &Grant, tail: u64, then: Then) -> Offer {
    Offer { run: grant.run, epoch: grant.epoch, head: tail + 1, rows: Vec::new(), progress: false, then: Some(then) }
}

pub fn outcome(run: RunId) -> Sealed {
    Sealed::new(Kind::Outcome, run, &Outcome { ending: Some(Ending::Cancelled("done".to_owned())) })
}

pub fn finish(run: RunId, at: Wall) -> Then {
    Then::Finish { state: RunState::Succeeded, outcome: outcome(run), at }
}

pub fn batch(incarnation: Incarnation, synced: bool, offers: Vec<Offer>) -> Batch {
    Batch { incarnation, synced, patient: None, offers }
}

pub async fn append(tiers: &Tiers, batch: Batch) -> Vec<Seen> {
    let seen = |answer| match answer {
        Answer::Seen(seen) => seen,
        Answer::Busy => panic!("nobody else has locked this row"),
    };
    tiers.journal.append(batch).await.expect("an append is answered").into_iter().map(seen).collect()
}

/// Appends a row until it is told what became of it; how often it was not.
pub async fn insist(tiers: &Tiers, owner: Incarnation, grant: &Grant, seq: u64, synced: bool) -> u32 {
    let mut asked = 0;
    loop {
        match tiers.journal.append(batch(owner, synced, vec![offer(grant, seq)])).await {
            Ok(answers) => match &answers[0] {
                Answer::Seen(seen) => {
                    assert!(seen.mine && seen.tail == seq, "{seen:?} for {seq}");
                    assert!(
                        seen.rows == 1 || seen.mark == row(grant.run, grant.epoch, seq).mark,
                        "it is there already, and it is ours"
                    );
                    return asked;
                }
                // Of a session that has not noticed yet that its client is gone.
                Answer::Busy => {}
            },
            Err(Failed::Unavailable(_) | Failed::Unknown(_)) => asked += 1,
            Err(failed) => panic!("{failed}"),
        }
    }
}

/// Appends one row at `seq`, which must follow the tail.
pub async fn append_one(tiers: &Tiers, owner: Incarnation, grant: &Grant, seq: u64, synced: bool) {
    let seen = append(tiers, batch(owner, synced, vec![offer(grant, seq)])).await;
    assert_eq!((seen[0].rows, seen[0].mine, seen[0].tail), (1, true, seq));
}

/// A fold from nothing to `seq`, of one part.
pub fn fold(grant: &Grant, incarnation: Incarnation, seq: u64) -> Fold {
    let run = grant.run;
    let sealed = Part { whole: Some(Whole::Value(Bytes::from_static(b"part"))) }.seal(run, 1);
    let refer = PartRef { id: 1, crc: sealed.crc, bytes: sealed.body.len() as u64, segment: 1 };
    let members = vec![MemberParts { member: "total".to_owned(), parts: vec![refer] }];
    let manifest = Manifest { seq, states: vec![StateParts { members, ..StateParts::default() }], ..Manifest::default() };
    let manifest = Sealed::new(Kind::Manifest, run, &manifest);
    Fold {
        incarnation,
        run,
        epoch: grant.epoch,
        base: 0,
        seq,
        manifest,
        parts: vec![StoredPart { id: 1, sealed }],
        dropped: vec![],
    }
}

impl HostClock {
    pub fn now() -> Wall {
        Self.wall()
    }
    pub fn since_boot() -> Duration {
        Self.boot().0
    }
}

/// What a call failed with.
pub fn failed<T>(answer: Result<T, Failed>) -> Failed {
    answer.map(|_| ()).expect_err("this call cannot succeed")
}

/// Where the server of a URL listens.
pub fn address(url: &str) -> SocketAddr {
    let host = url.split_once('@').map_or("", |(_, rest)| rest.split('/').next().unwrap_or(""));
    host.parse().expect("servers of tests listen at an address")
}

//! How fast the SQLite tier is on this machine, beside a bare fsync of the same moment.
//!
//! Run it with `cargo run --release -p lobster-store --example tier_speed -- [directory]`.

use bytes::Bytes;
use lobster_store::{
    contract::{
        Answer, Batch, Beat, Boot, Catalog, Claim, Clock, Failed, Fold, Folded, Grant, Incarnation, Journal, Members, NewNode,
        NewRun, Offer, Restored, Row, RunId, RunState, Sealed, StoredPart, TaskVersion, Then, Wall,
        record::{Ending, Input, Kind, Manifest, Outcome, Part, Whole},
    },
    sqlite::Sqlite,
};
use std::{
    fs::File,
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};
use uuid::Builder;

#[derive(Debug)]
struct HostClock(Instant);

impl Clock for HostClock {
    fn boot(&self) -> Boot {
        Boot(self.0.elapsed())
    }
    #[allow(clippy::disallowed_methods, reason = "this is where the clock comes from")]
    fn wall(&self) -> Wall {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Wall(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

struct Bench {
    store: Arc<Sqlite>,
    clock: Arc<HostClock>,
    node: Incarnation,
    made: u64,
}

fn main() -> Result<(), Failed> {
    let dir = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("lobster-speed-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|error| Failed::Refused(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failed::Refused(error.to_string()))?;
    let done = runtime.block_on(async {
        #[allow(clippy::disallowed_methods, reason = "as an engine does: the load runs on a worker")]
        let task = tokio::spawn(all(dir.clone()));
        task.await.map_err(|error| Failed::Internal(error.to_string()))?
    });
    std::fs::remove_dir_all(&dir).ok();
    done
}

async fn all(dir: PathBuf) -> Result<(), Failed> {
    let clock = Arc::new(HostClock(now()));
    let store = Sqlite::open(&dir.join("speed.db"), clock.clone()).await?;
    let node = Incarnation(Builder::from_random_bytes([9; 16]).into_uuid());
    let tasks = vec![TaskVersion { task: "work".into(), version: 1 }];
    store.join(NewNode { incarnation: node, name: None, tasks, slots: 64, ttl: Duration::from_secs(10) }).await?;
    let mut bench = Bench { store, clock, node, made: 0 };

    let sync = bare_fsync(&dir).map_err(|error| Failed::Refused(error.to_string()))?;
    println!("bare fdatasync of 24 KB appended:          {sync:>10.1?}");
    bench.submits().await?;
    bench.claims().await?;
    let grant = bench.one().await?;
    bench.appends("relaxed, 1 offer x 1 row of 20 KB", vec![grant.clone()], 1, 20_000, false, 2000).await?;
    let grant = bench.one().await?;
    bench.appends("relaxed, 1 offer x 1 row of 200 B", vec![grant.clone()], 1, 200, false, 4000).await?;
    let grant = bench.one().await?;
    bench.appends("synced, 1 offer x 1 row of 20 KB", vec![grant], 1, 20_000, true, 1000).await?;
    let sync = bare_fsync(&dir).map_err(|error| Failed::Refused(error.to_string()))?;
    println!("bare fdatasync of 24 KB appended:          {sync:>10.1?}");
    let grants = bench.claim(64).await?;
    bench.appends("relaxed, 64 offers x 2 rows of 200 B", grants, 2, 200, false, 500).await?;
    let grant = bench.one().await?;
    bench.folds("row with changes of 200 B, relaxed", "fold of 20 parts of 4 KB", grant, 20, 4096).await?;
    let grants = bench.claim(64).await?;
    bench.appends("synced, 64 offers x 2 rows of 200 B", grants.clone(), 2, 200, true, 300).await?;
    bench.finishes().await?;
    bench.reads(&grants).await?;
    bench.members().await?;
    bench.sweeps().await
}

fn bare_fsync(dir: &Path) -> std::io::Result<Duration> {
    let mut file = File::create(dir.join("bare"))?;
    let bytes = vec![7; 24 << 10];
    let mut took = Vec::new();
    for _ in 0..300 {
        file.write_all(&bytes)?;
        let start = now();
        file.sync_data()?;
        took.push(start.elapsed());
    }
    file.write_all_at(&[0], 0)?;
    Ok(median(&mut took))
}

fn median(took: &mut [Duration]) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

fn report(what: &str, took: &mut [Duration]) {
    let median = median(took);
    let late = took[took.len() * 99 / 100];
    let mean = took.iter().sum::<Duration>() / u32::try_from(took.len()).unwrap_or(u32::MAX);
    println!("{what:<42} {median:>10.1?}   mean {mean:>10.1?}   p99 {late:>10.1?}");
}

impl Bench {
    fn new_run(&mut self) -> NewRun {
        self.made += 1;
        let mut tail = [0; 10];
        tail[2..].copy_from_slice(&self.made.to_be_bytes());
        let millis = u64::try_from(self.clock.wall().0).unwrap_or(0);
        let id = RunId(Builder::from_unix_timestamp_millis(millis, &tail).into_uuid());
        let input = Sealed::new(Kind::Input, id, &Input { payload: None });
        let key = Some(format!("order-{}", self.made));
        let task = TaskVersion { task: "work".into(), version: 1 };
        NewRun { id, key, digest: [1; 32], task, tags: Vec::new(), due: Wall(0), input }
    }

    async fn submits(&mut self) -> Result<(), Failed> {
        let (mut count, start) = (0, now());
        for size in [4096, 4096, 1808].repeat(4) {
            let runs: Vec<_> = (0..size).map(|_| self.new_run()).collect();
            count += self.store.submit(runs).await?.len();
        }
        let per_second = count as f64 / start.elapsed().as_secs_f64();
        println!("{:<42} {per_second:>10.0} runs/s", "submit, calls of up to 4096");
        let mut took = Vec::new();
        for _ in 0..500 {
            let run = self.new_run();
            let start = now();
            self.store.submit(vec![run]).await?;
            took.push(start.elapsed());
        }
        report("submit of one run", &mut took);
        Ok(())
    }

    async fn claim(&self, limit: usize) -> Result<Vec<Grant>, Failed> {
        let tasks = vec![TaskVersion { task: "work".into(), version: 1 }];
        let claim = Claim { incarnation: self.node, tasks, limit, alone: false, now: self.clock.wall() };
        self.store.claim(claim).await
    }

    async fn one(&self) -> Result<Grant, Failed> {
        self.claim(1).await?.pop().ok_or_else(|| Failed::Internal("nothing to claim".into()))
    }

    async fn claims(&self) -> Result<(), Failed> {
        let (mut claims, mut both) = (Vec::new(), Vec::new());
        for _ in 0..50 {
            let start = now();
            let grants = self.claim(64).await?;
            claims.push(start.elapsed());
            let restored = self.store.restore(self.node, &grants).await?;
            both.push(start.elapsed());
            assert!(restored.iter().all(|one| matches!(one, Restored::Recording(_))) && grants.len() == 64);
        }
        report("claim of 64 runs (synced)", &mut claims);
        report("claim and restore of 64 runs", &mut both);
        let mut idle = Vec::new();
        for _ in 0..500 {
            let tasks = vec![TaskVersion { task: "other".into(), version: 1 }];
            let claim = Claim { incarnation: self.node, tasks, limit: 64, alone: false, now: self.clock.wall() };
            let start = now();
            self.store.claim(claim).await?;
            idle.push(start.elapsed());
        }
        report("claim of nothing", &mut idle);
        Ok(())
    }

    async fn appends(
        &self,
        what: &str,
        grants: Vec<Grant>,
        rows: u64,
        bytes: usize,
        synced: bool,
        times: u64,
    ) -> Result<(), Failed> {
        let body = Bytes::from(vec![7; bytes]);
        let mut took = Vec::new();
        for time in 0..times {
            let head = time * rows + 1;
            let offer = |grant: &Grant| Offer {
                run: grant.run,
                epoch: grant.epoch,
                head,
                rows: (head..head + rows)
                    .map(|seq| Row::new(grant.run, grant.epoch, seq, seq, Some(body.clone()), None))
                    .collect(),
                progress: true,
                then: None,
            };
            let batch = Batch { incarnation: self.node, synced, patient: None, offers: grants.iter().map(offer).collect() };
            let start = now();
            let answers = self.store.append(batch).await?;
            took.push(start.elapsed());
            let applied = |answer: &Answer| matches!(answer, Answer::Seen(seen) if seen.rows as u64 == rows);
            assert!(answers.iter().all(applied), "{answers:?}");
        }
        report(what, &mut took);
        Ok(())
    }

    /// Appends rows with both halves and folds them, each time with new parts in place of the older ones.
    async fn folds(&self, append: &str, fold: &str, grant: Grant, parts: u64, bytes: usize) -> Result<(), Failed> {
        let (Grant { run, epoch, .. }, incarnation) = (grant, self.node);
        let body = Some(Bytes::from(vec![7; 200]));
        let whole = Part { whole: Some(Whole::Value(vec![7; bytes].into())) };
        let (mut appends, mut folds) = (Vec::new(), Vec::new());
        for seq in 1..=500 {
            let rows = vec![Row::new(run, epoch, seq, seq, body.clone(), body.clone())];
            let offers = vec![Offer { run, epoch, head: seq, rows, progress: true, then: None }];
            let start = now();
            self.store.append(Batch { incarnation, synced: false, patient: None, offers }).await?;
            appends.push(start.elapsed());
            let ids = seq * parts..(seq + 1) * parts;
            let dropped = if seq == 1 { Vec::new() } else { ((seq - 1) * parts..seq * parts).collect() };
            let parts = ids.map(|id| StoredPart { id, sealed: whole.seal(run, id) }).collect();
            let manifest = Sealed::new(Kind::Manifest, run, &Manifest { seq, ..Manifest::default() });
            let new = Fold { incarnation, run, epoch, base: seq - 1, seq, manifest, parts, dropped };
            let start = now();
            let folded = self.store.fold(new).await?;
            folds.push(start.elapsed());
            assert_eq!(folded, Folded::Done);
        }
        report(append, &mut appends);
        report(fold, &mut folds);
        Ok(())
    }

    async fn finishes(&self) -> Result<(), Failed> {
        for size in [1, 64] {
            let mut took = Vec::new();
            for _ in 0..100 {
                let grants = self.claim(size).await?;
                let offer = |grant: &Grant| {
                    let outcome = Outcome { ending: Some(Ending::Cancelled("done".into())) };
                    let outcome = Sealed::new(Kind::Outcome, grant.run, &outcome);
                    let then = Some(Then::Finish { state: RunState::Succeeded, outcome, at: Wall(1) });
                    Offer { run: grant.run, epoch: grant.epoch, head: 1, rows: Vec::new(), progress: false, then }
                };
                let batch =
                    Batch { incarnation: self.node, synced: true, patient: None, offers: grants.iter().map(offer).collect() };
                let start = now();
                self.store.append(batch).await?;
                took.push(start.elapsed());
            }
            report(&format!("finish of {size} runs (synced)"), &mut took);
        }
        Ok(())
    }

    async fn reads(&self, grants: &[Grant]) -> Result<(), Failed> {
        let (mut restores, mut outcomes) = (Vec::new(), Vec::new());
        let runs: Vec<_> = grants.iter().map(|grant| grant.run).collect();
        for _ in 0..200 {
            let start = now();
            self.store.outcomes(&runs).await?;
            outcomes.push(start.elapsed());
        }
        for _ in 0..5 {
            let start = now();
            self.store.restore(self.node, grants).await?;
            restores.push(start.elapsed());
        }
        report("outcomes of 64 runs", &mut outcomes);
        report("restore of 64 runs with 600 rows each", &mut restores);
        Ok(())
    }

    async fn members(&self) -> Result<(), Failed> {
        let (mut renews, mut notes) = (Vec::new(), Vec::new());
        for seq in 1..2000 {
            let start = now();
            self.store.renew(self.node, Beat { seq, at: self.clock.boot(), lapsed: false }).await?;
            renews.push(start.elapsed());
            let start = now();
            self.store.note(self.node, 3, Some(RunId(self.node.0)));
            notes.push(start.elapsed());
        }
        report("renewal", &mut renews);
        report("note", &mut notes);
        Ok(())
    }

    async fn sweeps(&self) -> Result<(), Failed> {
        let (mut count, start) = (0, now());
        loop {
            match self.store.sweep(Wall(2), 1000).await? {
                0 => break,
                some => count += some,
            }
        }
        let per_second = count as f64 / start.elapsed().as_secs_f64();
        println!("{:<42} {per_second:>10.0} runs/s", "sweep, calls of 1000");
        Ok(())
    }
}

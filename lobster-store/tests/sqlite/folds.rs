//! A fold is whole in the file or not there at all, whoever dies and whatever the disk lost; retention leaves nothing of it.

use crate::{children, dropped::polled, kit::*, scratch::Scratch};
use lobster_store::{
    contract::{Catalog, Fold, Folded, Grant, Incarnation, Journal, Offer, Recording, RunId, StoredPart, Wall},
    sqlite::Sqlite,
};
use sqlx::{Connection, Row as _, SqliteConnection};
use std::{fs, path::Path};

/// Parts that a fold makes.
const NEW: u64 = 20;

/// A holder that folds.
struct Folder {
    me: Incarnation,
    grant: Grant,
    base: u64,
    tail: u64,
    parts: Vec<StoredPart>,
}

impl Folder {
    async fn begin(store: &Sqlite, me: Incarnation) -> Self {
        join(store, me).await;
        let grant = claim(store, me, 1).await.remove(0);
        Self { me, grant, base: 0, tail: 0, parts: Vec::new() }
    }

    /// One row of deltas and changes more.
    async fn append(&mut self, store: &Sqlite, synced: bool) {
        self.tail += 1;
        let rows = vec![full_row(self.grant.run, self.grant.epoch, self.tail, 700)];
        let seen = append(store, self.me, synced, vec![Offer { rows, ..offer(&self.grant, self.tail, 0) }]).await;
        assert_eq!((seen[0].rows, seen[0].tail), (1, self.tail));
    }

    /// Folds up to the tail, or one row less.
    async fn fold(&mut self, store: &Sqlite) {
        let seq = self.tail - u64::from(self.tail.is_multiple_of(4));
        assert_eq!(store.fold(self.next(seq)).await.expect("a fold is answered"), Folded::Done);
    }

    /// The next fold; a half of the older parts goes.
    fn next(&mut self, seq: u64) -> Fold {
        let run = self.grant.run;
        let half = self.parts.len() / 2;
        let dropped = self.parts.drain(..half).map(|part| part.id).collect();
        let parts: Vec<_> = (0..NEW).map(|at| part(run, self.tail * NEW + at, 1500)).collect();
        self.parts.extend(parts.iter().cloned());
        let manifest = manifest(run, seq, &self.parts);
        let (incarnation, epoch, base) = (self.me, self.grant.epoch, self.base);
        self.base = seq;
        Fold { incarnation, run, epoch, base, seq, manifest, parts, dropped }
    }
}

/// The child's part: it folds until it is killed.
pub async fn folds(file: &Path) {
    let store = open(file).await;
    let mut folder = Folder::begin(&store, fresh_incarnation()).await;
    loop {
        folder.append(&store, folder.tail.is_multiple_of(5)).await;
        if folder.tail.is_multiple_of(2) {
            folder.fold(&store).await;
            println!("folded:{}", folder.base);
        }
    }
}

/// Checks that the recording is one that was there after some call. Returns tail and seq of the snapshot.
#[track_caller]
fn assert_whole(run: RunId, recording: &Recording) -> (u64, u64) {
    let seqs = |from: u64| (from..=recording.tail).collect::<Vec<_>>();
    let seq = recording.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq);
    assert_eq!(recording.deltas.iter().map(|row| row.from).collect::<Vec<_>>(), seqs(1));
    assert_eq!(recording.changes.iter().map(|row| row.from).collect::<Vec<_>>(), seqs(seq + 1));
    if let Some(snapshot) = &recording.snapshot {
        let found: Vec<_> = snapshot.parts.iter().map(|part| (part.id, part.sealed.crc)).collect();
        assert_eq!(found, named(run, snapshot));
        assert!(seq <= recording.tail && !found.is_empty());
    }
    (recording.tail, seq)
}

async fn recording(store: &Sqlite, run: RunId) -> Recording {
    store.read(run).await.expect("a read is answered").expect("it was submitted").recording
}

#[test]
fn a_process_killed_midway_leaves_whole_folds_only() {
    for number in 1..8 {
        let dir = Scratch::new();
        let path = dir.join("store.db");
        block_on(async {
            let store = open(&path).await;
            let run = create(&store, 1).await;
            let mut child = children::start("folds", &path, 0);
            let mut folded = 0;
            for _ in 0..number {
                folded = child.says("folded").parse().expect("it says a number");
            }
            child.signal("-KILL");
            drop(child);
            let (_, seq) = assert_whole(run, &recording(&store, run).await);
            assert!(seq >= folded, "a fold survives its process");
        });
    }
}

#[test]
fn a_log_that_lost_its_end_holds_whole_folds_only() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let store = open(&path).await;
        let run = create(&store, 1).await;
        let mut folder = Folder::begin(&store, incarnation(1)).await;
        for _ in 0..9 {
            folder.append(&store, false).await;
            if folder.tail.is_multiple_of(2) {
                folder.fold(&store).await;
            }
        }
        let log = fs::read(dir.join("store.db-wal")).expect("nothing was moved from the log yet");
        let frames = (log.len() - 32) / (4096 + 24);
        let mut found = Vec::new();
        // As if the machine had lost its power with so much of the log on the disk.
        for kept in (0..=frames).rev() {
            let place = dir.join(&format!("kept-{kept}"));
            fs::create_dir(&place).expect("a scratch directory can be written");
            fs::copy(&path, place.join("store.db")).expect("the file is there");
            fs::write(place.join("store.db-wal"), &log[..32 + kept * (4096 + 24)]).expect("it can be written");
            let lost = open(&place.join("store.db")).await;
            match lost.read(run).await.expect("a read is answered") {
                Some(stored) => found.push(assert_whole(run, &stored.recording)),
                None => break,
            }
            drop(lost);
            fs::remove_dir_all(&place).ok();
        }
        found.dedup();
        found.reverse();
        let all =
            [(0, 0), (1, 0), (2, 0), (2, 2), (3, 2), (4, 2), (4, 3), (5, 3), (6, 3), (6, 6), (7, 6), (8, 6), (8, 7), (9, 7)];
        assert_eq!(found, all, "each of them was there once, and nothing between them");
    });
}

#[test]
fn a_fold_dropped_midway_is_whole_or_nothing() {
    let dir = Scratch::new();
    block_on(async {
        let store = open(&dir.join("store.db")).await;
        let run = create(&store, 1).await;
        let mut folder = Folder::begin(&store, incarnation(1)).await;
        let mut applied = 0;
        for round in 0..60 {
            folder.append(&store, false).await;
            let fold = folder.next(folder.tail);
            polled(round % 6, store.fold(fold.clone())).await;
            applied += u32::from(assert_whole(run, &recording(&store, run).await).1 == folder.base);
            // The next calls work, and the same fold again finds what became of the first.
            assert_eq!(store.fold(fold).await.expect("a fold is answered"), Folded::Done);
            assert_eq!(assert_whole(run, &recording(&store, run).await), (folder.tail, folder.base));
        }
        assert!(applied > 0, "no dropped call was ever on its way");
    });
}

#[test]
fn a_sweep_leaves_no_row_of_a_folded_run_in_any_table() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let store = open(&path).await;
        let mut shell =
            SqliteConnection::connect(path.to_str().expect("a path of ours is UTF-8")).await.expect("anybody can open it");
        let run = create(&store, 1).await;
        let mut folder = Folder::begin(&store, incarnation(1)).await;
        for _ in 0..6 {
            folder.append(&store, true).await;
        }
        folder.tail = 4;
        folder.fold(&store).await;
        append(&store, folder.me, true, vec![finish(&folder.grant, 6, Wall(1))]).await;
        let before = rows_of_runs(&mut shell).await;
        for table in ["runs", "inputs", "tags", "deltas", "changes", "manifests", "parts", "outcomes"] {
            let rows = before.iter().find(|(name, _)| *name == format!("lobster_{table}")).map(|(_, rows)| *rows);
            assert!(rows > Some(0), "{table}: {rows:?}");
        }
        assert_eq!(store.sweep(Wall(2), 10).await.expect("a sweep is answered"), 1);
        let left: Vec<_> = rows_of_runs(&mut shell).await.into_iter().filter(|(_, rows)| *rows > 0).collect();
        assert_eq!(left, [], "of {run}");
    });
}

/// Each table that has something of runs, with the number of its rows.
async fn rows_of_runs(shell: &mut SqliteConnection) -> Vec<(String, i64)> {
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'lobster\\_%' ESCAPE '\\' \
                 AND name NOT IN ('lobster_meta', 'lobster_nodes', 'lobster_node_tasks') ORDER BY name";
    let names = sqlx::query(names).fetch_all(&mut *shell).await.expect("anybody may read");
    let mut counts = Vec::new();
    for name in names {
        let name: String = name.get(0);
        let count = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {name}"))).fetch_one(&mut *shell).await;
        counts.push((name, count.expect("anybody may read").get(0)));
    }
    counts
}

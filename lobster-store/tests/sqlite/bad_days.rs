//! What is refused is left as it was, and what was in the way can be removed.

use crate::{kit::*, scratch::Scratch};
use lobster_store::contract::{Catalog, Failed, Journal};
use sqlx::{Connection, Executor, SqliteConnection};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

async fn person(path: &Path) -> SqliteConnection {
    SqliteConnection::connect(path.to_str().expect("a path of ours is UTF-8")).await.expect("anybody can open the file")
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        drop(open(&path).await);
        let mut shell = person(&path).await;
        shell.execute("UPDATE lobster_meta SET value = 99 WHERE name = 'schema'").await.expect("a person may write");
        shell.execute("PRAGMA wal_checkpoint(TRUNCATE)").await.expect("nobody else is there");
        shell.close().await.expect("a connection can be closed");
        let before = fs::read(&path).expect("the file is there");
        let failed = try_open(&path).await.expect_err("a newer schema is not for us");
        assert!(matches!(failed, Failed::NewerVersion { found: 99, known: 1 }), "{failed}");
        assert_eq!(fs::read(&path).expect("the file is there"), before);
    });
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    let letter = "Dear diary, this is not a database. ".repeat(400);
    fs::write(&path, &letter).expect("a scratch directory can be written");
    let failed = block_on(try_open(&path)).expect_err("a diary is no store");
    assert!(matches!(&failed, Failed::Refused(text) if text.contains("not a SQLite database")), "{failed}");
    assert_eq!(fs::read_to_string(&path).expect("the file is there"), letter);
}

#[test]
fn a_directory_that_is_missing_or_in_the_way_is_refused() {
    let dir = Scratch::new();
    let missing = block_on(try_open(&dir.join("nowhere/store.db"))).expect_err("there is no such directory");
    assert!(matches!(missing, Failed::Refused(_)), "{missing}");
    fs::create_dir(dir.join("store.db")).expect("a scratch directory can be written");
    let in_the_way = block_on(try_open(&dir.join("store.db"))).expect_err("a directory is no file");
    assert!(matches!(&in_the_way, Failed::Refused(text) if text.contains("directory")), "{in_the_way}");
}

#[test]
fn damaged_pages_are_refused_by_name() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let store = open(&path).await;
        store.submit((0..500).map(new_run).collect()).await.expect("a submit is answered");
        drop(store);
        let mut shell = person(&path).await;
        shell.execute("PRAGMA wal_checkpoint(TRUNCATE)").await.expect("nobody else is there");
        shell.close().await.expect("a connection can be closed");
        let mut bytes = fs::read(&path).expect("the file is there");
        bytes[8192..].fill(0xa5);
        fs::write(&path, bytes).expect("the file can be written");
        let store = try_open(&path).await;
        let failed = match store {
            Ok(store) => store.submit(vec![new_run(1000)]).await.expect_err("no row can be found in this"),
            Err(failed) => failed,
        };
        assert!(matches!(&failed, Failed::Refused(text) if text.contains("damaged")), "{failed}");
    });
}

/// A file system in memory, of which a test may say how large it is and whether it can be written. Only root can make one.
struct Mount(PathBuf);

impl Mount {
    fn new(at: PathBuf, size: &str) -> Self {
        fs::create_dir(&at).expect("a scratch directory can be written");
        let made = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(&at).output();
        let made = made.is_ok_and(|made| made.status.success());
        assert!(made, "only root can mount a small file system: `tests/run --skip-system` leaves this test out");
        Self(at)
    }

    fn read_only(&self) {
        // Until then it is busy: the files of a store that was dropped are closed by threads of its own.
        let remounted = || Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).output();
        assert!((0..2000).any(|_| remounted().is_ok_and(|done| done.status.success())), "somebody keeps writing");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        Command::new("umount").arg("--lazy").arg(&self.0).status().ok();
    }
}

#[test]
fn a_read_only_file_system_is_refused() {
    let dir = Scratch::new();
    let mount = Mount::new(dir.join("small"), "8m");
    let path = mount.0.join("store.db");
    block_on(async {
        drop(open(&path).await);
    });
    mount.read_only();
    let failed = block_on(try_open(&path)).expect_err("nothing can be written there");
    assert!(matches!(&failed, Failed::Refused(_)), "{failed}");
    let failed = block_on(try_open(&mount.0.join("other.db"))).expect_err("nothing can be created there");
    assert!(matches!(&failed, Failed::Refused(_)), "{failed}");
}

#[test]
fn a_full_disk_is_unavailable_until_there_is_room_again() {
    let dir = Scratch::new();
    let mount = Mount::new(dir.join("small"), "3m");
    let ballast = mount.0.join("ballast");
    fs::write(&ballast, vec![1; 1 << 20]).expect("there is room for it");
    block_on(async {
        let store = open(&mount.0.join("store.db")).await;
        let mut number = 0;
        let failed = loop {
            match store.submit(vec![new_run(number)]).await {
                Ok(_) => number += 1,
                Err(failed) => break failed,
            }
            assert!(number < 100_000, "the disk is never full");
        };
        assert!(matches!(failed, Failed::Unavailable(_)), "{failed}");
        for _ in 0..3 {
            let failed = store.submit(vec![new_run(number)]).await.expect_err("there is still no room");
            assert!(matches!(failed, Failed::Unavailable(_)), "{failed}");
        }
        // What was acknowledged can still be read, and what failed did not apply.
        assert_eq!(store.count(Default::default()).await.expect("reading needs no room"), number);
        fs::remove_file(&ballast).expect("it is there");
        create(&store, number).await;
        assert_eq!(store.count(Default::default()).await.expect("a count is answered"), number + 1);
        drop(store);
        let store = open(&mount.0.join("store.db")).await;
        assert_eq!(store.count(Default::default()).await.expect("a count is answered"), number + 1);
    });
}

#[test]
fn a_file_that_was_deleted_underneath_takes_nothing_more() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let store = open(&path).await;
        create(&store, 1).await;
        fs::remove_file(&path).expect("it is there");
        let failed = store.submit(vec![new_run(2)]).await.expect_err("nobody would ever find that run");
        assert!(matches!(&failed, Failed::Refused(text) if text.contains("gone")), "{failed}");
        let failed = store.find("key-1").await.expect_err("nor should anybody read it");
        assert!(matches!(&failed, Failed::Refused(_)), "{failed}");
    });
}

#[test]
fn a_file_that_was_replaced_underneath_takes_nothing_more() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let store = open(&path).await;
        create(&store, 1).await;
        let other = open(&dir.join("other.db")).await;
        create(&other, 5).await;
        drop(other);
        fs::rename(dir.join("other.db"), &path).expect("both are there");
        let failed = store.submit(vec![new_run(2)]).await.expect_err("nobody would ever find that run");
        assert!(matches!(&failed, Failed::Refused(text) if text.contains("replaced")), "{failed}");
    });
}

#[test]
fn a_person_with_a_transaction_open_delays_but_breaks_nothing() {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let store = open(&path).await;
        let mut shell = person(&path).await;
        shell.execute("BEGIN IMMEDIATE").await.expect("nobody else writes");
        let waiting = store.submit(vec![new_run(1)]);
        let (answers, ended) = tokio::join!(waiting, async {
            // By then the submit has met the lock, or it meets none: both are fine.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            shell.execute("COMMIT").await
        });
        ended.expect("a person may commit");
        answers.expect("the writer waits for a person");
        create(&store, 2).await;
    });
}

#[test]
fn files_belong_to_their_owner_alone() {
    use std::os::unix::fs::MetadataExt;
    let dir = Scratch::new();
    let path = dir.join("store.db");
    block_on(async {
        let store = open(&path).await;
        join(&store, incarnation(1)).await;
        create(&store, 1).await;
        let mode = |path: PathBuf| fs::metadata(path).expect("it is there").mode() & 0o777;
        for file in ["store.db", "store.db-wal", "store.db-shm", "store.db.gate", "store.db.nodes/hint", "store.db.nodes/0.lock"]
        {
            assert_eq!(mode(dir.join(file)), 0o600, "{file}");
        }
        assert_eq!(mode(dir.join(&format!("store.db.nodes/{}", incarnation(1)))), 0o600);
        assert_eq!(mode(dir.join("store.db.nodes")), 0o700);
    });
}

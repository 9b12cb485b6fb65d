//! A synced call syncs the log once, a relaxed one never. Counted by strace, because a sync leaves no other trace.

use crate::{children, kit::*, scratch::Scratch};
use lobster_store::{
    conformance::TestClock,
    contract::{
        Answer, Batch, Beat, Boot, Catalog, Failed, Fold, Folded, Grant, Incarnation, Journal, Members, NewVerdict, Offer,
        Origin, Sealed, VerdictAnswer, Wall, record,
    },
    sqlite::Sqlite,
};
use std::{fs, io::Write, path::Path};

/// What is done between two marks, and how often it syncs.
const EXPECTED: &[(&str, usize)] = &[
    ("submit", 1),
    ("join", 1),
    ("claim", 1),
    ("claim of nothing", 0),
    ("restore", 0),
    ("relaxed append", 0),
    ("relaxed batch of two", 0),
    ("synced append", 1),
    ("synced batch of two", 1),
    ("synced append that is there already", 1),
    ("synced append of a stranger", 1),
    ("synced batch that is there already", 1),
    ("synced append without rows", 1),
    ("relaxed append again", 0),
    ("fold", 0),
    ("synced append after a fold", 1),
    ("fold that is there already", 0),
    ("fold that is behind", 0),
    ("parts", 0),
    ("relaxed append that finishes", 1),
    ("renewal", 0),
    ("renewal after a lapse", 0),
    ("note", 0),
    ("cancel", 1),
    ("cancel of an ended run", 0),
    ("verdict", 1),
    ("attend", 0),
    ("sweep of nothing", 0),
    ("sweep", 1),
    ("leave", 1),
];

/// Says into the trace where we are. A write to standard error cannot be missed in it.
fn mark(what: &str) {
    std::io::stderr().write_all(format!("MARK {what}\n").as_bytes()).expect("standard error is there");
}

/// The child's part.
pub async fn marked(file: &Path) {
    let store = Sqlite::open(file, TestClock::new()).await.expect("the store can be opened");
    let (me, other) = (incarnation(1), incarnation(2));
    // The first write of all begins the log, which costs a sync of its own.
    create(&store, 10).await;
    mark("submit");
    store.submit((0..3).map(new_run).collect()).await.expect("a submit is answered");
    mark("join");
    join(&store, me).await;
    mark("claim");
    let grants = claim(&store, me, 4).await;
    mark("claim of nothing");
    assert!(claim(&store, me, 3).await.is_empty());
    mark("restore");
    store.restore(me, &grants).await.expect("a restore is answered");
    mark("relaxed append");
    append(&store, me, false, vec![offer(&grants[0], 1, 100)]).await;
    mark("relaxed batch of two");
    append(&store, me, false, vec![offer(&grants[1], 1, 100), offer(&grants[2], 1, 100)]).await;
    mark("synced append");
    append(&store, me, true, vec![offer(&grants[0], 2, 100)]).await;
    mark("synced batch of two");
    append(&store, me, true, vec![offer(&grants[1], 2, 100), offer(&grants[2], 2, 100)]).await;
    mark("synced append that is there already");
    append(&store, me, true, vec![offer(&grants[0], 2, 100)]).await;
    mark("synced append of a stranger");
    append(&store, other, true, vec![offer(&grants[0], 3, 100)]).await;
    mark("synced batch that is there already");
    append(&store, me, true, vec![offer(&grants[1], 2, 100), offer(&grants[2], 2, 100)]).await;
    mark("synced append without rows");
    append(&store, me, true, vec![Offer { rows: Vec::new(), ..offer(&grants[0], 3, 0) }]).await;
    mark("relaxed append again");
    append(&store, me, false, vec![offer(&grants[0], 3, 100)]).await;
    let (run, epoch, parts) = (grants[0].run, grants[0].epoch, vec![part(grants[0].run, 1, 100)]);
    let manifest = manifest(run, 3, &parts);
    let fold = Fold { incarnation: me, run, epoch, base: 0, seq: 3, manifest, parts, dropped: Vec::new() };
    mark("fold");
    assert_eq!(store.fold(fold.clone()).await.expect("a fold is answered"), Folded::Done);
    mark("synced append after a fold");
    append(&store, me, true, vec![offer(&grants[0], 4, 100)]).await;
    mark("fold that is there already");
    assert_eq!(store.fold(fold.clone()).await.expect("a fold is answered"), Folded::Done);
    mark("fold that is behind");
    assert_eq!(store.fold(Fold { base: 1, seq: 4, ..fold }).await.expect("a fold is answered"), Folded::Behind);
    mark("parts");
    assert_eq!(store.parts(run, &[1]).await.expect("parts are answered").len(), 1);
    mark("relaxed append that finishes");
    append(&store, me, false, vec![finish(&grants[0], 4, Wall(1))]).await;
    mark("renewal");
    store.renew(me, Beat { seq: 1, at: Boot::default(), lapsed: false }).await.expect("a renewal is answered");
    mark("renewal after a lapse");
    store.renew(me, Beat { seq: 2, at: Boot::default(), lapsed: true }).await.expect("a renewal is answered");
    mark("note");
    store.note(me, 0, Some(grants[1].run));
    mark("cancel");
    store.cancel(grants[1].run, outcome(grants[1].run), Wall(1)).await.expect("a cancel is answered");
    mark("cancel of an ended run");
    store.cancel(grants[0].run, outcome(grants[0].run), Wall(1)).await.expect("a cancel is answered");
    mark("verdict");
    let run = grants[2].run;
    let fate = Sealed::new(record::Kind::Verdict, run, &record::Fate { happened: None, forced: false });
    let step = record::StepName::default();
    let verdict = NewVerdict { run, step, intent: 2, tail: 2, origin: Origin::Person, fate, at: Wall(1) };
    assert_eq!(store.verdict(verdict).await.expect("a verdict is answered"), VerdictAnswer::Accepted);
    mark("attend");
    assert_eq!(store.attend(me).await.expect("an attend is answered").len(), 2);
    mark("sweep of nothing");
    store.sweep(Wall(1), 10).await.expect("a sweep is answered");
    mark("sweep");
    assert_eq!(store.sweep(Wall(2), 10).await.expect("a sweep is answered"), 1);
    mark("leave");
    store.leave(me).await.expect("anybody may leave");
    mark("end");
}

/// The child's part where syncs or writes fail now and then: it offers again until it is told what became of it.
pub async fn stubborn(file: &Path) {
    let store = Sqlite::open(file, TestClock::new()).await.expect("the store can be opened");
    let me = incarnation(1);
    let mut unknown = 0;
    let mut again = async |batch: Batch| {
        for _ in 0..50 {
            match store.append(batch.clone()).await {
                Ok(answers) => return answers,
                Err(Failed::Unknown(_)) => unknown += 1,
                Err(Failed::Unavailable(_)) => {}
                Err(other) => panic!("a failing disk is no reason for: {other}"),
            }
        }
        panic!("an append never succeeds");
    };
    let grant = claim_stubbornly(&store, me).await;
    for seq in 1..=40 {
        let offers = vec![offer(&grant, seq, 5000)];
        let answers = again(Batch { incarnation: me, synced: true, patient: None, offers }).await;
        let [Answer::Seen(seen)] = answers.as_slice() else { panic!("one offer, one answer") };
        // Applied now, or by a call that could not say so.
        assert!(seen.mine && seen.tail == seq, "{seen:?}");
    }
    println!("unknown:{unknown}");
}

async fn claim_stubbornly(store: &Sqlite, me: Incarnation) -> Grant {
    for _ in 0..50 {
        // After an unknown outcome this node may have the run already: it is free again only for others.
        if store.join(new_node(me)).await.is_err() || store.submit(vec![new_run(1)]).await.is_err() {
            continue;
        }
        if let Ok(mut grants) = store.claim(asks(me, 1)).await {
            if let Some(grant) = grants.pop() {
                return grant;
            }
            let row = store.read(run_id(1)).await.expect("reading works").expect("it was submitted").summary;
            let (epoch, tail) = (row.epoch, row.tail);
            return Grant {
                run: row.id,
                epoch,
                tail,
                mark: 0,
                task: row.task,
                attempts: row.attempts,
                deaths: 0,
                cancel: false,
                wake: 0,
                doubt: None,
            };
        }
    }
    panic!("nothing can be claimed");
}

fn fails_now_and_then(inject: &str) {
    let dir = Scratch::new();
    let path = dir.join("store.db");
    // Made while the disk is well.
    block_on(async { drop(open(&path).await) });
    let log = dir.join("store.db-wal");
    let text = |path: &Path| path.to_str().expect("a path of ours is UTF-8").to_owned();
    let (trace, path_text, log) = (text(&dir.join("trace")), text(&path), text(&log));
    let wrap = ["strace", "-f", "-o", &trace, "-P", &path_text, "-P", &log, "-e", inject];
    let output = children::command(&wrap, "stubborn", &path, 0).output();
    let output = output.expect("strace can be started: this test cannot fail a disk without it, please install it");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let unknown: usize =
        said.split("unknown:").nth(1).and_then(|rest| rest.lines().next()?.parse().ok()).expect("it says a number");
    assert!(unknown > 0, "no call ever failed");
    block_on(async {
        let store = open(&path).await;
        let stored = store.read(run_id(1)).await.expect("a read is answered").expect("it was submitted");
        let seqs: Vec<_> = stored.recording.deltas.iter().map(|row| row.from).collect();
        assert_eq!((stored.summary.tail, seqs), (40, (1..=40).collect()));
    });
}

#[test]
fn a_failed_sync_is_an_unknown_outcome_and_loses_nothing() {
    fails_now_and_then("inject=fsync,fdatasync:error=EIO:when=3+5");
}

#[test]
fn a_failed_write_is_an_unknown_outcome_and_loses_nothing() {
    fails_now_and_then("inject=pwrite64:error=EIO:when=20+35");
}

#[test]
fn a_synced_call_syncs_once_and_a_relaxed_one_never() {
    let dir = Scratch::new();
    let trace = dir.join("trace");
    let wrap = [
        "strace",
        "-f",
        "-y",
        "-s",
        "200",
        "-e",
        "trace=fsync,fdatasync,write",
        "-o",
        trace.to_str().expect("a path of ours is UTF-8"),
    ];
    let output = children::command(&wrap, "syncs", &dir.join("store.db"), 0).output();
    let output = output.expect("strace can be started: this test cannot count syncs without it, please install it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace = fs::read_to_string(&trace).expect("strace wrote its trace");
    let mut counts: Vec<(String, usize)> = Vec::new();
    for line in trace.lines() {
        if let Some((_, rest)) = line.split_once("\"MARK ") {
            let what = rest.split("\\n").next().unwrap_or_default();
            counts.push((what.to_owned(), 0));
        } else if (line.contains("fsync(") || line.contains("fdatasync(")) && !line.contains("resumed") {
            // When the last connection is closed, its log is moved into the file.
            let Some(last) = counts.last_mut().filter(|last| last.0 != "end") else { continue };
            // With the first sync of a new log SQLite syncs the name of it too.
            if line.contains(&format!("<{}>", dir.join("x").parent().expect("it has one").display())) {
                continue;
            }
            assert!(line.contains("-wal>"), "not the log, but: {line}");
            last.1 += 1;
        }
    }
    assert_eq!(counts.pop().map(|last| last.0).as_deref(), Some("end"));
    let expected: Vec<_> = EXPECTED.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect();
    assert_eq!(counts, expected);
}

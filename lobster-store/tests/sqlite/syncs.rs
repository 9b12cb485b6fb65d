//! A synced call syncs the log once, a relaxed one never. Counted by strace, because a sync leaves no other trace.

use crate::{children, kit::*, scratch::Scratch};
use lobster_store::{
    conformance::TestClock,
    contract::{Beat, Boot, Journal, Members, NewVerdict, Offer, Origin, Sealed, VerdictAnswer, Wall, record},
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
    mark("submit");
    store.submit((0..3).map(new_run).collect()).await.expect("a submit is answered");
    mark("join");
    join(&store, me).await;
    mark("claim");
    let grants = claim(&store, me, 3).await;
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
    mark("relaxed append that finishes");
    append(&store, me, false, vec![finish(&grants[0], 3, Wall(1))]).await;
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

#[test]
fn a_synced_call_syncs_once_and_a_relaxed_one_never() {
    let dir = Scratch::new();
    let trace = dir.join("trace");
    let wrap =
        ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync,write", "-o", trace.to_str().expect("a path of ours is UTF-8")];
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
            let Some(last) = counts.last_mut() else { continue };
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

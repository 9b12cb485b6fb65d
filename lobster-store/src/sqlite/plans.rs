//! No statement of the path looks at ended runs it was not asked for: throughput does not fall as these pile up.

use super::{
    Sqlite, append, claim, fold, journal, reader, recording,
    sql::{self, Args, get},
    sweep,
    whole::{self, View},
    write,
};
use crate::contract::{Boot, Claim, Clock, Incarnation, TaskVersion, Wall};
use sqlx::sqlite::SqliteConnection;
use std::sync::Arc;
use uuid::Uuid;

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn boot(&self) -> Boot {
        Boot::default()
    }
    fn wall(&self) -> Wall {
        Wall(0)
    }
}

/// Indexes that hold no ended run.
const LIVE: [&str; 3] = ["lobster_runs_ready", "lobster_runs_suspect", "lobster_runs_running"];

fn statements() -> Vec<String> {
    let me = Incarnation(Uuid::nil());
    let tasks = vec![TaskVersion { task: "a".into(), version: 1 }, TaskVersion { task: "b".into(), version: 1 }];
    let mut texts = vec![
        append::fences(1),
        append::fences(64),
        write::move_tails(1),
        write::move_tails(64),
        write::end_runs(1),
        write::end_runs(64),
        journal::ATTEND.to_owned(),
        recording::restore_text("$1,$2,$3,$4"),
        sweep::sweep_text(),
        fold::look_text(),
        fold::covered_text(),
    ];
    for alone in [false, true] {
        let claim = Claim { incarnation: me, tasks: tasks.clone(), limit: 9, alone, now: Wall(0) };
        texts.push(claim::look_text(&claim).0);
        texts.push(claim::take_text(&claim, &tasks, &[me, me]).0);
    }
    texts.extend([1, 64].into_iter().flat_map(|size| [fold::drop_text(size), fold::read_text(size)]));
    for view in View::ALL {
        texts.extend([whole::insert(view, 1), whole::insert(view, 64)]);
        texts.extend(whole::statements(view).iter().map(|text| outside(view, text)));
    }
    let split = |text: &String| text.split_terminator(';').map(str::to_owned).collect::<Vec<_>>();
    texts.iter().flat_map(split).filter(|one| !one.starts_with("PRAGMA")).collect()
}

/// A statement of the trigger, as it reads outside of it: a plan does not show what triggers do.
fn outside(view: View, text: &str) -> String {
    let mut text = text.replace("RAISE(IGNORE)", "1");
    let mut columns: Vec<_> = view.columns().into_iter().enumerate().collect();
    columns.sort_by_key(|(_, column)| std::cmp::Reverse(column.len()));
    for (at, column) in columns {
        text = text.replace(&format!("new.{column}"), &format!("${}", at + 1));
    }
    text
}

/// Lines of a plan that read more of the runs than they are asked for.
async fn offences(connection: &mut SqliteConnection, statement: &str) -> Vec<String> {
    let ran = sql::run(connection, format!("EXPLAIN QUERY PLAN {statement};"), Args::default()).await;
    assert!(ran.error.is_none(), "{:?} for {statement}", ran.error);
    let lines: Vec<String> = ran.rows.iter().flatten().map(|row| get(row, 3).expect("a plan is text")).collect();
    assert!(!lines.is_empty(), "no plan for {statement}");
    let tables = ["runs", "deltas", "changes", "manifests", "parts", "inputs"].map(|table| format!("lobster_{table}"));
    let reads_runs = |line: &str| tables.iter().any(|table| line.contains(table));
    // A search for nothing in particular is how SQLite calls the scan for a maximum.
    let wide = |line: &str| {
        let all = line.starts_with("SCAN") || (line.starts_with("SEARCH") && !line.contains('('));
        all && !LIVE.iter().any(|index| line.contains(index))
    };
    let scans = |line: &String| reads_runs(line) && wide(line);
    lines.into_iter().filter(scans).collect()
}

#[tokio::test]
async fn no_statement_of_the_path_scans_ended_runs() {
    let dir = std::env::temp_dir().join(format!("lobster-plans-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory can be made");
    let path = dir.join("store.db");
    let _store = Sqlite::open(&path, Arc::new(Still)).await.expect("the store can be opened");
    let mut connection = reader::connect(&path, reader::Use::Look).await.expect("and by others too");
    sql::all(&mut connection, &whole::prepare()).await.expect("what belongs to a writing connection");
    for statement in statements() {
        assert_eq!(offences(&mut connection, &statement).await, Vec::<String>::new(), "{statement}");
    }
    // The test can see: these do scan.
    for statement in [
        "SELECT max(tail) FROM lobster_runs",
        "SELECT run FROM lobster_deltas WHERE seq_to = 3",
        "DELETE FROM lobster_changes WHERE seq_to <= 3",
        "SELECT crc FROM lobster_parts WHERE id = 3",
    ] {
        assert_eq!(offences(&mut connection, statement).await.len(), 1, "{statement}");
    }
    std::fs::remove_dir_all(&dir).ok();
}

//! Retention: what is removed, and how the file stays small.
//!
//! Invariant: a run is removed with everything it has in one transaction, and only after its end.

use super::{
    Sqlite,
    sql::{Args, get, get_id, rows_of},
    writer::Txn,
};
use crate::contract::{Incarnation, Result, Wall};
use std::collections::HashSet;

/// Ended runs before a time, the oldest first. Said in each statement of the sweep, which all see the same.
const GONE: &str = "SELECT id FROM lobster_runs INDEXED BY lobster_runs_ended \
                    WHERE ended IS NOT NULL AND ended < $1 ORDER BY ended, id LIMIT $2";

/// Nodes that are over and own nothing.
const IDLE: &str = "SELECT incarnation FROM lobster_nodes WHERE state <> 0 \
                    AND incarnation NOT IN (SELECT owner FROM lobster_runs INDEXED BY lobster_runs_running \
                    WHERE state = 1 AND owner = lobster_nodes.incarnation)";

/// Free pages that are left alone: new runs will use them. Beyond that, a quarter of the file is.
const FREE_PAGES: i64 = 512;

/// Pages given back to the file system by one sweep. Bounds the time the writer is held.
const PAGES_BACK: i64 = 2048;

impl Sqlite {
    pub(super) async fn sweep_runs(&self, before: Wall, limit: usize) -> Result<usize> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let args = || {
            let mut args = Args::default();
            args.push(before.0);
            args.push(limit);
            args
        };
        let look = format!("SELECT EXISTS ({GONE}) OR EXISTS ({IDLE});PRAGMA freelist_count;PRAGMA page_count;");
        let rows = self.readers.read(&look, args()).await?;
        let number = |at| rows_of(&rows, at).first().map_or(Ok(0), |row| get::<i64>(row, 0));
        let found = number(0)? != 0;
        if !found && excess(number(1)?, number(2)?) == 0 {
            self.tidy().await;
            return Ok(0);
        }
        let args = args();
        let removed = self.writer.write(true, move |txn| Box::pin(sweep(txn, args))).await?;
        self.tidy().await;
        Ok(removed)
    }
}

impl Sqlite {
    /// Removes beat files of processes that are gone.
    async fn tidy(&self) {
        let found = self.nodes.found();
        if found.is_empty() {
            return;
        }
        let text = "SELECT incarnation FROM lobster_nodes WHERE state = 0;";
        let Ok(rows) = self.readers.read(text, Args::default()).await else { return };
        let active: Result<HashSet<_>> = rows.iter().flatten().map(|row| get_id(row, 0, Incarnation::from_slice)).collect();
        if let Ok(active) = active {
            self.nodes.tidy(found, &active);
        }
    }
}

/// Tables of what a run has.
const TABLES: [&str; 8] = [
    "lobster_deltas",
    "lobster_changes",
    "lobster_manifests",
    "lobster_parts",
    "lobster_inputs",
    "lobster_outcomes",
    "lobster_verdicts_in",
    "lobster_tags",
];

async fn sweep(txn: &mut Txn, args: Args) -> Result<usize> {
    let text = sweep_text();
    let rows = txn.run(&text, args).await?;
    let removed = rows_of(&rows, TABLES.len()).len();
    let number = |at| rows_of(&rows, at).first().map_or(Ok(0), |row| get::<i64>(row, 0));
    let back = excess(number(TABLES.len() + 3)?, number(TABLES.len() + 4)?);
    let vacuum = if back > 0 { format!("PRAGMA incremental_vacuum({back});") } else { String::new() };
    txn.commit(&vacuum, Args::default()).await?;
    Ok(removed)
}

pub(super) fn sweep_text() -> String {
    let mut text = String::new();
    for table in TABLES {
        text += &format!("DELETE FROM {table} WHERE run IN ({GONE});");
    }
    text += &format!(
        "DELETE FROM lobster_runs WHERE id IN ({GONE}) RETURNING 1;\
         DELETE FROM lobster_node_tasks WHERE incarnation IN ({IDLE});\
         DELETE FROM lobster_nodes WHERE incarnation IN ({IDLE});\
         PRAGMA freelist_count;PRAGMA page_count;"
    );
    text
}

/// Pages worth giving back.
fn excess(free: i64, pages: i64) -> i64 {
    (free - FREE_PAGES.max(pages / 4)).clamp(0, PAGES_BACK)
}

//! Claiming runs.
//!
//! Invariant: the writer is asked only when a reader has seen something to claim, so idle polls cost no lock and no sync.

use super::{
    Sqlite,
    sql::{Args, get, get_id, get_u32, get_u64, rows_of},
    writer::Txn,
};
use crate::contract::{Claim, Grant, Incarnation, Result, RunId, TaskVersion, limits};
use sqlx::sqlite::SqliteRow;
use std::fmt::Write;

/// Tasks in different versions, and dead owners, that one claim looks at. The next claim sees the rest.
const SOURCES_MAX: usize = 100;

/// Where there is something to claim.
#[derive(Debug, Default)]
struct Sources {
    /// Ready runs that are due.
    ready: Vec<TaskVersion>,
    /// Owners that are not active and have runs.
    dead: Vec<Incarnation>,
}

impl Sqlite {
    pub(super) async fn claim_runs(&self, claim: Claim) -> Result<Vec<Grant>> {
        if claim.tasks.is_empty() || claim.limit == 0 {
            return Ok(Vec::new());
        }
        let sources = self.look(&claim).await?;
        if sources.ready.is_empty() && sources.dead.is_empty() {
            return Ok(Vec::new());
        }
        self.writer.write(true, move |txn| Box::pin(take(txn, claim, sources))).await
    }

    /// Finds out which versions are ready, by a skip through the index: its cost is the number of versions, not of runs.
    async fn look(&self, claim: &Claim) -> Result<Sources> {
        let (text, args) = look_text(claim);
        let rows = self.readers.read(&text, args).await?;
        let mut sources = Sources::default();
        for (asked, rows) in claim.tasks.iter().zip(&rows) {
            for row in rows {
                sources.ready.push(TaskVersion { task: asked.task.clone(), version: get_u32(row, 0)? });
            }
        }
        for row in rows_of(&rows, claim.tasks.len()) {
            sources.dead.push(get_id(row, 0, Incarnation::from_slice)?);
        }
        sources.ready.truncate(SOURCES_MAX);
        sources.dead.truncate(SOURCES_MAX);
        Ok(sources)
    }
}

/// The index of the ready runs in question, and what a row of it must say.
fn ready(alone: bool) -> (&'static str, &'static str) {
    match alone {
        false => ("lobster_runs_ready", "state = 0 AND deaths < 3"),
        true => ("lobster_runs_suspect", "state = 0 AND deaths >= 3"),
    }
}

pub(super) fn look_text(claim: &Claim) -> (String, Args) {
    let mut args = Args::default();
    let now = args.number(claim.now.0);
    let mut text = String::new();
    let (index, wanted) = match claim.alone {
        // Deaths are not in this index: the claim itself leaves the others out.
        false => ("lobster_runs_ready", "state = 0"),
        true => ready(true),
    };
    for asked in &claim.tasks {
        let task = args.number(asked.task.as_str());
        let version = args.number(i64::from(asked.version));
        let newest = format!("SELECT max(version) FROM lobster_runs INDEXED BY {index} WHERE {wanted} AND task = ${task}");
        text += &format!(
            "WITH RECURSIVE v (version) AS ({newest} AND version <= ${version} \
             UNION ALL SELECT ({newest} AND version < v.version) FROM v WHERE v.version IS NOT NULL) \
             SELECT version FROM v WHERE EXISTS (SELECT 1 FROM lobster_runs INDEXED BY {index} \
             WHERE {wanted} AND task = ${task} AND version = v.version AND due <= ${now});"
        );
    }
    let next = "SELECT min(owner) FROM lobster_runs INDEXED BY lobster_runs_running WHERE state = 1";
    text += &format!(
        "WITH RECURSIVE o (owner) AS ({next} UNION ALL SELECT ({next} AND owner > o.owner) FROM o WHERE o.owner IS NOT NULL) \
         SELECT owner FROM o WHERE owner IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM lobster_nodes WHERE incarnation = o.owner AND state = 0);"
    );
    (text, args)
}

async fn take(txn: &mut Txn, claim: Claim, sources: Sources) -> Result<Vec<Grant>> {
    let (text, args) = take_text(&claim, &sources.ready, &sources.dead);
    let rows = txn.commit(&text, args).await?;
    let mut grants: Vec<_> = rows.iter().flatten().map(grant).collect::<Result<_>>()?;
    grants.sort_unstable_by_key(|(due, grant)| (*due, grant.run));
    Ok(grants.into_iter().map(|(_, grant)| grant).collect())
}

fn grant(row: &SqliteRow) -> Result<(i64, Grant)> {
    let grant = Grant {
        run: get_id(row, 1, RunId::from_slice)?,
        epoch: get_u64(row, 2)?,
        tail: get_u64(row, 3)?,
        mark: get_u32(row, 4)?,
        task: TaskVersion { task: get(row, 5)?, version: get_u32(row, 6)? },
        attempts: get_u32(row, 7)?,
        deaths: get_u32(row, 8)?,
        cancel: get::<i64>(row, 9)? != 0,
        wake: get_u64(row, 10)?,
        doubt: None,
    };
    Ok((get(row, 0)?, grant))
}

pub(super) fn take_text(claim: &Claim, ready_in: &[TaskVersion], dead: &[Incarnation]) -> (String, Args) {
    let mut args = Args::default();
    let me = args.number(claim.incarnation.0.as_bytes().as_slice());
    let now = args.number(claim.now.0);
    let limit = args.number(i64::try_from(claim.limit).unwrap_or(i64::MAX));
    let mut sources = String::new();
    let mut add = |source: String| {
        let all = if sources.is_empty() { "" } else { " UNION ALL " };
        write!(sources, "{all}SELECT * FROM ({source} ORDER BY due, id LIMIT ${limit})")
            .expect("writing to a string never fails");
    };
    let (index, wanted) = ready(claim.alone);
    for source in ready_in {
        let task = args.number(source.task.as_str());
        let version = args.number(i64::from(source.version));
        add(format!(
            "SELECT id, due FROM lobster_runs INDEXED BY {index} \
             WHERE {wanted} AND task = ${task} AND version = ${version} AND due <= ${now}"
        ));
    }
    if !dead.is_empty() {
        let mut asked = String::new();
        for one in &claim.tasks {
            let task = args.number(one.task.as_str());
            let version = args.number(i64::from(one.version));
            let or = if asked.is_empty() { "" } else { " OR " };
            write!(asked, "{or}task = ${task} AND version <= ${version}").expect("writing to a string never fails");
        }
        let deaths = if claim.alone { ">=" } else { "<" };
        for owner in dead {
            let owner = args.number(owner.0.as_bytes().as_slice());
            add(format!(
                "SELECT id, due FROM lobster_runs INDEXED BY lobster_runs_running \
                 WHERE state = 1 AND owner = ${owner} AND deaths {deaths} {} AND ({asked}) \
                 AND NOT EXISTS (SELECT 1 FROM lobster_nodes WHERE incarnation = ${owner} AND state = 0)",
                limits::DEATHS_ALONE
            ));
        }
    }
    let text = format!(
        "UPDATE lobster_runs SET state = 1, owner = ${me}, epoch = epoch + 1, attempts = attempts + 1, wake_seen = wake, reason = '' \
         WHERE id IN (SELECT id FROM ({sources}) ORDER BY due, id LIMIT ${limit}) \
         AND EXISTS (SELECT 1 FROM lobster_nodes WHERE incarnation = ${me} AND state = 0) \
         RETURNING due, id, epoch, tail, mark, task, version, attempts, deaths, cancel, wake;"
    );
    (text, args)
}

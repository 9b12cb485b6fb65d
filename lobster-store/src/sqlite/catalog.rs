//! What people and callers read.
//!
//! Invariant: each call reads one snapshot. What a reader sees of an end is synced: a batch that ends a run syncs before it
//! becomes visible.

use super::{
    Sqlite,
    append::sealed,
    recording::{Details, details_text, ids_list},
    sql::{Args, get, get_id, get_state, get_u32, get_u64, rows_of},
};
use crate::contract::{
    Catalog, Digest, Ended, Failed, Incarnation, Mark, Result, RunFilter, RunId, RunSummary, Stored, TaskVersion, Wall,
};
use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use std::collections::HashMap;

/// Outcomes looked up in one call.
const RUNS: usize = 1024;

const COLUMNS: &str = "r.id, r.key, r.digest, r.task, r.version, r.state, r.reason, r.owner, r.epoch, r.tail, r.mark, r.attempts, \
                       r.deaths, r.cancel, r.submitted, r.due, r.ended";

fn summary(row: &SqliteRow) -> Result<(RunSummary, Mark)> {
    let digest = get::<&[u8]>(row, 2)?;
    let summary = RunSummary {
        id: get_id(row, 0, RunId::from_slice)?,
        key: get(row, 1)?,
        digest: Digest::try_from(digest).map_err(|_| Failed::Internal("a digest has not 32 bytes".to_owned()))?,
        task: TaskVersion { task: get(row, 3)?, version: get_u32(row, 4)? },
        tags: Vec::new(),
        state: get_state(row, 5)?,
        reason: get(row, 6)?,
        owner: get::<Option<&[u8]>>(row, 7)?.and_then(Incarnation::from_slice),
        epoch: get_u64(row, 8)?,
        tail: get_u64(row, 9)?,
        attempts: get_u32(row, 11)?,
        deaths: get_u32(row, 12)?,
        cancel: get::<i64>(row, 13)? != 0,
        submitted: Wall(get(row, 14)?),
        due: Wall(get(row, 15)?),
        ended: get::<Option<i64>>(row, 16)?.map(Wall),
    };
    Ok((summary, get_u32(row, 10)?))
}

/// The part of a SELECT from WHERE on.
fn matching(filter: &RunFilter, args: &mut Args) -> String {
    let mut text = " WHERE 1".to_owned();
    if let Some(after) = filter.after {
        text += &format!(" AND r.id > ${}", args.number(after.0.as_bytes().as_slice()));
    }
    if let Some(task) = &filter.task {
        text += &format!(" AND r.task = ${}", args.number(task.as_str()));
    }
    if let Some(since) = filter.since {
        text += &format!(" AND r.submitted >= ${}", args.number(since.0));
    }
    if !filter.states.is_empty() {
        let states: Vec<_> = filter.states.iter().map(|state| state.number().to_string()).collect();
        text += &format!(" AND r.state IN ({})", states.join(","));
    }
    for tag in &filter.tags {
        let tag = args.number(tag.as_str());
        text += &format!(" AND r.id IN (SELECT run FROM lobster_tags WHERE tag = ${tag})");
    }
    text
}

#[async_trait]
impl Catalog for Sqlite {
    async fn find(&self, key: &str) -> Result<Option<RunId>> {
        let mut args = Args::default();
        args.push(key);
        let rows = self.readers.read("SELECT id FROM lobster_runs WHERE key = ?;", args).await?;
        rows.iter().flatten().next().map(|row| get_id(row, 0, RunId::from_slice)).transpose()
    }

    async fn list(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>> {
        let mut args = Args::default();
        let matching = matching(&filter, &mut args);
        let limit = args.number(i64::try_from(limit).unwrap_or(i64::MAX));
        let text = format!(
            "SELECT {COLUMNS} FROM lobster_runs AS r{matching} ORDER BY r.id LIMIT ${limit};\
             SELECT t.run, t.tag FROM (SELECT r.id FROM lobster_runs AS r{matching} ORDER BY r.id LIMIT ${limit}) AS l \
             CROSS JOIN lobster_tags AS t ON t.run = l.id ORDER BY t.run, t.tag;"
        );
        let rows = self.readers.read(&text, args).await?;
        let mut tags: HashMap<RunId, Vec<String>> = HashMap::new();
        for row in rows_of(&rows, 1) {
            tags.entry(get_id(row, 0, RunId::from_slice)?).or_default().push(get(row, 1)?);
        }
        let with_tags = |row| {
            let (mut summary, _) = summary(row)?;
            summary.tags = tags.remove(&summary.id).unwrap_or_default();
            Ok(summary)
        };
        rows_of(&rows, 0).iter().map(with_tags).collect()
    }

    async fn count(&self, filter: RunFilter) -> Result<u64> {
        let mut args = Args::default();
        let text = format!("SELECT count(*) FROM lobster_runs AS r{};", matching(&filter, &mut args));
        let rows = self.readers.read(&text, args).await?;
        rows.iter().flatten().next().map_or(Ok(0), |row| get_u64(row, 0))
    }

    async fn read(&self, run: RunId) -> Result<Option<Stored>> {
        let list = ids_list(&[run]);
        let text = format!(
            "SELECT {COLUMNS} FROM lobster_runs AS r WHERE r.id = $1;\
             SELECT tag FROM lobster_tags WHERE run = $1 ORDER BY tag;\
             SELECT crc, body FROM lobster_outcomes WHERE run = $1;{}",
            details_text(&list.text)
        );
        let rows = self.readers.read(&text, list.args).await?;
        let Some(row) = rows_of(&rows, 0).first() else { return Ok(None) };
        let (mut summary, mark) = summary(row)?;
        summary.tags = rows_of(&rows, 1).iter().map(|row| get(row, 0)).collect::<Result<_>>()?;
        let recording = Details::read(rows.get(3..).unwrap_or_default())?.of(run, summary.tail, mark)?;
        let outcome = rows_of(&rows, 2).first();
        let ended = outcome.map(|row| Ok(Ended { state: summary.state, outcome: sealed(row, 0)? })).transpose()?;
        Ok(Some(Stored { summary, recording, ended }))
    }

    async fn outcomes(&self, runs: &[RunId]) -> Result<Vec<Option<Option<Ended>>>> {
        let mut answers = Vec::with_capacity(runs.len());
        for runs in runs.chunks(RUNS) {
            let list = ids_list(runs);
            let text = format!(
                "SELECT r.id, r.state, o.crc, o.body FROM lobster_runs AS r \
                 LEFT JOIN lobster_outcomes AS o ON o.run = r.id AND r.state > 2 WHERE r.id IN ({});",
                list.text
            );
            let rows = self.readers.read(&text, list.args).await?;
            let mut found = HashMap::new();
            for row in rows.iter().flatten() {
                let state = get_state(row, 1)?;
                let ended = match get::<Option<i64>>(row, 2)? {
                    Some(_) => Some(Ended { state, outcome: sealed(row, 2)? }),
                    None => None,
                };
                found.insert(get_id(row, 0, RunId::from_slice)?, ended);
            }
            answers.extend(runs.iter().map(|run| found.get(run).cloned()));
        }
        Ok(answers)
    }
}

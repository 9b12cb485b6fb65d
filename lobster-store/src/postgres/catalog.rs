//! What people and callers read.
//!
//! Invariant: each call reads one snapshot. Outcomes are handed out once they are as durable as the synced statements that made them: an
//! output. The rest are observations, and may be ahead of that.

use super::{
    Postgres, STANDBY,
    recording::of_runs,
    sql::{Args, get, get_owner, get_run, get_sealed, get_state, get_u32, get_u64},
    times::Times,
};
use crate::contract::{Catalog, Digest, Ended, Failed, Result, RunFilter, RunId, RunSummary, Stored, TaskVersion};
use async_trait::async_trait;
use sqlx::postgres::{PgArguments, PgRow};
use std::collections::HashMap;
use uuid::Uuid;

/// Outcomes looked up in one call.
const RUNS: usize = 1024;

const COLUMNS: &str = "r.id, r.key, r.digest, r.task, r.version, r.state, r.reason, r.owner, r.epoch, r.tail, r.attempts, r.deaths, \
                       r.cancel, r.submitted, r.due, r.ended, \
                       ARRAY(SELECT t.tag FROM @tags t WHERE t.run = r.id ORDER BY t.tag COLLATE \"C\")";

fn summary(row: &PgRow, times: &Times) -> Result<RunSummary> {
    let digest: &[u8] = get(row, 2)?;
    Ok(RunSummary {
        id: get_run(row, 0)?,
        key: get(row, 1)?,
        digest: Digest::try_from(digest).map_err(|_| Failed::Internal("a digest has not 32 bytes".to_owned()))?,
        task: TaskVersion { task: get(row, 3)?, version: get_u32(row, 4)? },
        state: get_state(row, 5)?,
        reason: get(row, 6)?,
        owner: get_owner(row, 7)?,
        epoch: get_u64(row, 8)?,
        tail: get_u64(row, 9)?,
        attempts: get_u32(row, 10)?,
        deaths: get_u32(row, 11)?,
        cancel: get(row, 12)?,
        submitted: times.here(get(row, 13)?),
        due: times.here(get(row, 14)?),
        ended: get::<Option<i64>>(row, 15)?.map(|ended| times.here(ended)),
        tags: get(row, 16)?,
    })
}

/// The part of a SELECT from WHERE on, and its arguments.
fn matching<'f>(filter: &'f RunFilter, times: &'f Times) -> (String, impl Fn() -> Args + 'f) {
    let (mut text, mut count) = (" WHERE true".to_owned(), 0);
    let mut next = || {
        count += 1;
        count
    };
    if filter.after.is_some() {
        text += &format!(" AND r.id > ${}", next());
    }
    if filter.task.is_some() {
        text += &format!(" AND r.task = ${}", next());
    }
    if filter.since.is_some() {
        text += &format!(" AND r.submitted >= ${}", next());
    }
    if !filter.states.is_empty() {
        let states: Vec<_> = filter.states.iter().map(|state| state.number().to_string()).collect();
        text += &format!(" AND r.state IN ({})", states.join(","));
    }
    for _ in &filter.tags {
        text += &format!(" AND r.id IN (SELECT run FROM @tags WHERE tag = ${})", next());
    }
    let args = move || {
        let mut args = Args::default();
        if let Some(after) = filter.after {
            args = args.with(after.0);
        }
        if let Some(task) = &filter.task {
            args = args.with(task.as_str());
        }
        if let Some(since) = filter.since {
            args = args.with(times.there(since));
        }
        filter.tags.iter().fold(args, |args, tag| args.with(tag.as_str()))
    };
    (text, args)
}

#[async_trait]
impl Catalog for Postgres {
    async fn find(&self, key: &str) -> Result<Option<RunId>> {
        let rows = self.read("SELECT id FROM @runs WHERE key = $1", || Args::default().with(key).done()).await?;
        rows.first().map(|row| get_run(row, 0)).transpose()
    }

    async fn list(&self, filter: RunFilter, limit: usize) -> Result<Vec<RunSummary>> {
        let (matching, args) = matching(&filter, &self.times);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let text = format!("SELECT {COLUMNS} FROM @runs r{matching} ORDER BY r.id LIMIT {limit}");
        self.read(&text, || args().done()).await?.iter().map(|row| summary(row, &self.times)).collect()
    }

    async fn count(&self, filter: RunFilter) -> Result<u64> {
        let (matching, args) = matching(&filter, &self.times);
        let rows = self.read(&format!("SELECT count(*) FROM @runs r{matching}"), || args().done()).await?;
        rows.first().map_or(Ok(0), |row| get_u64(row, 0))
    }

    async fn read(&self, run: RunId) -> Result<Option<Stored>> {
        let one = || -> PgArguments { Args::default().with(run.0).done() };
        let mut snapshot = self.pool.snapshot().await?;
        let row = self.text(&format!("SELECT {COLUMNS} FROM @runs r WHERE r.id = $1"));
        let row = snapshot.query(&row, one).await?;
        let outcome = snapshot.query(&self.text("SELECT crc, body FROM @outcomes WHERE run = $1"), one).await?;
        let recording = snapshot.query(&self.recording_text(), || of_runs(&[run.0])).await?;
        snapshot.rollback().await?;
        let Some(row) = row.first() else { return Ok(None) };
        let summary = summary(row, &self.times)?;
        let recording = Self::recording(run, &recording)?;
        let outcome = outcome.first().map(|row| get_sealed(row, 0)).transpose()?;
        let ended = outcome.map(|outcome| Ended { state: summary.state, outcome });
        Ok(Some(Stored { summary, recording, ended }))
    }

    async fn outcomes(&self, runs: &[RunId]) -> Result<Vec<Option<Option<Ended>>>> {
        let text = format!(
            "SELECT r.id, r.state, {STANDBY}, o.crc, o.body FROM @runs r LEFT JOIN @outcomes o ON o.run = r.id AND r.state > 2 \
             AND o.run = ANY($1::uuid[]) WHERE r.id = ANY($1::uuid[])"
        );
        let mut answers = Vec::with_capacity(runs.len());
        for runs in runs.chunks(RUNS) {
            let ids: Vec<Uuid> = runs.iter().map(|run| run.0).collect();
            let (mut found, mut unsure) = (HashMap::new(), false);
            for row in &self.read(&text, || of_runs(&ids)).await? {
                let state = get_state(row, 1)?;
                let ended = match get::<Option<i64>>(row, 3)? {
                    Some(_) => Some(Ended { state, outcome: get_sealed(row, 3)? }),
                    None => None,
                };
                unsure |= ended.is_some() && get(row, 2)?;
                found.insert(get_run(row, 0)?, ended);
            }
            self.barrier(unsure).await?;
            answers.extend(runs.iter().map(|run| found.get(run).cloned()));
        }
        Ok(answers)
    }
}

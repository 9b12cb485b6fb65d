//! Claiming runs.
//!
//! Invariant: one statement finds, locks and takes; it waits for no lock, and a claim that finds nothing writes nothing. After a standby was
//! promoted it finds nothing before everybody has had the time to say what that one lacks.

use super::{
    Postgres,
    promoted::{here, marked},
    sql::{Args, get, get_run, get_u32, get_u64},
    times::SERVER_MS,
};
use crate::contract::{Claim, Grant, Result, TaskVersion, limits};
use sqlx::postgres::PgRow;

// What the statements say in numbers.
const _: () = assert!(limits::DEATHS_ALONE == 3);

/// Versions of a task that are ready, and owners, are found by skips through their index: the cost is their number, not that of the runs.
/// Rows are locked where they are found, in order, past those that somebody else has locked: two claims at once share the work. A row
/// that has changed since the statement began is looked at again once it is locked. `here`: the server's timeline, if it
/// is settled.
fn text(alone: bool, here: &str) -> String {
    let deaths = if alone { "r.deaths >= 3" } else { "r.deaths < 3" };
    // Without a bound on deaths where the index has none, so that it is the one that is looked at.
    let skip = if alone { "r.state = 0 AND r.deaths >= 3" } else { "r.state = 0" };
    let marked = marked();
    format!(
        "
WITH RECURSIVE how AS MATERIALIZED (SELECT set_config('synchronous_commit', $1, true)),
{here},
me AS MATERIALIZED (SELECT n.incarnation FROM @nodes n, how, here WHERE n.incarnation = $2 AND n.state = 0),
asked AS MATERIALIZED (SELECT a.task, a.version FROM me, unnest($3::text[], $4::int8[]) AS a(task, version)),
kinds(task, version) AS (
    SELECT a.task, (SELECT r.version FROM @runs r WHERE {skip} AND r.task = a.task AND r.version <= a.version
        ORDER BY r.version DESC LIMIT 1) FROM asked a
    UNION ALL
    SELECT k.task, (SELECT r.version FROM @runs r WHERE {skip} AND r.task = k.task AND r.version < k.version
        ORDER BY r.version DESC LIMIT 1) FROM kinds k WHERE k.version IS NOT NULL),
ready AS MATERIALIZED (SELECT f.id, f.due FROM kinds k CROSS JOIN LATERAL (
    SELECT r.id, r.due FROM @runs r WHERE r.state = 0 AND {deaths} AND r.task = k.task AND r.version = k.version
        AND r.due <= (extract(epoch FROM statement_timestamp()) * 1000)::int8
    ORDER BY r.due, r.id LIMIT $5 FOR NO KEY UPDATE OF r SKIP LOCKED) f WHERE k.version IS NOT NULL),
owners(owner) AS (
    (SELECT r.owner FROM @runs r, me WHERE r.state = 1 ORDER BY r.owner LIMIT 1)
    UNION ALL
    SELECT (SELECT r.owner FROM @runs r WHERE r.state = 1 AND r.owner > o.owner ORDER BY r.owner LIMIT 1)
    FROM owners o WHERE o.owner IS NOT NULL),
orphans AS MATERIALIZED (SELECT f.id, f.due FROM owners o CROSS JOIN LATERAL (
    SELECT r.id, r.due FROM @runs r WHERE r.state = 1 AND r.owner = o.owner AND {deaths}
        AND EXISTS (SELECT 1 FROM asked a WHERE a.task = r.task AND r.version <= a.version)
    ORDER BY r.due, r.id LIMIT $5 FOR NO KEY UPDATE OF r SKIP LOCKED) f
    WHERE o.owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM @nodes n WHERE n.incarnation = o.owner AND n.state = 0)),
taken AS MATERIALIZED (SELECT id FROM (SELECT * FROM ready UNION ALL SELECT * FROM orphans) f ORDER BY due, id LIMIT $5)
UPDATE @runs r SET state = 1, owner = $2, attempts = r.attempts + 1, wake_seen = r.wake, reason = '',
    {marked}
FROM here WHERE r.id = ANY(ARRAY(SELECT id FROM taken))
RETURNING r.due, r.id, r.epoch, r.tail, r.mark, r.task, r.version, r.attempts, r.deaths, r.cancel, r.wake, r.doubt, {SERVER_MS}"
    )
}

impl Postgres {
    pub(super) async fn claim_runs(&self, claim: Claim) -> Result<Vec<Grant>> {
        if claim.tasks.is_empty() || claim.limit == 0 {
            return Ok(Vec::new());
        }
        let told = self.newest.told();
        let args = || {
            let args = Args::default()
                .with(self.synced)
                .with(claim.incarnation.0)
                .with(claim.tasks.iter().map(|asked| asked.task.as_str()).collect::<Vec<_>>())
                .with(claim.tasks.iter().map(|asked| i64::from(asked.version)).collect::<Vec<_>>())
                .with(i64::try_from(claim.limit).unwrap_or(i64::MAX));
            match told {
                Some((system, _)) => args.with(system).done(),
                None => args.done(),
            }
        };
        let before = self.clock.wall();
        let here = here(told.is_some(), self.options.trust_promoted);
        let rows = self.write(&text(claim.alone, &here), args).await?;
        self.told(before, rows.first(), COLUMNS)?;
        let mut grants = rows.iter().map(grant).collect::<Result<Vec<_>>>()?;
        grants.sort_unstable_by_key(|(due, grant)| (*due, grant.run));
        Ok(grants.into_iter().map(|(_, grant)| grant).collect())
    }
}

/// What a grant is made of; behind it comes the server's time.
const COLUMNS: usize = 12;

fn grant(row: &PgRow) -> Result<(i64, Grant)> {
    let grant = Grant {
        run: get_run(row, 1)?,
        epoch: get_u64(row, 2)?,
        tail: get_u64(row, 3)?,
        mark: get_u32(row, 4)?,
        task: TaskVersion { task: get(row, 5)?, version: get_u32(row, 6)? },
        attempts: get_u32(row, 7)?,
        deaths: get_u32(row, 8)?,
        cancel: get(row, 9)?,
        wake: get_u64(row, 10)?,
        doubt: get::<Option<i64>>(row, 11)?.map(i64::cast_unsigned),
    };
    Ok((get(row, 0)?, grant))
}

//! W7, W8: a store that many runs lie in, ended ones or such as are due next month.
//!
//! Invariant: they are copies of a run that this engine stored itself; the store is filled once, and vacuumed, before the first round.

use super::{Stage, Taken, many};
use crate::{Result, counters::Counters, options::Options, site::Place, work};
use lobster_core::Lobster;
use sqlx::{AssertSqlSafe, Connection, Executor};
use std::time::Duration;

/// The runs that lie there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum With {
    /// They ended, and retention has not taken them yet.
    Ended,
    /// They are due next month.
    Waiting,
}

impl With {
    /// How many, unless somebody says otherwise.
    pub fn rows(self, options: &Options) -> u32 {
        let all = match self {
            With::Ended => 10_000_000,
            With::Waiting => 1_000_000,
        };
        options.scaled(options.rows.unwrap_or(all))
    }
}

/// `$c` copies of the only run, under ids of the last moments and keys of their own. `@` stands for the schema.
const COPY: &str = "
CREATE TEMP TABLE copies AS SELECT n, (lpad(to_hex((extract(epoch FROM now()) * 1000)::int8 - $c + n), 12, '0') || '7'
    || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid AS id FROM generate_series(1, $c) AS n;
CREATE TEMP TABLE model AS SELECT * FROM @.runs;
INSERT INTO @.inputs (run, crc, body) SELECT c.id, x.crc, x.body FROM copies c, @.inputs x;
INSERT INTO @.deltas (run, seq_from, seq_to, epoch, crc, body)
    SELECT c.id, x.seq_from, x.seq_to, x.epoch, x.crc, x.body FROM copies c, @.deltas x;
INSERT INTO @.outcomes (run, crc, body) SELECT c.id, x.crc, x.body FROM copies c, @.outcomes x;
INSERT INTO @.runs (id, key, digest, task, version, state, owner, epoch, tail, mark, wake, wake_seen, cancel, attempts, deaths, due,
        submitted, ended, reason, timeline)
    SELECT c.id, m.key || '-' || c.n, m.digest, m.task, m.version, m.state, m.owner, m.epoch, m.tail, m.mark, m.wake, m.wake_seen,
        m.cancel, m.attempts, m.deaths, m.due + $d, m.submitted, m.ended, m.reason, m.timeline FROM copies c, model m;
UPDATE @.runs SET due = due + $d WHERE id = (SELECT id FROM model);
DROP TABLE copies, model";

const MONTH_MS: u64 = 30 * 24 * 3_600_000;

/// A store with so many runs.
pub async fn fill(place: Place, with: With, runs: u32) -> Result<Place> {
    let (tiers, _) = place.open().await?;
    match with {
        With::Ended => {
            let lobster = Lobster::open("").tiers(tiers).task(work::plain).start().await?;
            lobster.submit(work::plain, 10).key("model").await?.outcome().await?;
            lobster.shutdown(Duration::from_secs(5)).await;
        }
        With::Waiting => {
            let client = Lobster::open("").tiers(tiers).connect().await?;
            client.submit(work::plain, 10).key("model").await?;
        }
    }
    let later = if with == With::Waiting { MONTH_MS } else { 0 };
    let (copies, later) = (runs.saturating_sub(1).to_string(), later.to_string());
    let text = COPY.replace('@', place.schema()?).replace("$c", &copies).replace("$d", &later);
    let mut connection = place.connect().await?;
    eprintln!("{runs} runs are put into the tables");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
    for table in ["runs", "inputs", "deltas", "outcomes"] {
        let text = format!("VACUUM ANALYZE {}.{table}", place.schema()?);
        connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
    }
    // Whoever may not ask for a checkpoint has one later.
    connection.execute("CHECKPOINT").await.ok();
    connection.close().await?;
    Ok(place)
}

/// W2 here, beside W2 on an empty store.
pub async fn round(stage: &Stage<'_>, filled: &Place, number: usize) -> Result<Taken> {
    let (empty, _) = many::round(stage, many::Kind::Ordinary).await?;
    let (value, syncs) = many::rate(stage, filled, many::Kind::Ordinary, &format!("round-{number}")).await?;
    Ok(Taken { value, syncs, beside: Some(empty) })
}

/// Statements per second of a node that has nothing to do; `None`: the server does not count.
pub async fn idle(stage: &Stage<'_>, filled: &Place) -> Result<Option<Taken>> {
    let Some(mut counters) = Counters::open(filled).await? else { return Ok(None) };
    let (tiers, _) = filled.open().await?;
    let lobster = Lobster::open("").tiers(tiers).task(work::plain).start().await?;
    let (settle, window) = if stage.options.scale == 1 { (5.0, 20.0) } else { (0.2, 2.5) };
    tokio::time::sleep(Duration::from_secs_f64(settle)).await;
    let before = counters.read().await?;
    tokio::time::sleep(Duration::from_secs_f64(window)).await;
    let count = counters.since(before).await?;
    lobster.shutdown(Duration::from_secs(5)).await;
    counters.close().await?;
    Ok(Some(Taken { value: count.statements as f64 / window, syncs: 0, beside: None }))
}

//! Submitting runs.
//!
//! Invariant: a run is created with its input and tags in one statement, and a key never names two.

use super::{
    Postgres,
    business::connection,
    failure::{self, Stage},
    journal::LOCK,
    pool::is_in_transaction,
    sql::{Args, get, get_run},
    times::{SERVER_MS, Times},
};
use crate::contract::{Business, Failed, NewRun, Result, RunId, Submitted, Wall, limits};
use sqlx::{
    AssertSqlSafe,
    postgres::{PgArguments, PgConnection, PgRow},
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};
use uuid::Uuid;

/// Keys in their order, so that two submits wait for each other's keys in the same order. `first` is what has to be so: without a row of it
/// nothing is asked. What is due by now is due by now on the server, whatever its clock has become. `timeline` is the server's;
/// a run that may have been created on an earlier one is of that one.
fn insert(first: &str, timeline: &str) -> String {
    format!(
        "
WITH how AS MATERIALIZED ({first}),
place AS MATERIALIZED (SELECT {timeline} AS timeline),
asked AS (SELECT a.* FROM how, unnest($3::uuid[], $4::text[], $5::bytea[], $6::text[], $7::int8[], $8::int8[], $9::int8[], $10::bytea[],
    $14::int8[]) AS a(id, key, digest, task, version, due, crc, body, timeline)),
made AS (INSERT INTO @runs (id, key, digest, task, version, state, owner, epoch, tail, mark, wake, wake_seen, cancel, attempts, deaths,
        due, submitted, ended, reason, timeline)
    SELECT id, key, digest, task, version, 0, NULL, 0, 0, 0, 0, 0, false, 0, 0,
        CASE WHEN due <= $13 THEN LEAST(due, {SERVER_MS}) ELSE due END, {SERVER_MS}, NULL, '', COALESCE(timeline, (SELECT timeline FROM place))
    FROM asked ORDER BY key, id ON CONFLICT DO NOTHING RETURNING id),
inputs AS (INSERT INTO @inputs (run, crc, body) SELECT DISTINCT ON (a.id) a.id, a.crc, a.body FROM asked a JOIN made USING (id)),
tags AS (INSERT INTO @tags (run, tag) SELECT DISTINCT t.run, t.tag FROM unnest($11::uuid[], $12::text[]) AS t(run, tag) JOIN made ON made.id = t.run)
SELECT id, {SERVER_MS} FROM made"
    )
}

/// How it commits by itself. A row that is being inserted by somebody else is waited for, but not for ever: he may have frozen.
const ALONE: &str = "SELECT set_config('synchronous_commit', $1, true), set_config('lock_timeout', $2, true)";

/// In a transaction of somebody else's, whose settings stay as they are: it is of this installation, and still the one that was entered.
const WITHIN: &str =
    "SELECT FROM @meta WHERE name = 'installation' AND value = $1 AND current_setting('lobster.submit', true) = $2";

/// Is there an installation at all? Asked in a way that spoils no transaction. The word that is left is gone as soon as the transaction
/// has ended; outside of one, at once.
const ENTER: &str = "SELECT to_regclass($1) IS NOT NULL, set_config('lobster.submit', $2, true)";

/// What of [`WITHIN`] is so.
const WHY_NOT: &str = "
SELECT EXISTS (SELECT FROM @meta WHERE name = 'installation' AND value = $1), coalesce(current_setting('lobster.submit', true) = $2, false)";

fn find() -> String {
    let columns = "id, key, task, digest";
    format!(
        "SELECT {columns} FROM @runs WHERE id = ANY($1::uuid[]) UNION SELECT {columns} FROM @runs WHERE key = ANY($2::text[])"
    )
}

/// Times that a run which could not be inserted was not to be found either: its key was free again.
const TRIES: usize = 10;

impl Postgres {
    pub(super) async fn submit_runs(&self, runs: Vec<NewRun>) -> Result<Vec<Submitted>> {
        let mut answers: Vec<Option<Submitted>> = vec![None; runs.len()];
        for _ in 0..TRIES {
            let open: Vec<usize> = (0..runs.len()).filter(|at| answers[*at].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let asked: Vec<&NewRun> = open.iter().map(|at| &runs[*at]).collect();
            let before = self.clock.wall();
            let timelines = self.unsure.of(&asked);
            let args = || insert_args([self.synced, LOCK], &self.times, before, &asked, &timelines);
            let now = self.newest.told().map(|(_, number)| number);
            let rows = match self.write(&insert(ALONE, self.timeline()), args).await {
                Err(failed @ Failed::Unknown(_)) => {
                    self.unsure.note(&asked, now);
                    return Err(failed);
                }
                rows => rows?,
            };
            self.unsure.forget(&asked);
            self.told(before, rows.first(), 1)?;
            let mut made = rows.iter().map(|row| get_run(row, 0)).collect::<Result<HashSet<_>>>()?;
            let known = match made.len() == asked.len() {
                true => Known::default(),
                false => Known::read(&self.read(&find(), || find_args(&asked)).await?)?,
            };
            // What is there may have been committed in a transaction of somebody else's, who did not wait for his commit to be synced.
            self.barrier(!known.by_id.is_empty()).await?;
            if !made.is_empty() {
                self.stir();
            }
            for at in open {
                // An id that comes twice was created by the first of them.
                answers[at] = if made.remove(&runs[at].id) { Some(Submitted::Created) } else { known.answer(&runs[at]) };
            }
        }
        answers.into_iter().map(|answer| answer.ok_or_else(taken_again)).collect()
    }

    pub(super) async fn submit_run_in(&self, transaction: &mut Business, run: NewRun) -> Result<Submitted> {
        let strange = || Failed::Refused("this is no transaction of this store: it takes one of PostgreSQL".to_owned());
        let connection = connection(transaction).ok_or_else(strange)?;
        let outside = || Failed::Refused("this connection is not inside of a transaction".to_owned());
        if self.options.pooled && !is_in_transaction(connection).await? {
            return Err(outside());
        }
        let word = run.id.to_string();
        let enter = Args::default().with(self.text("@meta")).with(word.as_str()).done();
        if !flags::<1>(&self.ask(connection, ENTER, enter).await?)?[0] {
            let schema = &self.options.schema;
            return Err(Failed::Refused(format!(
                "this transaction is of another database: there is no schema \"{schema}\" in it"
            )));
        }
        for _ in 0..TRIES {
            let settings = [self.installation.as_str(), word.as_str()];
            let before = self.clock.wall();
            let args = insert_args(settings, &self.times, before, &[&run], &[None]);
            let made = self.ask(connection, &insert(WITHIN, self.timeline()), args).await?;
            self.told(before, made.first(), 1)?;
            if !made.is_empty() {
                return Ok(Submitted::Created);
            }
            let why = Args::default().with(settings[0]).with(settings[1]).done();
            match flags::<2>(&self.ask(connection, WHY_NOT, why).await?)? {
                [true, true] => {}
                [true, false] => return Err(outside()),
                [false, _] => return Err(Failed::Refused("this transaction is of another installation's database".to_owned())),
            }
            let known = Known::read(&self.ask(connection, &find(), find_args(&[&run])).await?)?;
            if let Some(answer) = known.answer(&run) {
                return Ok(answer);
            }
        }
        Err(taken_again())
    }

    /// A statement in a transaction of somebody else's, who decides how long it may take.
    async fn ask(&self, connection: &mut PgConnection, text: &str, args: PgArguments) -> Result<Vec<PgRow>> {
        let query = sqlx::query_with(AssertSqlSafe(self.text(text)), args).persistent(!self.options.pooled);
        query.fetch_all(connection).await.map_err(|error| failure::of(Stage::Read, &error))
    }
}

fn taken_again() -> Failed {
    Failed::Unavailable("a key was taken and given back again and again".to_owned())
}

/// The first columns of the only row.
fn flags<const N: usize>(rows: &[PgRow]) -> Result<[bool; N]> {
    let row = rows.first().ok_or_else(|| Failed::Internal("a question without an answer".to_owned()))?;
    let mut flags = [false; N];
    for (at, flag) in flags.iter_mut().enumerate() {
        *flag = get(row, at)?;
    }
    Ok(flags)
}

fn insert_args(settings: [&str; 2], times: &Times, now: Wall, runs: &[&NewRun], timelines: &[Option<i64>]) -> PgArguments {
    let tags: Vec<(Uuid, &str)> = runs.iter().flat_map(|run| run.tags.iter().map(|tag| (run.id.0, tag.as_str()))).collect();
    Args::default()
        .with(settings[0])
        .with(settings[1])
        .with(ids(runs))
        .with(runs.iter().map(|run| run.key.as_deref()).collect::<Vec<_>>())
        .with(runs.iter().map(|run| run.digest.as_slice()).collect::<Vec<_>>())
        .with(runs.iter().map(|run| run.task.task.as_str()).collect::<Vec<_>>())
        .with(runs.iter().map(|run| i64::from(run.task.version)).collect::<Vec<_>>())
        .with(runs.iter().map(|run| times.there(run.due)).collect::<Vec<_>>())
        .with(runs.iter().map(|run| i64::from(run.input.crc)).collect::<Vec<_>>())
        .with(runs.iter().map(|run| run.input.body.as_ref()).collect::<Vec<_>>())
        .with(tags.iter().map(|(run, _)| *run).collect::<Vec<_>>())
        .with(tags.iter().map(|(_, tag)| *tag).collect::<Vec<_>>())
        .with(times.there(now))
        .with(timelines)
        .done()
}

/// Runs of which it is unknown whether they were created, and the timeline on which that was: when one is offered again after a promotion,
/// somebody may have executed it who is gone, and whose server had it.
#[derive(Debug, Default)]
pub(super) struct Unsure(Mutex<BTreeMap<RunId, i64>>);

/// More than are offered again at a time. The oldest are forgotten: ids grow.
const UNSURE: usize = 2 * limits::SUBMIT_RUNS;

impl Unsure {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, runs: &[&NewRun]) -> Vec<Option<i64>> {
        let unsure = self.lock();
        runs.iter().map(|run| unsure.get(&run.id).copied()).collect()
    }

    fn note(&self, runs: &[&NewRun], timeline: Option<i64>) {
        let Some(timeline) = timeline else { return };
        let mut unsure = self.lock();
        for run in runs {
            unsure.entry(run.id).or_insert(timeline);
        }
        while unsure.len() > UNSURE {
            unsure.pop_first();
        }
    }

    fn forget(&self, runs: &[&NewRun]) {
        let mut unsure = self.lock();
        if !unsure.is_empty() {
            runs.iter().for_each(|run| _ = unsure.remove(&run.id));
        }
    }
}

fn ids(runs: &[&NewRun]) -> Vec<Uuid> {
    runs.iter().map(|run| run.id.0).collect()
}

fn find_args(runs: &[&NewRun]) -> PgArguments {
    Args::default().with(ids(runs)).with(runs.iter().filter_map(|run| run.key.as_deref()).collect::<Vec<_>>()).done()
}

/// Runs that were there before.
#[derive(Default)]
struct Known {
    by_id: HashMap<RunId, (String, Vec<u8>)>,
    by_key: HashMap<String, RunId>,
}

impl Known {
    fn read(rows: &[PgRow]) -> Result<Self> {
        let mut known = Self::default();
        for row in rows {
            let id = get_run(row, 0)?;
            if let Some(key) = get::<Option<String>>(row, 1)? {
                known.by_key.insert(key, id);
            }
            known.by_id.insert(id, (get(row, 2)?, get(row, 3)?));
        }
        Ok(known)
    }

    /// `None`: whoever was in the way has gone.
    fn answer(&self, run: &NewRun) -> Option<Submitted> {
        let id = run.key.as_ref().and_then(|key| self.by_key.get(key)).copied().unwrap_or(run.id);
        let (task, digest) = self.by_id.get(&id)?;
        // By name: a newer version of the task asks for the same run.
        let same = *task == run.task.task && *digest == run.digest;
        Some(Submitted::Existing { id, same })
    }
}

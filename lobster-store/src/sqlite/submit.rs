//! Submitting runs.
//!
//! Invariant: a run is created with its input and tags in one transaction, and a key never names two.

use super::{
    Sqlite,
    business::SqliteTx,
    sql::{Args, ROWS_MAX, bucket, get, get_id, marks, values},
    writer::Txn,
};
use crate::contract::{Business, Failed, NewRun, Result, RunId, Submitted, Wall};
use sqlx::sqlite::SqliteRow;
use std::collections::{HashMap, HashSet};

impl Sqlite {
    pub(super) async fn submit_runs(&self, runs: Vec<NewRun>) -> Result<Vec<Submitted>> {
        if runs.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.clock.wall();
        let answers = self.writer.write(true, move |txn| Box::pin(submit(txn, runs, now))).await?;
        if answers.contains(&Submitted::Created) {
            self.stir();
        }
        Ok(answers)
    }

    pub(super) async fn submit_run_in(&self, transaction: &mut Business, run: NewRun) -> Result<Submitted> {
        let mine = transaction.downcast_mut::<SqliteTx>().filter(|tx| tx.file == self.writer.identity());
        let tx = mine.ok_or_else(|| {
            Failed::Refused("this is no transaction of this store: it takes the `SqliteTx` of a step of its own".to_owned())
        })?;
        let (text, args) = insertion(std::slice::from_ref(&run), self.clock.wall());
        let created = !tx.run(text, args).await?.iter().all(Vec::is_empty);
        let (text, args) = if created { details(&[&run], &[]) } else { details(&[], &[&run]) };
        let rows = tx.run(text, args).await?;
        tx.submitted |= created;
        Ok(if created { Submitted::Created } else { Known::read(rows.iter().flatten())?.answer(&run) })
    }
}

async fn submit(txn: &mut Txn, runs: Vec<NewRun>, now: Wall) -> Result<Vec<Submitted>> {
    let mut answers = Vec::with_capacity(runs.len());
    let mut calls = runs.chunks(ROWS_MAX).peekable();
    while let Some(chunk) = calls.next() {
        let mut created = insert_runs(txn, chunk, now).await?;
        // An id that comes twice was created by the first of them.
        let (new, old): (Vec<_>, Vec<_>) = chunk.iter().map(|run| (run, created.remove(&run.id))).partition(|(_, new)| *new);
        let (text, args) = details(&firsts(&new), &firsts(&old));
        let rows = match (calls.peek(), text.is_empty()) {
            (None, _) => txn.commit(&text, args).await?,
            (Some(_), true) => Vec::new(),
            (Some(_), false) => txn.run(&text, args).await?,
        };
        let known = Known::read(rows.iter().flatten())?;
        let mut new = new.into_iter().peekable();
        answers.extend(chunk.iter().map(|run| match new.next_if(|(first, _)| std::ptr::eq(*first, run)) {
            Some(_) => Submitted::Created,
            None => known.answer(run),
        }));
    }
    Ok(answers)
}

fn firsts<'r>(pairs: &[(&'r NewRun, bool)]) -> Vec<&'r NewRun> {
    pairs.iter().map(|(run, _)| *run).collect()
}

/// Inserts those that are new; returns their ids.
async fn insert_runs(txn: &mut Txn, runs: &[NewRun], now: Wall) -> Result<HashSet<RunId>> {
    let (text, args) = insertion(runs, now);
    let rows = txn.run(&text, args).await?;
    rows.iter().flatten().map(|row| get_id(row, 0, RunId::from_slice)).collect()
}

/// The statement that inserts those that are new and returns their ids.
fn insertion(runs: &[NewRun], now: Wall) -> (String, Args) {
    let mut args = Args::default();
    let size = bucket(runs.len());
    let text = format!(
        "INSERT INTO lobster_runs (id, key, digest, task, version, state, owner, epoch, tail, mark, syncs, wake, wake_seen, cancel, \
         attempts, deaths, due, submitted, ended, reason) \
         SELECT column1, column2, column3, column4, column5, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, column6, column7, NULL, '' \
         FROM (VALUES {}) WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING RETURNING id;",
        values(size, 7)
    );
    for run in runs {
        args.push(run.id.0.as_bytes().as_slice());
        args.push(run.key.as_deref());
        args.push(run.digest.as_slice());
        args.push(run.task.task.as_str());
        args.push(i64::from(run.task.version));
        args.push(run.due.0);
        args.push(now.0);
    }
    args.nulls((size - runs.len()) * 7);
    (text, args)
}

/// The statements that insert what belongs to the new runs, and look the others up.
fn details(new: &[&NewRun], old: &[&NewRun]) -> (String, Args) {
    let mut text = String::new();
    let mut args = Args::default();
    if !new.is_empty() {
        let size = bucket(new.len());
        text += &super::sql::insert("lobster_inputs (run, crc, body)", size, 3);
        for run in new {
            args.push(run.id.0.as_bytes().as_slice());
            args.push(i64::from(run.input.crc));
            args.body(&run.input.body);
        }
        args.nulls((size - new.len()) * 3);
    }
    let tags: Vec<_> = new.iter().flat_map(|run| run.tags.iter().map(|tag| (run.id, tag))).collect();
    for tags in tags.chunks(ROWS_MAX) {
        let size = bucket(tags.len());
        text += &super::sql::insert("lobster_tags (run, tag)", size, 2);
        for (run, tag) in tags {
            args.push(run.0.as_bytes().as_slice());
            args.push(tag.as_str());
        }
        args.nulls((size - tags.len()) * 2);
    }
    if !old.is_empty() {
        let size = bucket(old.len());
        for column in ["id", "key"] {
            text += &format!("SELECT id, key, task, digest FROM lobster_runs WHERE {column} IN ({});", marks(size));
            for run in old {
                match column {
                    "id" => args.push(run.id.0.as_bytes().as_slice()),
                    _ => args.push(run.key.as_deref()),
                }
            }
            args.nulls(size - old.len());
        }
    }
    (text, args)
}

/// Runs that were there before.
#[derive(Default)]
struct Known {
    by_id: HashMap<RunId, (String, Vec<u8>)>,
    by_key: HashMap<String, RunId>,
}

impl Known {
    fn read<'r>(rows: impl Iterator<Item = &'r SqliteRow>) -> Result<Self> {
        let mut known = Self::default();
        for row in rows {
            let id = get_id(row, 0, RunId::from_slice)?;
            if let Some(key) = get::<Option<String>>(row, 1)? {
                known.by_key.insert(key, id);
            }
            known.by_id.insert(id, (get(row, 2)?, get(row, 3)?));
        }
        Ok(known)
    }

    fn answer(&self, run: &NewRun) -> Submitted {
        let id = run.key.as_ref().and_then(|key| self.by_key.get(key)).copied().unwrap_or(run.id);
        // By name: a newer version of the task asks for the same run.
        let same = self.by_id.get(&id).is_some_and(|(task, digest)| *task == run.task.task && *digest == run.digest);
        Submitted::Existing { id, same }
    }
}

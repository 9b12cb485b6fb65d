//! The committer's statement: one per batch, one round trip.
//!
//! Invariant: the statement says of a locked row what [`decide`](crate::contract::decide) says of it, and changes that and no more.

use super::{
    Postgres,
    failure::Stage,
    one::{self, ONE},
    planted,
    schema::qualified,
    sql::{Args, for_people, get, get_state, get_u32, get_u64},
    times::Times,
    wake::spawn,
};
use crate::contract::{Answer, Batch, Failed, Incarnation, Offer, Result, Row, RunState, Seen, Then};
use sqlx::postgres::{PgArguments, PgRow};
use std::sync::atomic::Ordering;
use uuid::Uuid;

/// Stored numbers of [`Then`]; 0 is none of them.
const EVICT: i16 = 1;
const RELEASE: i16 = 2;
const HOLD: i16 = 3;
const FINISH: i16 = 4;

/// `$lock` is `SKIP LOCKED`, or nothing for a batch that waits. Parts between `{` and `}` are for batches in which a run leaves, those
/// between `[` and `]` for batches with changes of state: the fewer parts, the sooner a statement begins.
///
/// Locking a row writes to the log, so that a synced batch always has something to sync: with its commit everything is synced that was
/// committed before. Where a run's rows end is said with the offer: a run has all of them applied, or those before its intent, or none.
const APPEND: &str = "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', $1, true), set_config('lock_timeout', $2, true)),
b AS MATERIALIZED (SELECT * FROM unnest($4::uuid[], $5::int8[], $6::int8[], $7::int8[], $8::int8[], $9::bool[], $10::int8[], $11::int8[],
    $12::int8[], $13::int8[]{, $20::int2[], $21::int8[], $22::int8[], $23::text[], $24::int2[], $25::int8[], $26::int8[], $27::bytea[]})
    AS b(run, epoch, head, count, before_intent, progress, last_to, last_mark, intent_to, intent_mark{, kind, wake, due, reason, ends,
    ended, outcome_crc, outcome})),
own AS MATERIALIZED (SELECT r.id, r.owner, r.epoch, r.tail, r.mark, r.state, r.cancel, r.wake FROM @runs r, how
    WHERE r.id = ANY($4::uuid[]) FOR NO KEY UPDATE OF r $lock),
seen AS MATERIALIZED (
    SELECT b.*, o.tail AS tail, o.mark AS mark, o.state AS state, o.cancel AS cancelled, o.wake AS woken, m.mine, a.applied,
        {COALESCE(b.kind <> 0 AND m.mine AND a.applied = b.count AND (c.chained OR (b.kind = 3 AND b.count = 0))
            AND (b.kind IN (2, 4) OR (b.wake = o.wake AND NOT o.cancel)), false) OR }false AS closes
    FROM b JOIN own o ON o.id = b.run
    CROSS JOIN LATERAL (SELECT COALESCE(o.owner = $3 AND o.epoch = b.epoch AND o.state = 1, false) AS mine) m
    CROSS JOIN LATERAL (SELECT m.mine AND o.tail = b.head - 1 AS chained) c
    CROSS JOIN LATERAL (SELECT CASE WHEN NOT c.chained THEN 0 WHEN o.cancel THEN b.before_intent ELSE b.count END AS applied) a),
lines AS MATERIALIZED (SELECT s.run, s.epoch, r.* FROM unnest($14::uuid[], $15::int8[], $16::int8[], $17::int8[], $18::int8[],
    $19::bytea[][, $28::int8[], $29::bytea[]]) AS r(holder, nth, seq_from, seq_to, deltas_crc, deltas[, changes_crc, changes])
    JOIN seen s ON s.run = r.holder AND r.nth < s.applied),
deltas AS (INSERT INTO @deltas (run, seq_from, seq_to, epoch, crc, body)
    SELECT run, seq_from, seq_to, epoch, deltas_crc, deltas FROM lines WHERE deltas IS NOT NULL),
[changes AS (INSERT INTO @changes (run, seq_from, seq_to, epoch, crc, body)
    SELECT run, seq_from, seq_to, epoch, changes_crc, changes FROM lines WHERE changes IS NOT NULL),
]{outcomes AS (INSERT INTO @outcomes (run, crc, body) SELECT run, outcome_crc, outcome FROM seen WHERE seen.closes AND kind = 4),
}moved AS (UPDATE @runs r SET
    tail = CASE s.applied WHEN 0 THEN r.tail WHEN s.count THEN s.last_to ELSE s.intent_to END,
    mark = CASE s.applied WHEN 0 THEN r.mark WHEN s.count THEN s.last_mark ELSE s.intent_mark END,
    attempts = {GREATEST(0, }CASE WHEN s.progress AND s.applied > 0 THEN 0 ELSE r.attempts END{
        - CASE WHEN s.closes AND s.kind IN (1, 2) THEN 1 ELSE 0 END)},
    deaths = CASE WHEN s.progress AND s.applied > 0 THEN 0 ELSE r.deaths END{,
    state = CASE WHEN s.closes THEN s.ends ELSE r.state END,
    owner = CASE WHEN s.closes THEN NULL ELSE r.owner END,
    due = CASE WHEN s.closes AND s.kind = 1 THEN s.due ELSE r.due END,
    reason = CASE WHEN s.closes THEN s.reason ELSE r.reason END,
    ended = CASE WHEN s.closes AND s.kind = 4 THEN s.ended ELSE r.ended END}
    FROM seen s WHERE r.id = s.run AND r.id = ANY($4::uuid[]) AND (s.applied > 0 OR s.closes))
SELECT b.run, s.applied, s.closes, s.mine, s.state, s.tail, s.mark, s.cancelled, s.woken,
    CASE WHEN s.run IS NULL THEN EXISTS (SELECT 1 FROM @runs r WHERE r.id = b.run) END AS busy
FROM b LEFT JOIN seen s ON s.run = b.run";

/// What a batch asks of its statement.
#[derive(Clone, Copy)]
struct Parts {
    /// It waits for locks.
    waits: bool,
    /// A run leaves.
    leaves: bool,
    /// There are changes of state.
    changes: bool,
}

impl Parts {
    fn of(batch: &Batch) -> Self {
        Self {
            waits: batch.patient.is_some(),
            leaves: batch.offers.iter().any(|offer| offer.then.is_some()),
            changes: batch.offers.iter().flat_map(|offer| &offer.rows).any(|row| row.changes.is_some()),
        }
    }

    fn number(self) -> usize {
        usize::from(self.waits) | usize::from(self.leaves) << 1 | usize::from(self.changes) << 2
    }

    /// The statement of these parts.
    fn text(self) -> String {
        // `[]` is a type's, and no part.
        let text = APPEND.replace("[]", "\0").replace("$lock", if self.waits { "" } else { "SKIP LOCKED" });
        let text = without(&text, ['{', '}'], self.leaves);
        let text = without(&text, ['[', ']'], self.changes).replace('\0', "[]");
        if self.leaves { text } else { text.replace("$28", "$20").replace("$29", "$21") }
    }
}

/// The text with its parts, or without them, and without the marks around them.
fn without(text: &str, [begin, end]: [char; 2], keep: bool) -> String {
    let mut pieces = text.split([begin, end]);
    let mut kept = String::with_capacity(text.len());
    while let Some(outside) = pieces.next() {
        kept += outside;
        let inside = pieces.next().unwrap_or_default();
        kept += if keep { inside } else { "" };
    }
    kept
}

/// The statements of all kinds of batches, written once.
pub(super) struct Texts {
    all: [String; 8],
    pub(super) one: String,
}

impl Texts {
    pub(super) fn new(schema: &str) -> Self {
        let parts = |at: usize| Parts { waits: at & 1 > 0, leaves: at & 2 > 0, changes: at & 4 > 0 };
        let all = std::array::from_fn(|at| qualified(&planted::spoilt(&parts(at).text()), schema));
        Self { all, one: qualified(ONE, schema) }
    }

    fn of(&self, parts: Parts) -> &str {
        &self.all[parts.number()]
    }
}

impl Postgres {
    /// Sends the statements of batches with nothing in them, which locks nothing and writes nothing: a new connection has to plan them, and
    /// that need not take from the time of the first runs.
    pub(super) fn prepare_batches(&self) {
        // Once: a process that joins anew does so on the thread of its lease, and has planned them.
        if !self.options.has_sessions() || self.prepared.swap(true, Ordering::Relaxed) {
            return;
        }
        let (pool, texts) = (self.batches.clone(), self.appends.clone());
        spawn(async move {
            let (incarnation, times) = (Incarnation(Uuid::nil()), Times::default());
            let batch = Batch { incarnation, synced: false, patient: None, offers: Vec::new() };
            for leaves in [false, true] {
                let parts = Parts { waits: false, leaves, changes: false };
                // The first batch finds out what is wrong.
                pool.query(Stage::Read, texts.of(parts), || args(&batch, parts, &times, "off", "0")).await.ok();
            }
            pool.query(Stage::Read, &texts.one, one::nothing).await.ok();
        });
    }

    pub(super) async fn append_batch(&self, batch: Batch) -> Result<Vec<Answer>> {
        if batch.offers.is_empty() {
            return Ok(Vec::new());
        }
        // An outcome may be read as soon as it is visible, and is handed out only when it is synced.
        let finishes = |offer: &Offer| matches!(offer.then, Some(Then::Finish { .. }));
        let synced = batch.synced || batch.offers.iter().any(finishes);
        let idle = crate::planted!("sql_synced_flush_writes_nothing") && batch.offers.iter().all(|offer| offer.rows.is_empty());
        let commit = if synced && !idle { self.synced } else { "off" };
        if let Some(answer) = self.append_one(&batch, commit).await? {
            return Ok(vec![answer]);
        }
        let timeout = batch.patient.map_or_else(|| "0".to_owned(), |most| format!("{}ms", most.as_millis().max(1)));
        let parts = Parts::of(&batch);
        let text = self.appends.of(parts);
        // One that waits has its place among other statements.
        let pool = if parts.waits { &self.pool } else { &self.batches };
        let rows = match pool.query(Stage::Write, text, || args(&batch, parts, &self.times, commit, &timeout)).await {
            // Waited for as long as was asked.
            Err(Failed::Unavailable(why)) if batch.patient.is_some() && why.contains("(55P03)") => {
                return Ok(vec![Answer::Busy; batch.offers.len()]);
            }
            rows => rows?,
        };
        let answers = answers(&batch, &rows)?;
        if answers.iter().any(|answer| matches!(answer, Answer::Seen(seen) if seen.then)) {
            self.stir();
        }
        Ok(answers)
    }
}

fn answers(batch: &Batch, rows: &[PgRow]) -> Result<Vec<Answer>> {
    let mut found = std::collections::HashMap::with_capacity(rows.len());
    for row in rows {
        found.insert(get::<Uuid>(row, 0)?, row);
    }
    let lost = || Failed::Internal("an offer without an answer".to_owned());
    batch.offers.iter().map(|offer| answer(offer, found.get(&offer.run.0).ok_or_else(lost)?)).collect()
}

fn answer(offer: &Offer, row: &PgRow) -> Result<Answer> {
    match get::<Option<bool>>(row, 9)? {
        Some(true) => return Ok(Answer::Busy),
        // A run that does not exist: to its holder a lost fence.
        Some(false) => return Ok(Answer::Seen(crate::contract::decide(None, offer, Incarnation(Uuid::nil())))),
        None => {}
    }
    let rows = usize::try_from(get::<i64>(row, 1)?).unwrap_or(0);
    let last = rows.checked_sub(1).and_then(|at| offer.rows.get(at));
    let then: bool = get(row, 2)?;
    let state = match &offer.then {
        Some(ends) if then => after(ends),
        _ => get_state(row, 4)?,
    };
    Ok(Answer::Seen(Seen {
        rows,
        then,
        mine: get(row, 3)?,
        state,
        tail: last.map_or(get_u64(row, 5)?, |row| row.to),
        mark: last.map_or(get_u32(row, 6)?, |row| row.mark),
        cancel: get(row, 7)?,
        wake: get_u64(row, 8)?,
    }))
}

/// The state in which a run is then.
fn after(then: &Then) -> RunState {
    match then {
        Then::Evict { .. } | Then::Release => RunState::Ready,
        Then::Hold { .. } => RunState::Held,
        Then::Finish { state, .. } => *state,
    }
}

fn args(batch: &Batch, parts: Parts, times: &Times, commit: &str, timeout: &str) -> PgArguments {
    let offers = &batch.offers;
    let rows: Vec<(Uuid, i64, &Row)> =
        offers.iter().flat_map(|offer| (0..).zip(&offer.rows).map(|(nth, row)| (offer.run.0, nth, row))).collect();
    let before_intent = |offer: &Offer| offer.rows.iter().take_while(|row| !row.intent).count();
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    // The last of so many rows.
    let last = |offer: &Offer, rows: usize| {
        rows.checked_sub(1).map(|at| (offer.rows[at].to.cast_signed(), i64::from(offer.rows[at].mark)))
    };
    let mut args = Args::default()
        .with(commit)
        .with(timeout)
        .with(batch.incarnation.0)
        .with(each(offers, |offer| offer.run.0))
        .with(each(offers, |offer| offer.epoch.cast_signed()))
        .with(each(offers, |offer| offer.head.cast_signed()))
        .with(each(offers, |offer| count(offer.rows.len())))
        .with(each(offers, |offer| count(before_intent(offer))))
        .with(each(offers, |offer| offer.progress))
        .with(each(offers, |offer| last(offer, offer.rows.len()).map(|(to, _)| to)))
        .with(each(offers, |offer| last(offer, offer.rows.len()).map(|(_, mark)| mark)))
        .with(each(offers, |offer| last(offer, before_intent(offer)).map(|(to, _)| to)))
        .with(each(offers, |offer| last(offer, before_intent(offer)).map(|(_, mark)| mark)))
        .with(rows.iter().map(|(run, ..)| *run).collect::<Vec<_>>())
        .with(rows.iter().map(|(_, nth, _)| *nth).collect::<Vec<_>>())
        .with(rows.iter().map(|(.., row)| row.from.cast_signed()).collect::<Vec<_>>())
        .with(rows.iter().map(|(.., row)| row.to.cast_signed()).collect::<Vec<_>>())
        .with(rows.iter().map(|(.., row)| row.deltas.as_ref().map(|half| i64::from(half.crc))).collect::<Vec<_>>())
        .with(rows.iter().map(|(.., row)| row.deltas.as_ref().map(|half| half.body.as_ref())).collect::<Vec<_>>());
    if parts.leaves {
        args = leaving(args, offers, times);
    }
    if parts.changes {
        args = args
            .with(rows.iter().map(|(.., row)| row.changes.as_ref().map(|half| i64::from(half.crc))).collect::<Vec<_>>())
            .with(rows.iter().map(|(.., row)| row.changes.as_ref().map(|half| half.body.as_ref())).collect::<Vec<_>>());
    }
    args.done()
}

fn each<'o, T>(offers: &'o [Offer], of: impl Fn(&'o Offer) -> T) -> Vec<T> {
    offers.iter().map(of).collect()
}

/// How runs leave.
fn leaving(args: Args, offers: &[Offer], times: &Times) -> Args {
    args.with(each(offers, |offer| match offer.then {
        None => 0,
        Some(Then::Evict { .. }) => EVICT,
        Some(Then::Release) => RELEASE,
        Some(Then::Hold { .. }) => HOLD,
        Some(Then::Finish { .. }) => FINISH,
    }))
    .with(each(offers, |offer| match offer.then {
        Some(Then::Evict { wake, .. } | Then::Hold { wake, .. }) => Some(wake.cast_signed()),
        Some(Then::Release | Then::Finish { .. }) | None => None,
    }))
    .with(each(offers, |offer| match offer.then {
        Some(Then::Evict { due, .. }) => Some(times.there(due)),
        _ => None,
    }))
    .with(each(offers, |offer| match &offer.then {
        Some(Then::Evict { reason, .. } | Then::Hold { reason, .. }) => for_people(reason),
        Some(Then::Release | Then::Finish { .. }) | None => "".into(),
    }))
    .with(each(offers, |offer| offer.then.as_ref().map(|then| i16::from(after(then).number()))))
    .with(each(offers, |offer| match offer.then {
        Some(Then::Finish { at, .. }) => Some(times.there(at)),
        _ => None,
    }))
    .with(each(offers, |offer| outcome(offer).map(|outcome| i64::from(outcome.crc))))
    .with(each(offers, |offer| outcome(offer).map(|outcome| outcome.body.as_ref())))
}

fn outcome(offer: &Offer) -> Option<&crate::contract::Sealed> {
    match &offer.then {
        Some(Then::Finish { outcome, .. }) => Some(outcome),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_batch_has_a_statement_whose_arguments_are_counted_without_a_gap() {
        for (at, text) in Texts::new("s").all.iter().enumerate() {
            let most = (1..).take_while(|n| text.contains(&format!("${n}::")) || *n <= 3).last().unwrap_or(0);
            let (leaves, changes) = (at & 2 > 0, at & 4 > 0);
            assert_eq!(most, 19 + if leaves { 8 } else { 0 } + if changes { 2 } else { 0 }, "{text}");
            assert_eq!(text.contains("SKIP LOCKED"), at & 1 == 0, "{text}");
            assert_eq!((text.contains("outcomes AS"), text.contains("changes AS")), (leaves, changes), "{text}");
            assert!(!text.contains(['{', '}', '@', '\0']), "{text}");
        }
    }
}

//! A batch as one statement: each offer is applied whole or not at all.
//!
//! Invariant: [`FITS`] asks of a run's row what [`decide`](crate::contract::decide) asks before it applies an offer whole. What it
//! did not apply is decided elsewhere, on the locked row.
//!
//! Statements are dear: the driver's thread tells of the end of each, and whoever waits is woken each time. So an offer is a
//! row of a view, and a trigger does with it what has to be done. Both belong to the writing connection, not to the file.

use super::{
    append::sealed_args,
    sql::{Args, ROWS_MAX, bucket, get, get_id, get_u32, get_u64, values},
    write::End,
    writer::Txn,
};
use crate::contract::{Batch, Incarnation, Offer, Result, RunId, RunState, Seen, Then};
use std::collections::HashMap;

/// Columns of the view, in the order in which [`push`] pushes them.
pub(super) const COLUMNS: [&str; 28] = [
    // What the run's row must say.
    "run",
    "owner",
    "epoch",
    "head",
    "uncancelled",
    "wake", //
    // Its rows.
    "from1",
    "to1",
    "delta_crc1",
    "deltas1",
    "change_crc1",
    "changes1",
    "from2",
    "to2",
    "delta_crc2",
    "deltas2",
    "change_crc2",
    "changes2", //
    // What the run's row is to say.
    "tail",
    "mark",
    "progress", //
    // What becomes of it.
    "state",
    "due",
    "reason",
    "ended",
    "attempt_back",
    "outcome_crc",
    "outcome",
];

/// Rows of one offer that the view has places for.
const ROWS: usize = 2;

/// Columns of one of them.
const ROW_COLUMNS: usize = 6;

const FITS: &str = "r.id = new.run AND r.owner = new.owner AND r.epoch = new.epoch AND r.state = 1 AND r.tail = new.head - 1 \
                    AND (new.uncancelled = 0 OR r.cancel = 0) AND (new.wake IS NULL OR new.wake = r.wake)";

// `syncs` grows, so that a synced batch always has something to write.
const MOVED: &str = "tail = coalesce(new.tail, tail), mark = coalesce(new.mark, mark), syncs = syncs + 1, \
                     deaths = CASE new.progress WHEN 1 THEN 0 ELSE deaths END";

/// What the trigger does with an offer, in order.
pub(super) fn statements() -> Vec<String> {
    let half = |one: &str, n: usize| {
        format!(
            "INSERT INTO lobster_{one}s (run, seq_from, seq_to, epoch, crc, body) \
             SELECT new.run, new.from{n}, new.to{n}, new.epoch, new.{one}_crc{n}, new.{one}s{n} WHERE new.{one}s{n} IS NOT NULL;"
        )
    };
    vec![
        format!("SELECT RAISE(IGNORE) WHERE NOT EXISTS (SELECT 1 FROM lobster_runs AS r WHERE {FITS});"),
        half("delta", 1),
        half("change", 1),
        half("delta", 2),
        half("change", 2),
        "INSERT INTO lobster_outcomes (run, crc, body) SELECT new.run, new.outcome_crc, new.outcome WHERE new.outcome IS NOT NULL;"
            .to_owned(),
        format!(
            "UPDATE lobster_runs SET {MOVED}, attempts = CASE new.progress WHEN 1 THEN 0 ELSE attempts END \
             WHERE id = new.run AND new.state IS NULL;"
        ),
        format!(
            "UPDATE lobster_runs SET {MOVED}, \
             attempts = max(0, CASE new.progress WHEN 1 THEN 0 ELSE attempts END - new.attempt_back), \
             state = new.state, owner = NULL, due = coalesce(new.due, due), reason = new.reason, ended = new.ended \
             WHERE id = new.run AND new.state IS NOT NULL;"
        ),
    ]
}

/// Makes a new writing connection able to [`append`].
pub(super) fn prepare() -> String {
    format!(
        "CREATE TEMP VIEW lobster_offers ({}) AS SELECT {} WHERE 0;\
         CREATE TEMP TRIGGER lobster_apply INSTEAD OF INSERT ON lobster_offers BEGIN {} END;",
        COLUMNS.join(","),
        ["NULL"; COLUMNS.len()].join(","),
        statements().concat(),
    )
}

/// Applies the offers that can be applied whole. Returns what was seen of those, and the batch.
pub(super) async fn append(txn: &mut Txn, batch: Batch) -> Result<(HashMap<RunId, Seen>, Batch)> {
    let offers: HashMap<RunId, &Offer> =
        batch.offers.iter().filter(|offer| offer.rows.len() <= ROWS).map(|offer| (offer.run, offer)).collect();
    let (mut text, mut args) = (String::new(), Args::default());
    let all: Vec<&Offer> = batch.offers.iter().filter(|offer| offers.contains_key(&offer.run)).collect();
    for some in all.chunks(ROWS_MAX) {
        let size = bucket(some.len());
        text += &insert(size);
        some.iter().for_each(|offer| push(&mut args, batch.incarnation, offer));
        args.nulls((size - some.len()) * COLUMNS.len());
    }
    let rows = match all.len() {
        0 => Vec::new(),
        1..=ROWS_MAX => txn.alone(&text, args).await?,
        _ => txn.commit(&text, args).await?,
    };
    let mut applied = HashMap::with_capacity(all.len());
    for row in rows.iter().flatten() {
        let run = get_id(row, 0, RunId::from_slice)?;
        let Some(offer) = offers.get(&run) else { continue };
        let seen = Seen {
            rows: offer.rows.len(),
            then: offer.then.is_some(),
            mine: true,
            state: offer.then.as_ref().map_or(RunState::Running, End::state),
            tail: offer.rows.last().map_or(offer.head - 1, |row| row.to),
            mark: get_u32(row, 1)?,
            cancel: get::<i64>(row, 2)? != 0,
            wake: get_u64(row, 3)?,
        };
        applied.insert(run, seen);
    }
    Ok((applied, batch))
}

/// Offers of that many runs. An offer that was ignored returns nothing.
pub(super) fn insert(size: usize) -> String {
    let read = |column| format!("(SELECT {column} FROM lobster_runs WHERE id = run)");
    format!(
        "INSERT INTO temp.lobster_offers VALUES {} RETURNING run, {}, {}, {};",
        values(size, COLUMNS.len()),
        read("mark"),
        read("cancel"),
        read("wake")
    )
}

fn push(args: &mut Args, owner: Incarnation, offer: &Offer) {
    let wake = match offer.then {
        Some(Then::Evict { wake, .. } | Then::Hold { wake, .. }) => Some(wake),
        Some(Then::Release | Then::Finish { .. }) | None => None,
    };
    let uncancelled = wake.is_some() || offer.rows.iter().any(|row| row.intent);
    args.push(offer.run.0.as_bytes().as_slice());
    args.push(owner.0.as_bytes().as_slice());
    args.push(offer.epoch.cast_signed());
    args.push(offer.head.cast_signed());
    args.push(i64::from(uncancelled));
    args.push(wake.map(u64::cast_signed));
    for row in &offer.rows {
        args.push(row.from.cast_signed());
        args.push(row.to.cast_signed());
        for half in [&row.deltas, &row.changes] {
            match half {
                Some(sealed) => sealed_args(args, sealed),
                None => args.nulls(2),
            }
        }
    }
    args.nulls((ROWS - offer.rows.len()) * ROW_COLUMNS);
    let last = offer.rows.last();
    args.push(last.map(|row| row.to.cast_signed()));
    args.push(last.map(|row| i64::from(row.mark)));
    args.push(i64::from(offer.progress && last.is_some()));
    match &offer.then {
        None => args.nulls(5),
        Some(then) => End::of(then).push(args),
    }
    match &offer.then {
        Some(Then::Finish { outcome, .. }) => sealed_args(args, outcome),
        _ => args.nulls(2),
    }
}

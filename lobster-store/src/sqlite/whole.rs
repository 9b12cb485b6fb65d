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

/// Which view takes a batch: one that changes no state does not pay for places that stay empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Rows are deltas.
    Deltas,
    /// Rows are deltas, changes, or both.
    Both,
}

impl View {
    pub(super) const ALL: [View; 2] = [View::Deltas, View::Both];

    /// The narrowest that has places for all of these.
    fn of(offers: &[&Offer]) -> Self {
        let changes = offers.iter().any(|offer| offer.rows.iter().any(|row| row.changes.is_some()));
        if changes { View::Both } else { View::Deltas }
    }

    fn name(self) -> &'static str {
        match self {
            View::Deltas => "lobster_offers",
            View::Both => "lobster_offers_of_both",
        }
    }

    /// The halves of a row, as tables and columns name them.
    fn halves(self) -> &'static [&'static str] {
        match self {
            View::Deltas => &["deltas"],
            View::Both => &["deltas", "changes"],
        }
    }

    /// Columns of one row.
    fn row_columns(self) -> usize {
        2 + 2 * self.halves().len()
    }

    /// Its columns, in the order in which [`push`] pushes them.
    pub(super) fn columns(self) -> Vec<String> {
        let mut columns = BEFORE.map(str::to_owned).to_vec();
        for n in 1..=ROWS {
            columns.extend([format!("from{n}"), format!("to{n}")]);
            columns.extend(self.halves().iter().flat_map(|half| [format!("{half}_crc{n}"), format!("{half}{n}")]));
        }
        columns.extend(AFTER.map(str::to_owned));
        columns
    }

    /// How many these are.
    fn width(self) -> usize {
        BEFORE.len() + ROWS * self.row_columns() + AFTER.len()
    }
}

/// Rows of one offer that a view has places for.
const ROWS: usize = 2;

/// Columns before those of the rows: what the run's row must say.
const BEFORE: [&str; 6] = ["run", "owner", "epoch", "head", "uncancelled", "wake"];

/// Columns after them: what the run's row is to say, and what becomes of the run.
const AFTER: [&str; 10] =
    ["tail", "mark", "progress", "state", "due", "reason", "ended", "attempt_back", "outcome_crc", "outcome"];

const FITS: &str = "r.id = new.run AND r.owner = new.owner AND r.epoch = new.epoch AND r.state = 1 AND r.tail = new.head - 1 \
                    AND (new.uncancelled = 0 OR r.cancel = 0) AND (new.wake IS NULL OR new.wake = r.wake)";

// `syncs` grows, so that a synced batch always has something to write.
const MOVED: &str = "tail = coalesce(new.tail, tail), mark = coalesce(new.mark, mark), syncs = syncs + 1, \
                     deaths = CASE new.progress WHEN 1 THEN 0 ELSE deaths END";

/// What the trigger of a view does with an offer, in order.
pub(super) fn statements(view: View) -> Vec<String> {
    let half = |half: &str, n: usize| {
        format!(
            "INSERT INTO lobster_{half} (run, seq_from, seq_to, epoch, crc, body) \
             SELECT new.run, new.from{n}, new.to{n}, new.epoch, new.{half}_crc{n}, new.{half}{n} WHERE new.{half}{n} IS NOT NULL;"
        )
    };
    let mut statements = vec![format!("SELECT RAISE(IGNORE) WHERE NOT EXISTS (SELECT 1 FROM lobster_runs AS r WHERE {FITS});")];
    statements.extend((1..=ROWS).flat_map(|n| view.halves().iter().map(move |name| half(name, n))));
    statements.extend([
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
    ]);
    statements
}

/// Makes a new writing connection able to [`append`].
pub(super) fn prepare() -> String {
    let prepare = |view: View| {
        let (name, columns) = (view.name(), view.columns());
        format!(
            "CREATE TEMP VIEW {name} ({}) AS SELECT {} WHERE 0;\
             CREATE TEMP TRIGGER {name}_apply INSTEAD OF INSERT ON {name} BEGIN {} END;",
            columns.join(","),
            vec!["NULL"; columns.len()].join(","),
            statements(view).concat(),
        )
    };
    View::ALL.map(prepare).concat()
}

/// Applies the offers that can be applied whole. Returns what was seen of those, and the batch.
pub(super) async fn append(txn: &mut Txn, batch: Batch) -> Result<(HashMap<RunId, Seen>, Batch)> {
    let offers: HashMap<RunId, &Offer> =
        batch.offers.iter().filter(|offer| offer.rows.len() <= ROWS).map(|offer| (offer.run, offer)).collect();
    let (mut text, mut args) = (String::new(), Args::default());
    let all: Vec<&Offer> = batch.offers.iter().filter(|offer| offers.contains_key(&offer.run)).collect();
    let view = View::of(&all);
    for some in all.chunks(ROWS_MAX) {
        let size = bucket(some.len());
        text += &insert(view, size);
        some.iter().for_each(|offer| push(&mut args, view, batch.incarnation, offer));
        args.nulls((size - some.len()) * view.width());
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
pub(super) fn insert(view: View, size: usize) -> String {
    let read = |column| format!("(SELECT {column} FROM lobster_runs WHERE id = run)");
    format!(
        "INSERT INTO temp.{} VALUES {} RETURNING run, {}, {}, {};",
        view.name(),
        values(size, view.width()),
        read("mark"),
        read("cancel"),
        read("wake")
    )
}

fn push(args: &mut Args, view: View, owner: Incarnation, offer: &Offer) {
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
        for half in [&row.deltas, &row.changes].into_iter().take(view.halves().len()) {
            match half {
                Some(sealed) => sealed_args(args, sealed),
                None => args.nulls(2),
            }
        }
    }
    args.nulls((ROWS - offer.rows.len()) * view.row_columns());
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

//! One offer as one call of the driver: applied as a whole if its run's row is as its holder thinks, else not at all.
//!
//! Invariant: `fits` is true exactly if the statements of `text` change something, and then [`decide`] says that all of it applies.
//!
//! [`decide`]: crate::contract::decide

use super::{
    append::{FENCE, sealed_args},
    changes::End,
    sql::Args,
};
use crate::contract::{Incarnation, Offer, RunRow, RunState, Then};

/// What an offer asks of the row, beyond owner, epoch and tail.
struct Asks {
    /// No cancel.
    no_cancel: bool,
    /// This wake counter.
    wake: Option<u64>,
}

fn asks(offer: &Offer) -> Asks {
    let wake = match &offer.then {
        Some(Then::Evict { wake, .. } | Then::Hold { wake, .. }) => Some(*wake),
        Some(Then::Release | Then::Finish { .. }) | None => None,
    };
    Asks { no_cancel: wake.is_some() || offer.rows.iter().any(|row| row.intent), wake }
}

/// Does the whole offer apply to this row?
pub(super) fn fits(incarnation: Incarnation, offer: &Offer, row: &RunRow) -> bool {
    let asks = asks(offer);
    row.owner == Some(incarnation)
        && row.epoch == offer.epoch
        && row.state == RunState::Running
        && row.tail == offer.head.wrapping_sub(1)
        && !(asks.no_cancel && row.cancel)
        && asks.wake.is_none_or(|wake| wake == row.wake)
}

/// Reads the fence, then writes the offer if it [`fits`].
pub(super) fn text(incarnation: Incarnation, offer: &Offer) -> (String, Args) {
    let mut args = Args::default();
    let run = args.number(offer.run.0.as_bytes().as_slice());
    let me = args.number(incarnation.0.as_bytes().as_slice());
    let epoch = args.number(offer.epoch.cast_signed());
    let tail = args.number(offer.head.wrapping_sub(1).cast_signed());
    let mut fits = format!("id = ${run} AND owner = ${me} AND epoch = ${epoch} AND state = 1 AND tail = ${tail}");
    let asks = asks(offer);
    if asks.no_cancel {
        fits += " AND cancel = 0";
    }
    if let Some(wake) = asks.wake {
        fits += &format!(" AND wake = ${}", args.number(wake.cast_signed()));
    }
    let mut text = format!("SELECT {FENCE} FROM lobster_runs WHERE id = ${run};");
    for row in &offer.rows {
        let from = args.number(row.from.cast_signed());
        let to = args.number(row.to.cast_signed());
        let crc = args.number(i64::from(row.mark));
        args.body(&row.body);
        let body = args.last();
        text += &format!(
            "INSERT INTO lobster_deltas (run, seq_from, seq_to, epoch, crc, body) \
             SELECT ${run}, ${from}, ${to}, ${epoch}, ${crc}, ${body} WHERE EXISTS (SELECT 1 FROM lobster_runs WHERE {fits});"
        );
    }
    // `syncs` grows, so that a synced batch always has something to write.
    let mut set = "syncs = syncs + 1".to_owned();
    if let Some(last) = offer.rows.last() {
        set += &format!(", tail = ${}", args.number(last.to.cast_signed()));
        set += &format!(", mark = ${}", args.number(i64::from(last.mark)));
    }
    let progress = offer.progress && !offer.rows.is_empty();
    let mut attempts = if progress { "0" } else { "attempts" };
    if progress {
        set += ", deaths = 0";
    }
    let end = offer.then.clone().map(End::of);
    if let Some((end, outcome)) = &end {
        if let Some(outcome) = outcome {
            let crc = args.last() + 1;
            sealed_args(&mut args, outcome);
            text += &format!(
                "INSERT INTO lobster_outcomes (run, crc, body) SELECT ${run}, ${crc}, ${} \
                 WHERE EXISTS (SELECT 1 FROM lobster_runs WHERE {fits});",
                args.last()
            );
        }
        if end.attempt_back && !progress {
            attempts = "max(0, attempts - 1)";
        }
        set += &format!(", state = ${}, owner = NULL", args.number(i64::from(end.state.number())));
        if let Some(due) = end.due {
            set += &format!(", due = ${}", args.number(due));
        }
        set += &format!(", reason = ${}", args.number(end.reason.as_str()));
        set += &format!(", ended = ${}", args.number(end.ended));
    }
    if attempts != "attempts" {
        set += &format!(", attempts = {attempts}");
    }
    text += &format!("UPDATE lobster_runs SET {set} WHERE {fits};");
    (text, args)
}

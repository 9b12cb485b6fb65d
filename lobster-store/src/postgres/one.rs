//! The committer's statement for the most frequent batch: rows of one run that goes on.
//!
//! Invariant: it changes something only where everything that is offered is accepted; whatever else is the case, the statement for all
//! batches finds out, on the same row.

use super::{
    Postgres,
    failure::Stage,
    sql::{Args, get_u64},
};
use crate::contract::{Answer, Batch, Incarnation, Mark, Offer, Result, Row, RunId, RunState, Seen, Seq};
use sqlx::postgres::PgArguments;
use uuid::Uuid;

/// No row: the fence does not hold, a cancel is asked for, or somebody has locked the row.
pub(super) const ONE: &str = "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', $1, true)),
own AS MATERIALIZED (SELECT r.id, r.wake FROM @runs r, how
    WHERE r.id = $2 AND r.owner = $3 AND r.epoch = $4 AND r.tail = $5 AND r.state = 1 AND NOT r.cancel
    FOR NO KEY UPDATE OF r SKIP LOCKED),
deltas AS (INSERT INTO @deltas (run, seq_from, seq_to, epoch, crc, body)
    SELECT own.id, d.seq_from, d.seq_to, $4, d.crc, d.body
    FROM own, unnest($6::int8[], $7::int8[], $8::int8[], $9::bytea[]) AS d(seq_from, seq_to, crc, body))
UPDATE @runs r SET tail = $10, mark = $11, attempts = CASE WHEN $12 THEN 0 ELSE r.attempts END,
    deaths = CASE WHEN $12 THEN 0 ELSE r.deaths END
FROM own WHERE r.id = $2 RETURNING own.wake";

impl Postgres {
    /// `None`: nothing was changed, the batch is not of this kind or not acceptable as a whole.
    pub(super) async fn append_one(&self, batch: &Batch, commit: &str) -> Result<Option<Answer>> {
        // Bugs are planted in the statement for all batches: there it has to be found.
        if cfg!(lobster_planted) {
            return Ok(None);
        }
        let ([offer], None) = (batch.offers.as_slice(), batch.patient) else { return Ok(None) };
        let only_deltas = |row: &Row| row.deltas.is_some() && row.changes.is_none();
        let Some(last) = offer.rows.last().filter(|_| offer.then.is_none() && offer.rows.iter().all(only_deltas)) else {
            return Ok(None);
        };
        let rows = self
            .batches
            .query(Stage::Write, &self.appends.one, || args(batch.incarnation, offer, (last.to, last.mark), commit))
            .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(Answer::Seen(Seen {
            rows: offer.rows.len(),
            then: false,
            mine: true,
            state: RunState::Running,
            tail: last.to,
            mark: last.mark,
            cancel: false,
            wake: get_u64(row, 0)?,
        })))
    }
}

/// Arguments of no run.
pub(super) fn nothing() -> PgArguments {
    let offer = Offer { run: RunId(Uuid::nil()), epoch: 0, head: 1, rows: Vec::new(), progress: false, then: None };
    args(Incarnation(Uuid::nil()), &offer, (0, 0), "off")
}

/// Tail and mark are those of the last row.
fn args(incarnation: Incarnation, offer: &Offer, (tail, mark): (Seq, Mark), commit: &str) -> PgArguments {
    let deltas = || offer.rows.iter().filter_map(|row| row.deltas.as_ref());
    Args::default()
        .with(commit)
        .with(offer.run.0)
        .with(incarnation.0)
        .with(offer.epoch.cast_signed())
        .with(offer.head.cast_signed() - 1)
        .with(offer.rows.iter().map(|row| row.from.cast_signed()).collect::<Vec<_>>())
        .with(offer.rows.iter().map(|row| row.to.cast_signed()).collect::<Vec<_>>())
        .with(deltas().map(|half| i64::from(half.crc)).collect::<Vec<_>>())
        .with(deltas().map(|half| half.body.as_ref()).collect::<Vec<_>>())
        .with(tail.cast_signed())
        .with(i64::from(mark))
        .with(offer.progress)
        .done()
}

//! The journal of the PostgreSQL tier: what is not in a file of its own.
//!
//! Invariant: a statement that waits for the lock of a run's row waits for a bounded time.

use super::{
    Postgres,
    business::{MOST, PgTx},
    sql::{Args, get, get_run, get_state, get_u64},
    times::SERVER_MS,
};
use crate::contract::{
    Answer, Attention, Batch, Business, BusinessKind, Cancelled, Claim, FORKED, Fold, Folded, Grant, Hold, Incarnation, Journal,
    Lacking, NewRun, NewVerdict, Origin, Restored, Result, RunId, RunState, Sealed, StoredPart, Submitted, Transacted,
    VerdictAnswer, Vouched, Wall, Work,
};
use async_trait::async_trait;
use prost::Message;
use std::any::TypeId;

/// How long cancels and verdicts wait for a run's row, and submits for a key.
pub(super) const LOCK: &str = "2s";

const CANCEL: &str = "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', $1, true), set_config('lock_timeout', $2, true)),
own AS MATERIALIZED (SELECT r.id, r.state FROM @runs r, how WHERE r.id = $3 FOR NO KEY UPDATE OF r),
asked AS (UPDATE @runs r SET cancel = true, wake = r.wake + CASE WHEN own.state = 1 THEN 1 ELSE 0 END,
    state = CASE WHEN own.state = 1 THEN 1 ELSE 5 END, ended = CASE WHEN own.state = 1 THEN NULL ELSE $4::int8 END,
    reason = CASE WHEN own.state = 1 THEN r.reason ELSE '' END
    FROM own WHERE r.id = $3 AND own.state IN (0, 1, 2)),
ends AS (INSERT INTO @outcomes (run, crc, body) SELECT own.id, $5::int8, $6::bytea FROM own WHERE own.state IN (0, 2))
SELECT state FROM own";

/// An intent has one verdict: the second is told so by the index, whenever the first was committed. It wakes the run at once, whatever the
/// server's clock has become.
fn verdict() -> String {
    format!(
        "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', $1, true), set_config('lock_timeout', $2, true)),
own AS MATERIALIZED (SELECT r.id, r.state, r.tail, LEAST($7::int8, {SERVER_MS}) AS now,
    r.state = 2 AND NOT starts_with(r.reason, '{FORKED}') AS released FROM @runs r, how WHERE r.id = $3 FOR NO KEY UPDATE OF r),
given AS (INSERT INTO @verdicts_in (run, intent, step, origin, at, crc, body)
    SELECT own.id, $4::int8, $5::bytea, $6::int2, $7, $8::int8, $9::bytea FROM own WHERE own.state IN (0, 1, 2) AND own.tail = $10
    ON CONFLICT DO NOTHING RETURNING run),
woken AS (UPDATE @runs r SET wake = r.wake + 1,
    due = CASE WHEN own.released THEN own.now WHEN r.state = 0 THEN LEAST(r.due, own.now) ELSE r.due END,
    reason = CASE WHEN own.released THEN '' ELSE r.reason END, state = CASE WHEN own.released THEN 0 ELSE r.state END
    FROM given JOIN own ON own.id = given.run WHERE r.id = $3)
SELECT own.state, own.tail, EXISTS (SELECT 1 FROM given) FROM own"
    )
}

const ATTEND: &str = "SELECT id, epoch, cancel, wake FROM @runs WHERE state = 1 AND owner = $1 AND (cancel OR wake > wake_seen)";

#[async_trait]
impl Journal for Postgres {
    /// Sessions execute side by side, and while one does, the other's answers are read and its next batch is made. A statement costs as
    /// much as a few runs in it.
    fn beside(&self) -> Option<usize> {
        Some(16)
    }

    async fn submit(&self, runs: Vec<NewRun>) -> Result<Vec<Submitted>> {
        self.submit_runs(runs).await
    }

    async fn submit_in(&self, transaction: &mut Business, run: NewRun) -> Result<Submitted> {
        self.submit_run_in(transaction, run).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Grant>> {
        self.claim_runs(claim).await
    }

    async fn restore(&self, incarnation: Incarnation, grants: &[Grant]) -> Result<Vec<Restored>> {
        self.restore_runs(incarnation, grants).await
    }

    async fn append(&self, batch: Batch) -> Result<Vec<Answer>> {
        self.append_batch(batch).await
    }

    fn business(&self) -> Option<BusinessKind> {
        Some(BusinessKind { of: TypeId::of::<PgTx>(), most: MOST })
    }

    async fn transact(&self, hold: Hold, work: Work) -> Result<Transacted> {
        self.transact_run(hold, work).await
    }

    async fn fold(&self, fold: Fold) -> Result<Folded> {
        self.fold_run(fold).await
    }

    async fn parts(&self, run: RunId, ids: &[u64]) -> Result<Vec<StoredPart>> {
        self.read_parts(run, ids).await
    }

    async fn cancel(&self, run: RunId, outcome: Sealed, at: Wall) -> Result<Cancelled> {
        let args = || {
            let args = Args::default().with(self.synced).with(LOCK).with(run.0).with(self.times.there(at));
            args.with(i64::from(outcome.crc)).with(outcome.body.as_ref()).done()
        };
        let rows = self.write(CANCEL, args).await?;
        let Some(row) = rows.first() else { return Ok(Cancelled::NotFound) };
        let answer = match get_state(row, 0)? {
            RunState::Running => Cancelled::Asked,
            RunState::Ready | RunState::Held => Cancelled::Done,
            state => return Ok(Cancelled::Ended(state)),
        };
        self.stir();
        Ok(answer)
    }

    async fn verdict(&self, new: NewVerdict) -> Result<VerdictAnswer> {
        let origin: i16 = match new.origin {
            Origin::Settle => 0,
            Origin::Person => 1,
        };
        let args = || {
            let args = Args::default().with(self.synced).with(LOCK).with(new.run.0).with(new.intent.cast_signed());
            let args = args.with(new.step.encode_to_vec()).with(origin).with(self.times.there(new.at));
            args.with(i64::from(new.fate.crc)).with(new.fate.body.as_ref()).with(new.tail.cast_signed()).done()
        };
        let rows = self.write(&verdict(), args).await?;
        let Some(row) = rows.first() else { return Ok(VerdictAnswer::NotFound) };
        if get::<bool>(row, 2)? {
            self.stir();
            return Ok(VerdictAnswer::Accepted);
        }
        Ok(match get_state(row, 0)? {
            state if state.ended() => VerdictAnswer::Ended,
            _ if get_u64(row, 1)? != new.tail => VerdictAnswer::Moved,
            _ => VerdictAnswer::Exists,
        })
    }

    async fn attend(&self, incarnation: Incarnation) -> Result<Vec<Attention>> {
        let rows = self.read(ATTEND, || Args::default().with(incarnation.0).done()).await?;
        let attention = |row| {
            let (run, epoch) = (get_run(row, 0)?, get_u64(row, 1)?);
            Ok(Attention { run, epoch, cancel: get(row, 2)?, wake: get_u64(row, 3)? })
        };
        rows.iter().map(attention).collect()
    }

    async fn vouch(&self, vouched: Vec<Vouched>) -> Result<Vec<Lacking>> {
        self.vouch_for(&vouched).await
    }

    async fn sweep(&self, before: Wall, limit: usize) -> Result<usize> {
        self.sweep_runs(before, limit).await
    }
}

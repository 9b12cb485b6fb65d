//! The journal of the SQLite tier: what is not in a file of its own.
//!
//! Invariant: a call that finds nothing to change takes no writer lock longer than it looks, and syncs nothing.

use super::{
    Sqlite,
    append::sealed_args,
    business::{MOST, SqliteTx},
    sql::{Args, get, get_id, get_state, get_u64, rows_of},
    writer::Txn,
};
use crate::contract::{
    Answer, Attention, Batch, Business, BusinessKind, Cancelled, Claim, FORKED, Fold, Folded, Grant, Hold, Incarnation, Journal,
    Lacking, NewRun, NewVerdict, Origin, Restored, Result, RunId, RunState, Sealed, StoredPart, Submitted, Transacted,
    VerdictAnswer, Vouched, Wall, Work,
};
use async_trait::async_trait;
use prost::Message;
use std::any::TypeId;

#[async_trait]
impl Journal for Sqlite {
    fn beside(&self) -> Option<usize> {
        None
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
        Some(BusinessKind { of: TypeId::of::<SqliteTx>(), most: MOST })
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
        let answer = self.writer.write(true, move |txn| Box::pin(cancel(txn, run, outcome, at))).await?;
        if matches!(answer, Cancelled::Done | Cancelled::Asked) {
            self.stir();
        }
        Ok(answer)
    }

    async fn verdict(&self, verdict: NewVerdict) -> Result<VerdictAnswer> {
        let answer = self.writer.write(true, move |txn| Box::pin(state_verdict(txn, verdict))).await?;
        if answer == VerdictAnswer::Accepted {
            self.stir();
        }
        Ok(answer)
    }

    async fn attend(&self, incarnation: Incarnation) -> Result<Vec<Attention>> {
        let mut args = Args::default();
        args.push(incarnation.0.as_bytes().as_slice());
        let rows = self.readers.read(ATTEND, args).await?;
        let attention = |row| {
            Ok(Attention {
                run: get_id(row, 0, RunId::from_slice)?,
                epoch: get_u64(row, 1)?,
                cancel: get::<i64>(row, 2)? != 0,
                wake: get_u64(row, 3)?,
            })
        };
        rows.iter().flatten().map(attention).collect()
    }

    async fn vouch(&self, _vouched: Vec<Vouched>) -> Result<Vec<Lacking>> {
        Ok(Vec::new())
    }

    async fn sweep(&self, before: Wall, limit: usize) -> Result<usize> {
        self.sweep_runs(before, limit).await
    }
}

pub(super) const ATTEND: &str = "SELECT id, epoch, cancel, wake FROM lobster_runs INDEXED BY lobster_runs_running \
                                 WHERE state = 1 AND owner = ? AND (cancel = 1 OR wake > wake_seen);";

async fn cancel(txn: &mut Txn, run: RunId, outcome: Sealed, at: Wall) -> Result<Cancelled> {
    let mut args = Args::default();
    args.push(run.0.as_bytes().as_slice());
    let rows = txn.run("SELECT state FROM lobster_runs WHERE id = ?;", args).await?;
    let Some(row) = rows_of(&rows, 0).first() else { return Ok(Cancelled::NotFound) };
    let mut args = Args::default();
    args.push(run.0.as_bytes().as_slice());
    match get_state(row, 0)? {
        RunState::Running => {
            txn.commit("UPDATE lobster_runs SET cancel = 1, wake = wake + 1, syncs = syncs + 1 WHERE id = ?;", args).await?;
            Ok(Cancelled::Asked)
        }
        RunState::Ready | RunState::Held => {
            args.push(at.0);
            sealed_args(&mut args, &outcome);
            let text = "UPDATE lobster_runs SET cancel = 1, state = 5, ended = $2, reason = '', syncs = syncs + 1 WHERE id = $1;\
                        INSERT INTO lobster_outcomes (run, crc, body) VALUES ($1, $3, $4);";
            txn.commit(text, args).await?;
            Ok(Cancelled::Done)
        }
        state => Ok(Cancelled::Ended(state)),
    }
}

async fn state_verdict(txn: &mut Txn, new: NewVerdict) -> Result<VerdictAnswer> {
    let mut args = Args::default();
    args.push(new.run.0.as_bytes().as_slice());
    args.push(new.intent.cast_signed());
    let look = "SELECT state, tail, EXISTS (SELECT 1 FROM lobster_verdicts_in WHERE run = $1 AND intent = $2) \
                FROM lobster_runs WHERE id = $1;";
    let rows = txn.run(look, args).await?;
    let Some(row) = rows_of(&rows, 0).first() else { return Ok(VerdictAnswer::NotFound) };
    if get_state(row, 0)?.ended() {
        return Ok(VerdictAnswer::Ended);
    }
    if get_u64(row, 1)? != new.tail {
        return Ok(VerdictAnswer::Moved);
    }
    if get::<i64>(row, 2)? != 0 {
        return Ok(VerdictAnswer::Exists);
    }
    let mut args = Args::default();
    args.push(new.run.0.as_bytes().as_slice());
    args.push(new.intent.cast_signed());
    args.push(new.step.encode_to_vec());
    args.push(match new.origin {
        Origin::Settle => 0,
        Origin::Person => 1,
    });
    args.push(new.at.0);
    sealed_args(&mut args, &new.fate);
    args.push(format!("{FORKED}*"));
    let text = "INSERT INTO lobster_verdicts_in (run, intent, step, origin, at, crc, body) VALUES ($1, $2, $3, $4, $5, $6, $7);\
                UPDATE lobster_runs SET wake = wake + 1, syncs = syncs + 1, \
                due = CASE WHEN state = 2 AND reason NOT GLOB $8 THEN $5 WHEN state = 0 THEN min(due, $5) ELSE due END, \
                reason = CASE WHEN state = 2 AND reason NOT GLOB $8 THEN '' ELSE reason END, \
                state = CASE WHEN state = 2 AND reason NOT GLOB $8 THEN 0 ELSE state END WHERE id = $1;";
    txn.commit(text, args).await?;
    Ok(VerdictAnswer::Accepted)
}

//! The tasks. Each is one transactional step: what it writes in the tables of the bank, the record that it is done, and the run that
//! follows from it are one transaction.

use std::future::Future;
use std::sync::OnceLock;

#[cfg(feature = "postgres")]
use lobster_core::PgTx;
use lobster_core::{Ctx, SqliteTx, StepCtx, StepFailed, SubmitIn, Tx, step, task};
use lobster_examples::transfers::bank::{ADD_MOVEMENT, ADD_ORDER, ADD_RECEIPT, CHANGE_ACCOUNT, Order};

/// The key of the run that moves the money of an order.
pub fn transfer_key(number: i64) -> String {
    format!("transfer-{number}")
}

fn receipt_key(number: i64) -> String {
    format!("receipt-{number}")
}

/// An order that comes in: written down, and to be executed.
#[task(name = "transfers.sale")]
pub async fn sale(ctx: Ctx, number: i64) -> anyhow::Result<()> {
    Ok(in_transaction(&ctx, Act::Order, number).await?)
}

/// Moves the money of an order.
#[task(name = "transfers.transfer")]
pub async fn transfer(ctx: Ctx, number: i64) -> anyhow::Result<()> {
    Ok(in_transaction(&ctx, Act::Move, number).await?)
}

/// Writes the receipt of an order.
#[task(name = "transfers.receipt")]
pub async fn receipt(ctx: Ctx, number: i64) -> anyhow::Result<()> {
    Ok(in_transaction(&ctx, Act::Receipt, number).await?)
}

/// What a step does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Order,
    Move,
    Receipt,
}

/// The same on every store.
async fn act(ctx: &StepCtx, tx: &mut impl Write, act: Act, number: i64) -> anyhow::Result<()> {
    match act {
        Act::Order => {
            tx.write(ADD_ORDER, &[number]).await?;
            to_be_executed(ctx, tx, number).await?;
        }
        Act::Move => {
            for (account, cents) in Order::drawn(number).changes() {
                tx.write(CHANGE_ACCOUNT, &[cents, account]).await?;
            }
            tx.write(ADD_MOVEMENT, &[number]).await?;
            to_be_confirmed(ctx, tx, number).await?;
        }
        Act::Receipt => tx.write(ADD_RECEIPT, &[number]).await?,
    }
    Ok(())
}

// What follows is submitted by plain functions: the future of an async one would have to know the body of the task, which runs the very step
// that this is called in.

fn to_be_executed<'t>(ctx: &StepCtx, tx: &'t mut impl Tx, number: i64) -> SubmitIn<'t, transfer> {
    ctx.submit_in(tx, transfer, number).key(transfer_key(number))
}

fn to_be_confirmed<'t>(ctx: &StepCtx, tx: &'t mut impl Tx, number: i64) -> SubmitIn<'t, receipt> {
    ctx.submit_in(tx, receipt, number).key(receipt_key(number))
}

static AT_SERVER: OnceLock<bool> = OnceLock::new();

/// Says which store the steps of this process work in; the first word counts.
pub fn live_at_server(at_server: bool) {
    let _first_stays = AT_SERVER.set(at_server);
}

async fn in_transaction(ctx: &Ctx, act: Act, number: i64) -> Result<(), StepFailed> {
    #[cfg(feature = "postgres")]
    if AT_SERVER.get().is_some_and(|at_server| *at_server) {
        return at_server(ctx, act, number).await;
    }
    in_file(ctx, act, number).await
}

#[step(transactional, name = "act", max_duration = 5s)]
async fn in_file(ctx: &StepCtx, tx: &mut SqliteTx, what: Act, number: i64) -> anyhow::Result<()> {
    act(ctx, tx, what, number).await
}

#[cfg(feature = "postgres")]
#[step(transactional, name = "act", max_duration = 5s)]
async fn at_server(ctx: &StepCtx, tx: &mut PgTx, what: Act, number: i64) -> anyhow::Result<()> {
    act(ctx, tx, what, number).await
}

/// A transaction that numbers are written in.
trait Write: Tx {
    fn write(&mut self, text: &'static str, numbers: &[i64]) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

impl Write for SqliteTx {
    async fn write(&mut self, text: &'static str, numbers: &[i64]) -> Result<(), sqlx::Error> {
        let query = numbers.iter().fold(sqlx::query(text), |query, number| query.bind(*number));
        query.execute(&mut **self).await.map(drop)
    }
}

#[cfg(feature = "postgres")]
impl Write for PgTx {
    async fn write(&mut self, text: &'static str, numbers: &[i64]) -> Result<(), sqlx::Error> {
        let query = numbers.iter().fold(sqlx::query(text), |query, number| query.bind(*number));
        // Before the server there may be a pooler that keeps no prepared statements.
        query.persistent(false).execute(&mut **self).await.map(drop)
    }
}

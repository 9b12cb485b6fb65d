//! The task: one order from its lines to its notice. The body only says what follows what; each step reports to the
//! ledger that it has begun, then does its work; each key step acts under the engine's idempotency key.

use std::sync::OnceLock;

use lobster_core::{Ctx, Fate, StepCtx, StepErrorExt, step, task};
use lobster_examples::book::Order;
use lobster_examples::ledger::{self, Act, Client, Kind, LedgerError, Receipt};
use lobster_examples::pricing::{self, Price};
use serde::{Deserialize, Serialize};

/// Steps take only data; what they reach the world with is the process's own.
static LEDGER: OnceLock<Client> = OnceLock::new();

/// Sets the ledger for all steps of this process; the first one stays.
pub fn use_ledger(client: Client) {
    let _first_stays = LEDGER.set(client);
}

fn ledger() -> &'static Client {
    LEDGER.get().expect("the worker sets the ledger before it starts the engine")
}

/// What a finished order has to show.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Papers {
    pub charged: Receipt,
    pub shipped: Receipt,
    pub notified: Receipt,
}

#[task]
pub async fn checkout(ctx: Ctx, order: Order) -> anyhow::Result<Papers> {
    let price = price(&ctx, &order).await?;
    check(&ctx, &order).await?;
    let charged = charge(&ctx, &price).await?;
    let shipped = ship(&ctx, order.id).await?;
    let notified = notify(&ctx, order.id).await?;
    Ok(Papers { charged, shipped, notified })
}

#[step]
async fn price(ctx: &StepCtx, order: &Order) -> anyhow::Result<Price> {
    begun(ctx, "price", order.id).await?;
    Ok(pricing::price(order))
}

#[step]
async fn check(ctx: &StepCtx, order: &Order) -> anyhow::Result<()> {
    begun(ctx, "check", order.id).await?;
    Ok(pricing::check(order).fatal()?)
}

#[step(irreversible, in_doubt = probe(find_charge), max_duration = "1s")]
async fn charge(ctx: &StepCtx, price: &Price) -> anyhow::Result<Receipt> {
    begun(ctx, "charge", price.order).await.did_not_happen()?;
    act(ctx, Kind::Charge, price.order, Some(price.total)).await
}

/// Asks for the charge that may have happened; the ledger's answer to a key is for ever.
async fn find_charge(ctx: &StepCtx, _price: &Price) -> anyhow::Result<Fate<Receipt>> {
    Ok(match ledger().did_happen(ctx.idempotency_key()).await? {
        ledger::Fate::Happened(receipt) => Fate::Happened(receipt),
        ledger::Fate::NotSeen => Fate::NotSeen,
        ledger::Fate::Closed => Fate::Closed,
    })
}

#[step(irreversible, in_doubt = retry, max_duration = "1s")]
async fn ship(ctx: &StepCtx, order: u32) -> anyhow::Result<Receipt> {
    begun(ctx, "ship", order).await.did_not_happen()?;
    act(ctx, Kind::Ship, order, None).await
}

#[step(irreversible, in_doubt = retry, max_duration = "1s")]
async fn notify(ctx: &StepCtx, order: u32) -> anyhow::Result<Receipt> {
    begun(ctx, "notify", order).await.did_not_happen()?;
    act(ctx, Kind::Notify, order, None).await
}

async fn begun(ctx: &StepCtx, step: &str, order: u32) -> Result<(), LedgerError> {
    ledger().begun(step, order, ctx.attempt(), ctx.fencing_token()).await
}

async fn act(ctx: &StepCtx, kind: Kind, order: u32, amount: Option<rust_decimal::Decimal>) -> anyhow::Result<Receipt> {
    match ledger().act(Act { key: ctx.idempotency_key().to_owned(), kind, order, amount }).await {
        Ok(receipt) => Ok(receipt),
        // No answer: it may have happened, so the policy for calls in doubt decides.
        Err(silent @ LedgerError::Silent) => Err(silent.into()),
        Err(refused) => Ok(Err(refused).fatal()?),
    }
}

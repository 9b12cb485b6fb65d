//! A transactional step takes a transaction, and nothing that a transaction has no need of.

use lobster_core::{Result, State, StepCtx, step, store::memory::MemoryTx};

#[step(transactional)]
async fn without(_ctx: &StepCtx, order: u32) -> Result<u32> {
    Ok(order)
}

#[step(transactional)]
async fn alone(_ctx: &StepCtx) -> Result<u32> {
    Ok(1)
}

#[step(transactional)]
async fn shared(_ctx: &StepCtx, tx: &MemoryTx) -> Result<i64> {
    Ok(tx.get("a"))
}

#[step(transactional, durable, timeout = 5s, in_doubt = hold)]
async fn too_much(_ctx: &StepCtx, tx: &mut MemoryTx) -> Result<i64> {
    Ok(tx.get("a"))
}

#[step(transactional, irreversible, in_doubt = hold)]
async fn both(_ctx: &StepCtx, tx: &mut MemoryTx) -> Result<i64> {
    Ok(tx.get("a"))
}

#[step(transactional)]
async fn borrows(_ctx: &StepCtx, tx: &mut MemoryTx, names: &[&str]) -> Result<i64> {
    Ok(tx.get(names[0]))
}

#[derive(State, Default)]
struct Total {
    cents: lobster_core::Field<u64>,
}

#[step(transactional)]
async fn with_state(_ctx: &StepCtx, tx: &mut MemoryTx, #[state] total: &mut Total) -> Result<u64> {
    tx.set("a", 1);
    Ok(*total.cents)
}

fn main() {}

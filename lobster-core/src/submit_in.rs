//! A submit inside of a transaction of the caller's: the run and what else the transaction writes are there together, or neither is.
//!
//! Invariant: nothing here begins, ends or outlives the transaction, and nobody is told of the run before it is committed.

use crate::{
    client::{Client, Handle, Submit},
    ctx::{Home, StepCtx},
    error::Error,
    host::BoxFuture,
    name::Key,
    path::submit,
    registry::{Task, TaskFn},
};
use lobster_store::contract::{Business, Tx, Wall};
use std::{fmt, future::IntoFuture, time::Duration};

/// A submit inside of a transaction, to be awaited: [`Client::submit_in`] says what it promises and what its errors are, [`StepCtx::submit_in`]
/// is the same from within a step. Before it is awaited nothing is written.
///
/// A task that submits itself, straight or through another, does so in a plain function that returns this: the future of an `async` one
/// would have to know the body that it is part of.
///
/// ```
/// use lobster_core::{Ctx, Lobster, Result, StepCtx, step, store::memory::MemoryTx, task};
///
/// #[step(transactional)]
/// async fn pay(ctx: &StepCtx, tx: &mut MemoryTx, order: u32) -> Result<()> {
///     tx.set("paid", tx.get("paid") + 1);
///     ctx.submit_in(tx, ship, order).key(format!("ship-{order}")).tag("shipping").await?;
///     Ok(())
/// }
///
/// #[task]
/// async fn checkout(ctx: Ctx, order: u32) -> Result<()> {
///     Ok(pay(&ctx, order).await?)
/// }
///
/// #[task]
/// async fn ship(_ctx: Ctx, order: u32) -> Result<u32> {
///     Ok(order)
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let lobster = Lobster::open("memory:").task(checkout).task(ship).start().await?;
/// lobster.submit(checkout, 7).await?.outcome().await?;
/// let shipment = lobster.find("ship-7").await?.expect("it was submitted when the payment was committed");
/// assert_eq!(lobster.run(ship, shipment).outcome().await?, 7);
/// # Ok(())
/// # }
/// ```
#[must_use = "a submit does nothing until it is awaited"]
pub struct SubmitIn<'t, M: Task> {
    /// `None`: of a step without an engine.
    submit: Option<Submit<M>>,
    transaction: &'t mut Business,
}

impl Client {
    /// Submits a run inside of a transaction that the caller has begun: await what it returns. The run is there if and only if the
    /// transaction is committed, and is executed only then.
    ///
    /// | store | `transaction` |
    /// |---|---|
    /// | PostgreSQL | a transaction of sqlx (`sqlx::Transaction<'_, Postgres>`, or a `PgConnection` that is inside of one) in the database of the store, or the `PgTx` of a `transactional` step |
    /// | SQLite | the `SqliteTx` of a `transactional` step. A connection of your own would write without taking its turn among the processes of the file |
    /// | memory | the `MemoryTx` of a `transactional` step |
    ///
    /// Keys mean what they mean to [`submit`](Client::submit), and see what the transaction itself has submitted. A key that is taken, by
    /// whatever input, leaves the transaction usable. On PostgreSQL a key that *another* open transaction has submitted is waited for
    /// until that ends, as long as your `lock_timeout` permits; two transactions that submit the same keys do so in one order, or one of them
    /// is ended as a deadlock. Under `REPEATABLE READ` and `SERIALIZABLE` a key that was taken since the transaction began is a
    /// serialization failure: repeat the transaction.
    ///
    /// How durable the run is, is decided by your commit: with `synchronous_commit = off` a crash of the server may take both back. The
    /// settings of the transaction stay as they are. The role needs the rights to submit (`<schema>_submit`), by schema-qualified names: no
    /// search path is used or changed.
    ///
    /// The handle is of use once the transaction is committed; before, and after a rollback, there is no such run. Its id is of the moment of
    /// this call, so a list in the order of ids may show it before runs that were visible earlier. Executing processes find the run at their
    /// next poll, within a second by default; [`nudge`](Client::nudge) after the commit makes it sooner. After a transactional step that is done for you.
    ///
    /// # Errors
    /// `Invalid`, `TooLarge`, `Conflict`: as [`submit`](Client::submit), with nothing written. `Refused`: the transaction is not one of
    /// this store, or the connection is not inside of one, with nothing written; or a right is missing. After `Refused` by a missing right,
    /// and after `Unavailable` (the server is away, a lock was waited for too long), roll the transaction back and repeat it.
    ///
    #[doc = include_str!("../docs/submit_in.md")]
    pub fn submit_in<'t, M, Fut>(
        &self,
        transaction: &'t mut impl Tx,
        task: impl TaskFn<M, Fut>,
        input: M::Input,
    ) -> SubmitIn<'t, M>
    where
        M: Task,
    {
        SubmitIn { submit: Some(self.submit(task, input)), transaction: transaction.business() }
    }

    /// Hints to the processes that execute that there may be something to claim: after the commit of a transaction with
    /// [`submit_in`](Client::submit_in). Without it they find it at their next poll. A hint may get lost, and one for nothing costs a claim.
    ///
    /// ```
    /// # use lobster_core::{Lobster, Result};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// let client = Lobster::open("memory:").connect().await?;
    /// client.nudge();
    /// # Ok(())
    /// # }
    /// ```
    pub fn nudge(&self) {
        self.stores().tiers.wake.hint();
        self.wake();
    }
}

impl StepCtx {
    /// Submits a run inside of the transaction of this step: it is there if and only if the step's result is, exactly once. See
    /// [`Client::submit_in`]; executing processes are hinted at it as soon as the transaction is committed.
    ///
    /// Give it a key that is a function of the step's arguments: an attempt that is undone leaves nothing behind, and a run that was submitted
    /// by somebody else is found by it.
    ///
    /// # Errors
    /// As [`Client::submit_in`]. `Invalid`: the context is [`detached`](crate::Ctx::detached).
    pub fn submit_in<'t, M, Fut>(
        &self,
        transaction: &'t mut impl Tx,
        task: impl TaskFn<M, Fut>,
        input: M::Input,
    ) -> SubmitIn<'t, M>
    where
        M: Task,
    {
        let submit = match &self.home {
            Home::Live(live) => Some(live.shared.client.submit(task, input)),
            Home::Detached(_) => None,
        };
        SubmitIn { submit, transaction: transaction.business() }
    }
}

impl<M: Task> SubmitIn<'_, M> {
    /// As [`Submit::key`].
    pub fn key(self, key: impl Into<Key>) -> Self {
        self.with(|submit| submit.key(key))
    }
    /// As [`Submit::tag`].
    pub fn tag(self, tag: impl Into<String>) -> Self {
        self.with(|submit| submit.tag(tag))
    }
    /// As [`Submit::delay`]: from the moment of this call, whenever the transaction is committed.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|submit| submit.delay(delay))
    }
    /// As [`Submit::at`].
    pub fn at(self, moment: Wall) -> Self {
        self.with(|submit| submit.at(moment))
    }
    fn with(self, more: impl FnOnce(Submit<M>) -> Submit<M>) -> Self {
        Self { submit: self.submit.map(more), ..self }
    }
}

impl<M: Task> fmt::Debug for SubmitIn<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitIn").field("submit", &self.submit).finish_non_exhaustive()
    }
}

impl<'t, M: Task> IntoFuture for SubmitIn<'t, M> {
    type Output = Result<Handle<M>, Error>;
    type IntoFuture = BoxFuture<'t, Self::Output>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let detached = || Error::invalid("a detached step has no engine to submit to: test it in one");
            let (client, run) = self.submit.ok_or_else(detached)?.prepare()?;
            let id = submit::submit_in(client.stores(), self.transaction, run).await?;
            Ok(client.run_of(id))
        })
    }
}

//! What `#[task]` and `#[step]` expand to. Use it by hand where macros are not wanted; `examples/by_hand.rs` does.
//!
//! Invariant: nothing here decides anything that the author cannot see in an attribute.

pub use crate::{
    call::{Call, call},
    codec::Returned,
    registry::{Task, TaskOptions},
    spec::{InDoubt, OnExhausted, Retry, Spec, StepKind as Kind, ValueType},
    state::{Lease, Leases, Member, Migration, Named, StateType, Wanted},
    step_key::{Key, StepKey, key},
};
use crate::{
    ctx::StepCtx,
    error::{BoxError, StepFailed},
    host::BoxFuture,
    irreversible::{Act, Ask, Fate, irreversible},
    path::step,
    transactional::{self, Wanted as Transaction, transactional},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    any::{Any, TypeId},
    future::Future,
    marker::PhantomData,
};

/// A probe's return type.
#[diagnostic::on_unimplemented(
    message = "a probe returns a `Result<Fate<V>, E>` where `V` is the value of the step it asks about",
    label = "not a probe's return type"
)]
pub trait FateOutput {
    /// The value of the step.
    type Value: Serialize + DeserializeOwned + Send + 'static;
    /// The error.
    type Error;
    /// Fate or error.
    ///
    /// # Errors
    /// What the probe returned as one.
    fn split(self) -> Result<Fate<Self::Value>, Self::Error>;
}

impl<T, E> FateOutput for Result<Fate<T>, E>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    type Value = T;
    type Error = E;
    fn split(self) -> Result<Fate<T>, E> {
        self
    }
}

/// The marker type of a `#[step]` function.
pub trait StepInfo {
    /// What its author says about it.
    const SPEC: Spec;
}

/// How `#[derive(State)]` tells a scratch: [`Scratch::fill_by_default`](crate::Scratch::fill_by_default) comes before this method, which
/// every other type has.
pub trait Recorded {
    /// There is nothing to fill.
    fn fill_by_default(&mut self) {}
}

impl<M: ?Sized> Recorded for M {}

/// Clones a `&T` argument of an irreversible step at the call, since its call may outlive the caller.
pub fn own<T: ToOwned + ?Sized>(argument: &T) -> T::Owned {
    argument.to_owned()
}

/// Runs an ordinary or durable step in the body's own polls.
///
/// # Errors
/// [`StepFailed`], as recorded.
pub async fn inline<'c, O, Fut>(call: &'c Call, body: impl FnMut(&'c StepCtx) -> Fut) -> Result<O::Value, StepFailed>
where
    O: Returned,
    O::Error: Into<BoxError>,
    Fut: Future<Output = O>,
{
    let mut body = body;
    step::step(call, (), |cx, ()| {
        let running = body(cx);
        async move { (running.await, ()) }
    })
    .await
}

/// The same for a step that asks for states: a tuple of [`Named`]. The body gets a tuple of [`Lease`]s and returns it with its output; a
/// lease that is dropped undoes what was changed through it.
///
/// # Errors
/// [`StepFailed`], as recorded.
pub async fn stateful<'c, W, O, Fut>(
    call: &'c Call,
    wanted: W,
    body: impl FnMut(&'c StepCtx, Leases<W>) -> Fut,
) -> Result<O::Value, StepFailed>
where
    W: Wanted,
    O: Returned,
    O::Error: Into<BoxError>,
    Fut: Future<Output = (O, Leases<W>)>,
{
    step::step(call, wanted, body).await
}

/// The author's question about a call in doubt.
pub struct Probe<V> {
    ask: Ask,
    value: PhantomData<fn() -> V>,
}

/// Makes a probe of a function.
pub fn probe<R, Fut>(mut ask: impl FnMut(StepCtx) -> Fut + Send + 'static) -> Probe<R::Value>
where
    R: FateOutput,
    R::Error: Into<BoxError>,
    Fut: Future<Output = R> + Send + 'static,
{
    let ask: Ask = Box::new(move |cx| {
        let asking = ask(cx);
        Box::pin(async move {
            let fate = asking.await.split().map_err(Into::into)?;
            Ok(match fate {
                Fate::Happened(value) => Fate::Happened(crate::codec::encode(&value)?),
                Fate::NotSeen => Fate::NotSeen,
                Fate::Closed => Fate::Closed,
                Fate::Unknown => Fate::Unknown,
            })
        })
    });
    Probe { ask, value: PhantomData }
}

/// Makes an irreversible call on a task of the engine. Dropping the returned future detaches; it never stops the call.
///
/// # Errors
/// [`StepFailed`], as recorded.
pub fn spawned<O, Fut>(
    call: Call,
    mut body: impl FnMut(StepCtx) -> Fut + Send + 'static,
    probe: Option<Probe<O::Value>>,
) -> impl Future<Output = Result<O::Value, StepFailed>> + Send
where
    O: Returned,
    O::Error: Into<BoxError>,
    Fut: Future<Output = O> + Send + 'static,
{
    let act: Act = Box::new(move |cx| {
        let acting = body(cx);
        let act: BoxFuture<'static, _> = Box::pin(async move {
            let output = acting.await.split().map_err(Into::into);
            step::encode(output).map(|(payload, _)| payload)
        });
        act
    });
    irreversible(call, act, probe.map(|probe| probe.ask))
}

/// Runs a transactional step on a task of the engine: `body` gets the store's transaction, of the type that it names. What it writes
/// there and the record of the step are committed together. Dropping the returned future detaches; it never stops the transaction.
///
/// # Errors
/// [`StepFailed`], as recorded. Code `WrongStore`: the store has no transactions, or others.
pub fn transacted<T, O>(
    call: Call,
    mut body: impl for<'t> FnMut(StepCtx, &'t mut T) -> BoxFuture<'t, O> + Send + 'static,
) -> impl Future<Output = Result<O::Value, StepFailed>> + Send
where
    T: Any + Send,
    O: Returned + 'static,
    O::Error: Into<BoxError>,
{
    let wanted = Transaction { id: TypeId::of::<T>(), name: std::any::type_name::<T>() };
    let act = transactional::act(move |cx, transaction| {
        // The engine has asked the store for its type before.
        let Some(transaction) = transaction.downcast_mut::<T>() else { return Box::pin(std::future::pending()) };
        let acting = body(cx, transaction);
        Box::pin(async move {
            let output = acting.await.split().map_err(Into::into);
            step::encode(output).map(|(payload, _)| payload)
        })
    });
    transactional(call, wanted, act)
}

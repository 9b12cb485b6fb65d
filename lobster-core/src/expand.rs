//! What `#[task]` and `#[step]` expand to. Use it by hand where macros are not wanted; `examples/by_hand.rs` does.
//!
//! Invariant: nothing here decides anything that the author cannot see in an attribute.

pub use crate::{
    call::{Call, call},
    registry::{Task, TaskOptions},
    spec::{InDoubt, OnExhausted, Retry, Spec, StepKind as Kind},
    state::{Lease, Leases, Member, Migration, Named, StateType, Wanted},
};
use crate::{
    ctx::StepCtx,
    error::{BoxError, StepFailed},
    host::BoxFuture,
    irreversible::{Act, Ask, Fate, irreversible},
    path::step,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{borrow::Cow, fmt::Write, future::Future, marker::PhantomData};

/// A step's return type: sees through `Result` aliases, so that no macro has to parse them.
#[diagnostic::on_unimplemented(
    message = "a step returns a `Result` whose value can be serialized and deserialized, and whose error converts into a boxed error",
    label = "not a step's return type",
    note = "the value needs `serde::Serialize + serde::de::DeserializeOwned + Send`; any `std::error::Error + Send + Sync` will do as error"
)]
pub trait StepOutput {
    /// The value.
    type Value: Serialize + DeserializeOwned + Send + 'static;
    /// The error. What it must be is asked where it is used: a bound here would have to hold for every lifetime.
    type Error;
    /// Value or error.
    ///
    /// # Errors
    /// What the body returned as one.
    fn split(self) -> Result<Self::Value, Self::Error>;
}

impl<T, E> StepOutput for Result<T, E>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    type Value = T;
    type Error = E;
    fn split(self) -> Result<T, E> {
        self
    }
}

/// A task's return type.
#[diagnostic::on_unimplemented(
    message = "a task returns a `Result` whose value can be serialized and deserialized, and whose error converts into a boxed error",
    label = "not a task's return type"
)]
pub trait TaskOutput {
    /// The value.
    type Value: Serialize + DeserializeOwned + Send + 'static;
    /// The error. What it must be is asked where it is used: a bound here would have to hold for every lifetime.
    type Error;
    /// Value or error.
    ///
    /// # Errors
    /// What the body returned as one.
    fn split(self) -> Result<Self::Value, Self::Error>;
}

impl<T, E> TaskOutput for Result<T, E>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    type Value = T;
    type Error = E;
    fn split(self) -> Result<T, E> {
        self
    }
}

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

/// A step's key, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(pub(crate) String);

/// Turns a value into a step's key. Values of one type with different texts have different keys; strings inside tuples are
/// escaped, so `("a", "b,c")` and `("a,b", "c")` differ.
pub trait StepKey {
    /// Appends the text.
    fn write(&self, text: &mut String);
}

macro_rules! plain_keys {
    ($($kind:ty),*) => {$(
        impl StepKey for $kind {
            fn write(&self, text: &mut String) {
                write!(text, "{self}").expect("writing to a string cannot fail");
            }
        }
    )*};
}
plain_keys!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, char, str, String, uuid::Uuid, crate::RunId);

impl StepKey for Cow<'_, str> {
    fn write(&self, text: &mut String) {
        text.push_str(self);
    }
}

impl<K: StepKey + ?Sized> StepKey for &K {
    fn write(&self, text: &mut String) {
        (**self).write(text);
    }
}

macro_rules! tuple_keys {
    ($($name:ident)+) => {
        impl<$($name: StepKey),+> StepKey for ($($name,)+) {
            #[allow(non_snake_case, reason = "the type parameters name the fields")]
            fn write(&self, text: &mut String) {
                let ($($name,)+) = self;
                let mut parts = Vec::new();
                $({
                    let mut part = String::new();
                    $name.write(&mut part);
                    parts.push(part.replace('\\', "\\\\").replace(',', "\\,"));
                })+
                text.push_str(&parts.join(","));
            }
        }
    };
}
tuple_keys!(A);
tuple_keys!(A B);
tuple_keys!(A B C);
tuple_keys!(A B C D);

/// The key of a value.
pub fn key<K: StepKey + ?Sized>(value: &K) -> Key {
    let mut text = String::new();
    value.write(&mut text);
    Key(text)
}

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
    O: StepOutput,
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
    O: StepOutput,
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
    O: StepOutput,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_tuples_do_not_run_together() {
        assert_eq!(key(&7).0, "7");
        assert_eq!(key("a").0, "a");
        assert_eq!(key(&(1, "x")).0, "1,x");
        assert_ne!(key(&("a", "b,c")), key(&("a,b", "c")));
        assert_ne!(key(&("a\\", "b")), key(&("a", "\\b")));
    }
}

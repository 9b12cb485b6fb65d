//! The rule: what the macros make of good code behaves as their documentation says, and no lint of the author's sees it.

#![deny(warnings, missing_docs, single_use_lifetimes, unused_lifetimes, clippy::pedantic, clippy::nursery)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use lobster_core::expand::{InDoubt, Kind, OnExhausted, Retry, StepInfo, Task};
use lobster_core::{Ctx, Fate, Result, StepCtx, register, step, task};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What is bought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Which.
    pub id: u32,
}

/// What it costs.
#[step]
pub async fn quote(ctx: &StepCtx, order: &Order) -> Result<u32> {
    assert!(ctx.attempt() > 0);
    tokio::task::yield_now().await;
    Ok(order.id * 10)
}

#[step(durable, name = "keep.note", retry(attempts = 3, first = 1ms, factor = 3, cap = "2s", jitter = none), timeout = 5s)]
async fn note(_ctx: &StepCtx, text: &str, mut lines: Vec<String>) -> Result<String> {
    lines.push(text.to_owned());
    Ok(lines.join(" "))
}

static ASKED: AtomicU32 = AtomicU32::new(0);

#[step(irreversible, in_doubt = probe(found), max_duration = 1m, retry(attempts = 2))]
async fn charge(ctx: &StepCtx, price: u32, order: &Order, note: &str, lines: &[Order], by: &'static str) -> Result<String> {
    tokio::task::yield_now().await;
    if note == "lost" {
        return Err("no answer".into());
    }
    Ok(format!("{}:{price}:{}:{note}:{}:{by}", ctx.idempotency_key(), order.id, lines.len()))
}

async fn found(_: &StepCtx, price: &u32, order: &Order, _: &str, lines: &[Order], by: &'static str) -> Result<Fate<String>> {
    tokio::task::yield_now().await;
    let seen = if ASKED.fetch_add(1, Relaxed) == 0 {
        Fate::NotSeen
    } else {
        Fate::Happened(format!("{price}:{}:{}:{by}", order.id, lines.len()))
    };
    Ok(seen)
}

#[step(irreversible, in_doubt = retry, on_exhausted = fail)]
async fn ship(_ctx: &StepCtx) -> Result<()> {
    Ok(())
}

#[step]
async fn echo<'a, T, const N: usize>(_ctx: &StepCtx, value: &'a T, other: Option<&'a T>, many: [u8; N]) -> Result<(T, usize)>
where
    T: Clone + Send + Sync + Serialize + DeserializeOwned + 'static,
{
    Ok((other.unwrap_or(value).clone(), many.len()))
}

#[step(irreversible, in_doubt = hold)]
async fn send<T: Clone + Send + Sync + Serialize + DeserializeOwned + 'static>(_ctx: &StepCtx, a: &T, b: T) -> Result<(T, T)> {
    Ok((a.clone(), b))
}

#[step]
async fn borrows(
    _ctx: &StepCtx,
    words: &[&str],
    cow: Cow<'_, str>,
    map: BTreeMap<&str, &Order>,
    f: fn(&str) -> &str,
) -> Result<String> {
    let ids: Vec<String> = map.values().map(|order| order.id.to_string()).collect();
    Ok(format!("{}{}{}", f(words[0]), cow, ids.concat()))
}

#[step]
#[allow(single_use_lifetimes, reason = "a bound between lifetimes is the point")]
async fn bounds<'a, 'b: 'a>(ctx: &'a StepCtx, short: &'a str, long: &'b str, f: &(dyn Fn(u32) -> u32 + Sync)) -> Result<u32> {
    let either = if ctx.attempt() == 1 { long } else { short };
    Ok(f(either.len().try_into()?))
}

/// Not `Sync`: an argument that is moved in needs no more than `Send`.
#[step]
async fn cell(_ctx: &StepCtx, cell: std::cell::Cell<u32>) -> Result<u32> {
    tokio::task::yield_now().await;
    Ok(cell.get())
}

type Plain = std::result::Result<u32, std::num::ParseIntError>;

#[step]
async fn parse(_ctx: &StepCtx, text: &str) -> Plain {
    text.parse()
}

#[step]
async fn flaky(ctx: &StepCtx, failures: &AtomicU32, text: String) -> Result<String> {
    if failures.load(Relaxed) > 0 {
        failures.fetch_sub(1, Relaxed);
        return Err("again".into());
    }
    Ok(format!("{text} {}", ctx.idempotency_key()))
}

#[step(key = (order.id, &name))]
async fn keyed(ctx: &StepCtx, order: &Order, name: String) -> Result<String> {
    Ok(format!("{name} {} {}", order.id, ctx.idempotency_key()))
}

#[step(key = i + 1)]
async fn numbered(ctx: &StepCtx, i: u32) -> Result<String> {
    Ok(format!("{i} {}", ctx.idempotency_key()))
}

/// Arguments with the names of what the macro writes, and of what it calls.
#[step(irreversible, in_doubt = probe(awkward))]
async fn body(call: &StepCtx, cx: u32, body: &u32, probe: u32, args: u32, root: u32, __lobster: u32) -> Result<u32> {
    let _ = call.attempt();
    Ok(cx + body + probe + args + root + __lobster)
}

async fn awkward(_: &StepCtx, _: &u32, _: &u32, _: &u32, _: &u32, _: &u32, _: &u32) -> Result<Fate<u32>> {
    std::future::ready(Ok(Fate::Unknown)).await
}

#[step(key = call)]
async fn call(body: &StepCtx, call: u32, cx: u32) -> Result<u32> {
    let _ = body.attempt();
    Ok(call + cx)
}

#[step]
async fn r#move(_ctx: &StepCtx, r#type: u32) -> Result<u32> {
    Ok(r#type)
}

/// Steps of a module, by its paths.
mod inner {
    /// The same name as outside.
    #[lobster_core::step]
    pub async fn quote(_ctx: &lobster_core::StepCtx, order: &super::Order) -> lobster_core::Result<u32> {
        Ok(order.id + 1)
    }

    #[lobster_core::step(crate = "lobster_core")]
    pub async fn other(ctx: &lobster_core::StepCtx) -> lobster_core::Result<String> {
        Ok(ctx.idempotency_key().to_owned())
    }

    #[cfg(any())]
    #[lobster_core::step]
    pub async fn absent(_ctx: &Nothing) -> Nothing {}

    #[lobster_core::step]
    #[cfg(any())]
    pub async fn absent(_ctx: &lobster_core::StepCtx) -> Nothing {}

    #[lobster_core::step]
    #[allow(unused_variables, clippy::needless_pass_by_value, reason = "what is allowed outside is allowed inside")]
    #[track_caller]
    pub async fn attributes(ctx: &lobster_core::StepCtx, unused: String) -> lobster_core::Result<()> {
        let nobody_reads_this = 1;
        Ok(())
    }
}

macro_rules! made {
    ($name:ident, $ctx:ty, $arg:ty) => {
        #[step]
        async fn $name(_ctx: &$ctx, value: $arg, other: &$arg) -> Result<bool> {
            Ok(value == *other)
        }
    };
}
made!(same, StepCtx, String);

/// Everything in one body.
#[task(name = "shop.checkout", version = 2, max_attempts = 10, steps = [quote, charge, inner::quote])]
pub async fn checkout(ctx: Ctx, order: Order) -> Result<String> {
    let other = order.clone();
    let (a, b) = tokio::join!(quote(&ctx, &order), inner::quote(&ctx, &other));
    let lines = [order.clone()];
    let receipt = charge(&ctx, a? + b?, &order, "n", &lines, "card").await?;
    let both = async { (echo(&ctx, &order, None, [0; 3]).await, cell(&ctx, std::cell::Cell::new(1)).await) };
    let (echoed, cell) = both.await;
    let words = [receipt.as_str()];
    let text = borrows(&ctx, &words, "-".into(), BTreeMap::from([("a", &order)]), str::trim).await?;
    Ok(format!("{text} {} {}", echoed?.1, cell?))
}

#[task]
async fn tick(_ctx: Ctx) -> std::result::Result<(), lobster_core::StepFailed> {
    std::future::ready(Ok(())).await
}

#[task(crate = "::lobster_core")]
async fn pair(_ctx: Ctx, mut input: (u32, Vec<u32>)) -> Result<Vec<u32>> {
    input.1.push(input.0);
    Ok(input.1)
}

const fn is_send<T: Send>(value: T) -> T {
    value
}

#[tokio::test]
async fn a_whole_body_can_be_sent_to_another_thread_and_gives_the_same_when_resumed() {
    let ctx = Ctx::detached();
    let (resumed, again) = (ctx.resumed(), Order { id: 4 });
    let first = is_send(checkout(ctx, Order { id: 4 })).await.unwrap();
    assert_eq!(first, "charge#0:45:4:n:1:card-4 3 1");
    assert_eq!(checkout(resumed, again).await.unwrap(), first);
}

#[tokio::test]
async fn a_recorded_step_is_not_called_again() {
    let (ctx, failures) = (Ctx::detached(), AtomicU32::new(0));
    assert_eq!(flaky(&ctx, &failures, "a".into()).await.unwrap(), "a flaky#0");
    let resumed = ctx.resumed();
    failures.store(100, Relaxed);
    assert_eq!(flaky(&resumed, &failures, "a".into()).await.unwrap(), "a flaky#0");
    assert_eq!(failures.load(Relaxed), 100);
}

#[tokio::test]
async fn every_attempt_gets_its_own_copy_of_the_arguments() {
    let (ctx, failures) = (Ctx::detached(), AtomicU32::new(4));
    assert_eq!(flaky(&ctx, &failures, "a".into()).await.unwrap(), "a flaky#0");
    failures.store(5, Relaxed);
    assert_eq!(flaky(&ctx, &failures, "b".into()).await.unwrap_err().message, "again");
}

#[tokio::test]
async fn the_occurrence_is_taken_at_the_call_and_not_when_it_is_polled() {
    let ctx = Ctx::detached();
    let (first, second) = (inner::other(&ctx), inner::other(&ctx));
    assert_eq!(ctx.log(), ["called other#0", "called other#1"]);
    assert_eq!(second.await.unwrap(), "other#1");
    assert_eq!(first.await.unwrap(), "other#0");
    drop(inner::other(&ctx));
    assert_eq!(inner::other(&ctx).await.unwrap(), "other#3");
}

#[tokio::test]
async fn a_key_is_made_of_the_arguments() {
    let ctx = Ctx::detached();
    assert_eq!(keyed(&ctx, &Order { id: 7 }, "a".into()).await.unwrap(), "a 7 keyed/(7,a)");
    assert_eq!(numbered(&ctx, 7).await.unwrap(), "7 numbered/8");
    assert_eq!(call(&ctx, 1, 2).await.unwrap(), 3);
}

#[tokio::test]
async fn generic_steps_take_every_kind_of_parameter() {
    let ctx = Ctx::detached();
    assert_eq!(echo(&ctx, &1u32, Some(&2), [0; 3]).await.unwrap(), (2, 3));
    assert_eq!(echo(&ctx, &"a".to_owned(), None, []).await.unwrap(), ("a".to_owned(), 0));
    assert_eq!(send(&ctx, &1u8, 2).await.unwrap(), (1, 2));
    assert_eq!(bounds(&ctx, "a", "bc", &|length| length + 1).await.unwrap(), 3);
}

#[tokio::test]
async fn a_step_can_be_written_inside_a_function() {
    #[step(durable)]
    async fn local(_ctx: &StepCtx, number: u32) -> Result<u32> {
        Ok(number + 1)
    }
    let ctx = Ctx::detached();
    assert_eq!(local(&ctx, 1).await.unwrap(), 2);
    let first_wins = tokio::select! {
        biased;
        first = local(&ctx, 2) => first,
        second = local(&ctx, 3) => second,
    };
    assert_eq!(first_wins.unwrap(), 3);
    assert_eq!(ctx.log(), ["called local#0", "called local#1", "called local#2"]);
}

#[tokio::test]
async fn an_irreversible_call_owns_its_arguments_and_its_probe_sees_them() {
    let ctx = Ctx::detached();
    let step = {
        let (order, text) = (Order { id: 3 }, "lost".to_owned());
        charge(&ctx, 9, &order, &text, &[], "me").await
    };
    assert_eq!(step.unwrap_err().message, "no answer", "the first answer of the probe is not yet the truth");
    let step = charge(&ctx, 9, &Order { id: 3 }, "lost", &[], "me").await;
    assert_eq!(step.unwrap(), "9:3:0:me");
}

#[tokio::test]
async fn names_of_the_author_do_not_meet_names_of_the_macro() {
    let ctx = Ctx::detached();
    assert_eq!(body(&ctx, 1, &2, 3, 4, 5, 6).await.unwrap(), 21);
    assert_eq!(r#move(&ctx, 1).await.unwrap(), 1);
    assert!(same(&ctx, "a".into(), &"a".into()).await.unwrap());
    assert_eq!(parse(&ctx, "12").await.unwrap(), 12);
    assert_eq!(note(&ctx, "b", vec!["a".into()]).await.unwrap(), "a b");
    ship(&ctx).await.unwrap();
    inner::attributes(&ctx, String::new()).await.unwrap();
    assert_eq!(ctx.log()[1], "called move#0");
}

#[test]
fn a_spec_says_what_the_options_say() {
    let spec = <quote as StepInfo>::SPEC;
    assert_eq!((spec.name, spec.site, spec.kind), ("quote", concat!(module_path!(), "::quote"), Kind::Ordinary));
    assert_eq!((spec.retry, spec.timeout_ms, spec.keyed), (Retry::DEFAULT, None, false));
    assert_eq!(<inner::quote as StepInfo>::SPEC.site, concat!(module_path!(), "::inner::quote"));

    let spec = <note as StepInfo>::SPEC;
    assert_eq!((spec.name, spec.kind, spec.timeout_ms), ("keep.note", Kind::Durable, Some(5_000)));
    assert_eq!(spec.retry, Retry { attempts: 3, first_ms: 1, factor: 3, cap_ms: 2_000, jitter: false });

    let spec = <charge as StepInfo>::SPEC;
    assert_eq!((spec.kind, spec.in_doubt, spec.on_exhausted), (Kind::Irreversible, InDoubt::Probe, OnExhausted::Hold));
    assert_eq!((spec.max_duration_ms, spec.retry), (Some(60_000), Retry { attempts: 2, ..Retry::DEFAULT }));

    let spec = <ship as StepInfo>::SPEC;
    assert_eq!((spec.in_doubt, spec.on_exhausted), (InDoubt::Retry, OnExhausted::Fail));
    assert_eq!(<send as StepInfo>::SPEC.in_doubt, InDoubt::Hold);
    assert_eq!(<r#move as StepInfo>::SPEC.name, "move");
    assert!([<keyed as StepInfo>::SPEC, <call as StepInfo>::SPEC].iter().all(|spec| spec.keyed));
}

#[tokio::test]
async fn a_task_is_found_through_its_function() {
    let registered = register(checkout);
    assert_eq!((registered.name, registered.version), ("shop.checkout", 2));
    assert_eq!(registered.options.max_attempts, Some(10));
    let steps: Vec<&str> = registered.options.steps.unwrap().iter().map(|spec| spec.site).collect();
    assert_eq!(steps, [<quote as StepInfo>::SPEC.site, <charge as StepInfo>::SPEC.site, <inner::quote as StepInfo>::SPEC.site]);

    let registered = register(tick);
    assert_eq!((registered.name, registered.version), ("tick", 1));
    assert!(registered.options.max_attempts.is_none() && registered.options.steps.is_none());
    let (): <tick as Task>::Input = ();
    tick(Ctx::detached(), ()).await.unwrap();

    assert_eq!(register(pair).name, "pair");
    let output: <pair as Task>::Output = pair(Ctx::detached(), (1, vec![2])).await.unwrap();
    assert_eq!(output, [2, 1]);
}

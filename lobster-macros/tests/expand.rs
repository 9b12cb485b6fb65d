//! The rule: what the macros make of good code behaves as their documentation says, and no lint of the author's sees it.

#![deny(warnings, missing_docs, single_use_lifetimes, unused_lifetimes, clippy::pedantic, clippy::nursery)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use lobster_core::expand::{InDoubt, Kind, OnExhausted, Retry, StepInfo, Task};
use lobster_core::{Builder, Ctx, Fate, Lobster, Result, Settings, StepCtx, StepErrorExt, StepFailedKind, StepState, step, task};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What is bought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Which.
    pub id: u32,
}

static QUOTED: AtomicU32 = AtomicU32::new(0);

/// What it costs.
#[step]
pub async fn quote(ctx: &StepCtx, order: &Order) -> Result<u32> {
    assert!(ctx.attempt() > 0);
    QUOTED.fetch_add(1, Relaxed);
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
    assert_eq!(ctx.idempotency_key().len(), 32);
    Ok(format!("{price}:{}:{note}:{}:{by}", order.id, lines.len()))
}

async fn found(_: &StepCtx, price: &u32, order: &Order, _: &str, lines: &[Order], by: &'static str) -> Result<Fate<String>> {
    tokio::task::yield_now().await;
    let seen = if ASKED.fetch_add(1, Relaxed) == 0 {
        Fate::Unknown
    } else {
        Fate::Happened(format!("found {price}:{}:{}:{by}", order.id, lines.len()))
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
    Ok(format!("{text} {}", ctx.attempt()))
}

/// Fails once, for long enough that the run leaves memory.
#[step]
async fn pause(ctx: &StepCtx) -> Result<()> {
    if ctx.attempt() == 1 {
        return Err("not yet").retry_after(Duration::from_millis(400))?;
    }
    Ok(())
}

#[step(key = (order.id, format!("{name},")))]
async fn keyed(_ctx: &StepCtx, order: &Order, name: String) -> Result<String> {
    Ok(format!("{name} {}", order.id))
}

/// What is not in the key and not looked at is not looked at by a lint either.
#[step(key = i + 1)]
async fn numbered(_ctx: &StepCtx, i: u32, _by: &str) -> Result<u32> {
    Ok(i)
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
    /// The same name as outside, but for the records.
    #[lobster_core::step(name = "inner.quote")]
    pub async fn quote(_ctx: &lobster_core::StepCtx, order: &super::Order) -> lobster_core::Result<u32> {
        Ok(order.id + 1)
    }

    #[lobster_core::step(crate = "lobster_core")]
    pub async fn other(_ctx: &lobster_core::StepCtx, number: u32) -> lobster_core::Result<u32> {
        Ok(number)
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

static BEGUN: AtomicU32 = AtomicU32::new(0);

/// Everything in one body.
#[task(name = "shop.checkout", version = 2, max_attempts = 10, steps = [quote, charge, inner::quote])]
pub async fn checkout(ctx: Ctx, order: Order) -> Result<String> {
    BEGUN.fetch_add(1, Relaxed);
    let other = order.clone();
    let (a, b) = tokio::join!(quote(&ctx, &order), inner::quote(&ctx, &other));
    let lines = [order.clone()];
    let receipt = charge(&ctx, a? + b?, &order, "n", &lines, "card").await?;
    pause(&ctx).await?;
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

/// Awaits in another order than it calls, and leaves one call.
#[task]
async fn disorderly(ctx: Ctx) -> Result<()> {
    let (first, second) = (inner::other(&ctx, 0), inner::other(&ctx, 1));
    second.await?;
    first.await?;
    drop(inner::other(&ctx, 2));
    inner::other(&ctx, 3).await?;
    keyed(&ctx, &Order { id: 7 }, "a,b".into()).await?;
    numbered(&ctx, 7, "me").await?;
    call(&ctx, 1, 2).await?;
    r#move(&ctx, 1).await?;
    note(&ctx, "b", vec!["a".into()]).await?;
    Ok(())
}

/// A call that may have happened, and a probe that knows at the second time.
#[task]
async fn doubtful(ctx: Ctx) -> Result<String> {
    let (order, text) = (Order { id: 3 }, "lost".to_owned());
    Ok(charge(&ctx, 9, &order, &text, &[], "me").await?)
}

fn engine() -> Builder {
    Lobster::open("memory:").settings(Settings::test())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_body_can_be_sent_to_another_thread_and_is_resumed_from_its_records() {
    let mut detached = tokio::task::JoinSet::new();
    detached.spawn(checkout(Ctx::detached(), Order { id: 4 }));
    let expected = "45:4:n:1:card-4 3 1";
    assert_eq!(detached.join_next().await.unwrap().unwrap().unwrap(), expected);

    QUOTED.store(0, Relaxed);
    BEGUN.store(0, Relaxed);
    let lobster = engine().task(checkout).start().await.unwrap();
    let run = lobster.submit(checkout, Order { id: 4 }).await.unwrap();
    assert_eq!(run.outcome().await.unwrap(), expected);
    assert_eq!((BEGUN.load(Relaxed), QUOTED.load(Relaxed)), (2, 1), "it left memory once, and went on from its records");
    lobster.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_recorded_under_its_name_and_its_key_or_its_place_among_the_calls() {
    let lobster = engine().task(disorderly).start().await.unwrap();
    let run = lobster.submit(disorderly, ()).await.unwrap();
    run.outcome().await.unwrap();
    let view = lobster.show(run.id()).await.unwrap();
    let steps: Vec<(&str, &str)> = view
        .steps
        .iter()
        .map(|step| match &step.state {
            StepState::Done(value) => (step.name.as_str(), value.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        ("other#1", "1"),
        ("other#0", "0"),
        ("other#3", "3"),
        (r"keyed[7,a\,b\,]", r#""a,b 7""#),
        ("numbered[8]", "7"),
        ("call[1]", "3"),
        ("move#0", "1"),
        ("keep.note#0", r#""a b""#),
    ];
    assert_eq!(steps, expected);
    lobster.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_irreversible_call_owns_its_arguments_and_its_probe_sees_them() {
    let lobster = engine().task(doubtful).start().await.unwrap();
    let run = lobster.submit(doubtful, ()).await.unwrap();
    assert_eq!(run.outcome().await.unwrap(), "found 9:3:0:me");
    assert_eq!(ASKED.load(Relaxed), 2);
    lobster.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn every_attempt_gets_its_own_copy_of_the_arguments() {
    let (ctx, failures) = (Ctx::detached(), AtomicU32::new(4));
    assert_eq!(flaky(&ctx, &failures, "a".into()).await.unwrap(), "a 5");
    failures.store(5, Relaxed);
    let failed = flaky(&ctx, &failures, "b".into()).await.unwrap_err();
    assert_eq!((failed.kind(), failed.message(), failed.attempts()), (StepFailedKind::Exhausted, "again", 5));
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
}

#[tokio::test]
async fn names_of_the_author_do_not_meet_names_of_the_macro() {
    let ctx = Ctx::detached();
    assert_eq!(body(&ctx, 1, &2, 3, 4, 5, 6).await.unwrap(), 21);
    assert!(same(&ctx, "a".into(), &"a".into()).await.unwrap());
    assert_eq!(parse(&ctx, "12").await.unwrap(), 12);
    ship(&ctx).await.unwrap();
    inner::attributes(&ctx, String::new()).await.unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_found_through_its_function() {
    assert_eq!((<checkout as Task>::NAME, <checkout as Task>::VERSION), ("shop.checkout", 2));
    assert_eq!(<checkout as Task>::options().max_attempts, Some(10));
    let steps: Vec<&str> = <checkout as Task>::options().steps.unwrap().iter().map(|spec| spec.site).collect();
    assert_eq!(steps, [<quote as StepInfo>::SPEC.site, <charge as StepInfo>::SPEC.site, <inner::quote as StepInfo>::SPEC.site]);

    assert_eq!((<tick as Task>::NAME, <tick as Task>::VERSION), ("tick", 1));
    assert!(<tick as Task>::options().max_attempts.is_none() && <tick as Task>::options().steps.is_none());
    let (): <tick as Task>::Input = ();
    tick(Ctx::detached(), ()).await.unwrap();

    let lobster = engine().task(tick).task(pair).start().await.unwrap();
    lobster.submit(tick, ()).await.unwrap().outcome().await.unwrap();
    let run = lobster.submit(pair, (1, vec![2])).await.unwrap();
    let output: <pair as Task>::Output = run.outcome().await.unwrap();
    assert_eq!(output, [2, 1]);
    lobster.shutdown(Duration::from_secs(5)).await;
}

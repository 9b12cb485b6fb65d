//! The rule: whatever error type an author prefers, what he says about an error arrives, and a step's failure handed on stays that
//! failure.

#![deny(warnings, clippy::pedantic)]

use std::io;
use std::num::ParseIntError;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use lobster_core::{
    BoxError, Builder, Ctx, Fate, Lobster, Marked, RunFailed, RunState, Settings, StepCtx, StepErrorExt, StepFailed,
    StepFailedKind, StepState, step, task,
};
use tokio::time::Instant;

fn engine() -> Builder {
    Lobster::open("memory:").settings(Settings::test())
}

async fn stop(lobster: Lobster) {
    lobster.shutdown(Duration::from_secs(5)).await;
}

/// An author's own errors.
#[derive(Debug, thiserror::Error)]
enum ShopError {
    #[error("shelf {0} is empty")]
    Empty(u32),
    #[error("not a number")]
    Number(#[from] ParseIntError),
    #[error("the shop says: {0}")]
    Marked(#[source] Marked),
    #[error(transparent)]
    Other(#[from] anyhow::Error),
    #[error("the step failed")]
    Step(#[from] StepFailed),
}

/// A failure of a step, as only a step can make one.
async fn seed() -> StepFailed {
    #[step]
    async fn seed(_ctx: &StepCtx) -> lobster_core::Result<()> {
        Err("empty").code("seed").fatal()?
    }
    seed(&Ctx::detached()).await.expect_err("it always fails")
}

/// The same steps and the same body with each error type: they compile, can be spawned, and say the same.
macro_rules! with_error {
    ($module:ident, $name:literal, $error:ty, $make:expr, $hand_on:expr) => {
        mod $module {
            use super::*;

            type Result<T> = std::result::Result<T, $error>;

            #[step]
            async fn works(_ctx: &StepCtx, words: &[&str], more: &Text<'_>) -> Result<usize> {
                tokio::task::yield_now().await;
                Ok(words.len() + more.0.len())
            }

            #[step(retry(attempts = 1))]
            async fn fails(_ctx: &StepCtx, shelf: &u32, mut lines: Vec<String>) -> Result<usize> {
                lines.push(shelf.to_string());
                tokio::task::yield_now().await;
                if lines.len() > 1 { Err($make) } else { Ok(lines.len()) }
            }

            #[step(irreversible, in_doubt = probe(found), retry(attempts = 3, first = 1ms))]
            async fn charge(ctx: &StepCtx, shelf: &u32, text: &str) -> Result<String> {
                tokio::task::yield_now().await;
                if ctx.attempt() == 1 { Err($make) } else { Ok(format!("{shelf}{text}")) }
            }

            async fn found(_ctx: &StepCtx, shelf: &u32, text: &str) -> Result<Fate<String>> {
                tokio::task::yield_now().await;
                if text == "?" { Err($make) } else { Ok(Fate::Happened(format!("{shelf}{text}"))) }
            }

            #[task(name = $name, steps = [works, fails, charge])]
            async fn body(ctx: Ctx, fail: bool) -> Result<String> {
                let (shelf, text) = (7, "x".to_owned());
                let words = [text.as_str(), "y"];
                let more = Text(&text);
                let one = async { works(&ctx, &words, &more).await.map_err($hand_on) };
                let (one, two) = tokio::join!(one, fails(&ctx, &shelf, vec![]));
                let two = two.map_err($hand_on)?;
                let receipt = charge(&ctx, &shelf, &text).await.map_err($hand_on)?;
                if fail {
                    fails(&ctx, &shelf, vec![text.clone()]).await.map_err($hand_on)?;
                }
                Ok(format!("{} {two} {receipt} {}", one?, words.len()))
            }

            #[task(name = "own")]
            async fn own(_ctx: Ctx) -> Result<()> {
                tokio::task::yield_now().await;
                Err($make)
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn is_an_error_of_steps_probes_and_tasks() {
                let mut detached = tokio::task::JoinSet::new();
                detached.spawn(body(Ctx::detached(), false));
                let lobster = engine().task(body).task(own).start().await.unwrap();
                let run = lobster.submit(body, false).await.unwrap();
                assert_eq!(run.outcome().await.unwrap(), "3 1 7x 2");
                let Ok(Ok(alone)) = detached.join_next().await.unwrap() else { panic!("the same without an engine") };
                assert_eq!(alone, "3 1 7x 2");

                let run = lobster.submit(body, true).await.unwrap();
                let RunFailed::Failed(of_run) = run.outcome().await.unwrap_err() else { panic!("it failed") };
                let view = lobster.show(run.id()).await.unwrap();
                let StepState::Failed(of_step) = &view.steps.last().unwrap().state else { panic!("{view:?}") };
                assert_eq!((of_step.kind(), of_step.step(), of_step.attempts()), (StepFailedKind::Exhausted, "fails#1", 1));
                assert!(of_step.message().contains("empty"), "{of_step}");
                if $name == "string" {
                    // A text is not the failure any more.
                    assert_eq!((of_run.kind(), of_run.message()), (StepFailedKind::Body, of_step.to_string().as_str()));
                } else {
                    assert_eq!(of_run, *of_step);
                }

                let run = lobster.submit(own, ()).await.unwrap();
                let RunFailed::Failed(of_run) = run.outcome().await.unwrap_err() else { panic!("it failed") };
                assert!(of_run.message().contains("empty"), "{of_run}");
                stop(lobster).await;
            }
        }
    };
}

/// A borrow inside a type.
struct Text<'a>(&'a str);

with_error!(anyhow_error, "anyhow", anyhow::Error, anyhow::anyhow!("shelf is empty"), anyhow::Error::from);
with_error!(boxed_error, "boxed", Box<dyn std::error::Error + Send + Sync>, "shelf is empty".into(), BoxError::from);
with_error!(step_failed, "step", StepFailed, seed().await, std::convert::identity);
with_error!(own_error, "own error", ShopError, ShopError::Empty(7), ShopError::from);
with_error!(string_error, "string", String, "shelf is empty".to_owned(), |failed: StepFailed| failed.to_string());

// ---- marks ----------------------------------------------------------------------------------------------------------------------

fn missing() -> io::Result<u32> {
    Err(io::Error::other("no shelf"))
}

#[step]
async fn marked_anyhow(_ctx: &StepCtx) -> anyhow::Result<u32> {
    let shelf = missing().code("no_shelf").data(&(7, "x")).fatal()?;
    Ok(shelf)
}

#[step]
async fn marked_anyhow_inside(_ctx: &StepCtx) -> anyhow::Result<u32> {
    missing().code("no_shelf").fatal().context("looking")?;
    missing().context("never reached")
}

#[step]
async fn marked_anyhow_outside(_ctx: &StepCtx) -> anyhow::Result<u32> {
    let shelf = missing().context("looking").code("no_shelf").fatal()?;
    Ok(shelf)
}

#[step]
async fn marked_boxed(_ctx: &StepCtx) -> lobster_core::Result<u32> {
    let shelf = missing().code("no_shelf").data(&(7, "x")).fatal()?;
    Ok(shelf)
}

#[step]
async fn marked_through_both(_ctx: &StepCtx) -> lobster_core::Result<u32> {
    fn inner() -> anyhow::Result<u32> {
        missing().code("no_shelf").fatal().context("inner")
    }
    Ok(inner().context("outer")?)
}

#[step]
async fn marked_itself(_ctx: &StepCtx) -> std::result::Result<u32, Marked> {
    missing().code("no_shelf").fatal()
}

#[step]
async fn marked_as_source(_ctx: &StepCtx) -> std::result::Result<u32, ShopError> {
    missing().code("no_shelf").fatal().map_err(ShopError::Marked)
}

#[step]
async fn marked_transparent(_ctx: &StepCtx) -> std::result::Result<u32, ShopError> {
    let shelf = missing().code("no_shelf").fatal().context("looking")?;
    Ok(shelf)
}

#[step]
async fn marked_own(_ctx: &StepCtx) -> anyhow::Result<u32> {
    let shelf: std::result::Result<u32, ShopError> = "x".parse().map_err(ShopError::from);
    Ok(shelf.code("no_shelf").fatal()?)
}

#[step]
async fn marked_text(_ctx: &StepCtx) -> anyhow::Result<u32> {
    Ok(Err("no shelf".to_owned()).code("no_shelf").fatal()?)
}

#[task]
async fn of_marks(ctx: Ctx) -> lobster_core::Result<()> {
    let all = [
        marked_anyhow(&ctx).await,
        marked_anyhow_inside(&ctx).await,
        marked_anyhow_outside(&ctx).await,
        marked_boxed(&ctx).await,
        marked_through_both(&ctx).await,
        marked_itself(&ctx).await,
        marked_as_source(&ctx).await,
        marked_transparent(&ctx).await,
        marked_own(&ctx).await,
        marked_text(&ctx).await,
    ];
    assert!(all.iter().all(Result::is_err), "{all:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_survive_a_question_mark_into_any_error() {
    let lobster = engine().task(of_marks).start().await.unwrap();
    let run = lobster.submit(of_marks, ()).await.unwrap();
    run.outcome().await.unwrap();
    let view = lobster.show(run.id()).await.unwrap();
    let failures: Vec<&StepFailed> = view
        .steps
        .iter()
        .map(|step| match &step.state {
            StepState::Failed(failed) => failed,
            other => panic!("{}: {other:?}", step.name),
        })
        .collect();
    for failed in &failures {
        let found = (failed.kind(), failed.code(), failed.attempts());
        assert_eq!(found, (StepFailedKind::Fatal, "no_shelf", 1), "{failed}");
    }
    let messages: Vec<&str> = failures.iter().map(|failed| failed.message()).collect();
    let expected = [
        "no shelf",
        "looking: no shelf",
        "looking: no shelf",
        "no shelf",
        "outer: inner: no shelf",
        "no shelf",
        "the shop says: no shelf",
        "looking: no shelf",
        "not a number: invalid digit found in string",
        "no shelf",
    ];
    assert_eq!(messages, expected);
    assert_eq!(failures[0].data(), Some((7, "x".to_owned())));
    assert_eq!(failures[3].data(), Some((7, "x".to_owned())));
    assert_eq!(failures[1].data::<u32>(), None);
    stop(lobster).await;
}

static TRIED: Mutex<Vec<Instant>> = Mutex::new(Vec::new());

#[step(retry(attempts = 3, first = 1ms, jitter = none))]
async fn patient(ctx: &StepCtx) -> anyhow::Result<u32> {
    TRIED.lock().expect("nothing panics under this lock").push(Instant::now());
    match ctx.attempt() {
        1 => missing().retry_after(Duration::from_millis(300)).context("busy"),
        2 => Ok(missing().retry_after(Duration::from_millis(50))?),
        attempt => Ok(attempt),
    }
}

#[step(irreversible, in_doubt = hold, retry(attempts = 3, first = 1ms, jitter = none))]
async fn refused_twice(ctx: &StepCtx, keys: Vec<String>) -> anyhow::Result<Vec<String>> {
    match ctx.attempt() {
        1 => missing().did_not_happen().context("connecting").map(|_| keys),
        2 => Ok(missing().did_not_happen().map(|_| keys)?),
        _ => Ok(vec![ctx.attempt().to_string(), ctx.in_doubt().to_string()]),
    }
}

#[step(irreversible, in_doubt = hold, retry(attempts = 3, first = 1ms))]
async fn refused_boxed(ctx: &StepCtx) -> lobster_core::Result<u32> {
    if ctx.attempt() < 3 {
        missing().did_not_happen()?;
    }
    Ok(ctx.attempt())
}

#[task]
async fn of_retries(ctx: Ctx) -> anyhow::Result<(u32, Vec<String>, u32)> {
    let patient = patient(&ctx).await?;
    let refused = refused_twice(&ctx, vec![]).await.context("refused")?;
    Ok((patient, refused, refused_boxed(&ctx).await?))
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_and_did_not_happen_survive_a_question_mark() {
    let lobster = engine().task(of_retries).start().await.unwrap();
    let run = lobster.submit(of_retries, ()).await.unwrap();
    let expected = (3, vec!["3".to_owned(), "false".to_owned()], 3);
    assert_eq!(run.outcome().await.unwrap(), expected);
    let tried = TRIED.lock().unwrap().clone();
    assert_eq!(tried.len(), 3);
    assert!(tried[1] - tried[0] >= Duration::from_millis(299), "{tried:?}");
    assert!(tried[2] - tried[1] >= Duration::from_millis(49), "{tried:?}");
    stop(lobster).await;
}

#[step(irreversible, in_doubt = hold, retry(attempts = 3, first = 1ms))]
async fn unmarked(_ctx: &StepCtx) -> anyhow::Result<u32> {
    missing().context("sending")
}

#[task]
async fn of_doubt(ctx: Ctx) -> anyhow::Result<u32> {
    Ok(unmarked(&ctx).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_without_a_mark_leaves_an_irreversible_step_in_doubt() {
    let lobster = engine().task(of_doubt).start().await.unwrap();
    let run = lobster.submit(of_doubt, ()).await.unwrap();
    while run.state().await.unwrap() != RunState::Held {
        tokio::task::yield_now().await;
    }
    let view = lobster.show(run.id()).await.unwrap();
    assert!(matches!(&view.steps[0].state, StepState::InDoubt(why) if why.contains("sending: no shelf")), "{view:?}");
    lobster.resolve(run.id(), view.steps[0].id, Fate::Happened(5)).await.unwrap();
    assert_eq!(run.outcome().await.unwrap(), 5);
    stop(lobster).await;
}

// ---- failures handed on ---------------------------------------------------------------------------------------------------------

#[task]
async fn by_anyhow(ctx: Ctx) -> anyhow::Result<u32> {
    Ok(marked_anyhow(&ctx).await?)
}

#[task]
async fn by_anyhow_with_context(ctx: Ctx) -> anyhow::Result<u32> {
    async fn deeper(ctx: &Ctx) -> anyhow::Result<u32> {
        marked_anyhow(ctx).await.context("deep")
    }
    deeper(&ctx).await.with_context(|| format!("run {}", ctx.run_id()))
}

#[task]
async fn by_box(ctx: Ctx) -> lobster_core::Result<u32> {
    Ok(marked_anyhow(&ctx).await?)
}

#[task]
async fn by_own_error(ctx: Ctx) -> std::result::Result<u32, ShopError> {
    Ok(marked_anyhow(&ctx).await?)
}

#[task]
async fn by_own_error_over_anyhow(ctx: Ctx) -> std::result::Result<u32, ShopError> {
    Ok(marked_anyhow(&ctx).await.context("deep")?)
}

#[task]
async fn as_it_is(ctx: Ctx) -> std::result::Result<u32, StepFailed> {
    marked_anyhow(&ctx).await
}

#[task]
async fn by_everything(ctx: Ctx) -> lobster_core::Result<u32> {
    async fn inner(ctx: &Ctx) -> std::result::Result<u32, ShopError> {
        Ok(marked_anyhow(ctx).await?)
    }
    Ok(inner(&ctx).await.context("outer")?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steps_failure_handed_on_is_the_failure_of_the_run() {
    let lobster = engine()
        .task(by_anyhow)
        .task(by_anyhow_with_context)
        .task(by_box)
        .task(by_own_error)
        .task(by_own_error_over_anyhow)
        .task(as_it_is)
        .task(by_everything)
        .start()
        .await
        .unwrap();
    let outcomes = [
        lobster.submit(by_anyhow, ()).await.unwrap().outcome().await,
        lobster.submit(by_anyhow_with_context, ()).await.unwrap().outcome().await,
        lobster.submit(by_box, ()).await.unwrap().outcome().await,
        lobster.submit(by_own_error, ()).await.unwrap().outcome().await,
        lobster.submit(by_own_error_over_anyhow, ()).await.unwrap().outcome().await,
        lobster.submit(as_it_is, ()).await.unwrap().outcome().await,
        lobster.submit(by_everything, ()).await.unwrap().outcome().await,
    ];
    for outcome in outcomes {
        let RunFailed::Failed(failed) = outcome.unwrap_err() else { panic!("it failed") };
        assert_eq!((failed.kind(), failed.code(), failed.step()), (StepFailedKind::Fatal, "no_shelf", "marked_anyhow#0"));
        assert_eq!((failed.message(), failed.attempts()), ("no shelf", 1));
        assert_eq!(failed.data(), Some((7, "x".to_owned())));
    }
    stop(lobster).await;
}

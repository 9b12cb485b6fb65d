//! The rule: what the macros write, a person can write, and a run cannot tell the difference.

#![deny(warnings, clippy::pedantic)]

use std::time::Duration;

use lobster_core::expand::{self, InDoubt, Retry, Spec, Task, TaskOptions};
use lobster_core::{Ctx, Fate, Lobster, Result, Settings, Step, StepCtx, StepFailed, TaskRun};

mod with_macros {
    use super::{Ctx, Fate, Result, StepCtx};
    use lobster_core::{step, task};

    #[step(retry(attempts = 2, first = 1ms), key = number)]
    pub async fn double(ctx: &StepCtx, number: &u32) -> Result<u32> {
        if ctx.attempt() == 1 { Err("again".into()) } else { Ok(number * 2) }
    }

    #[step(irreversible, in_doubt = probe(found))]
    pub async fn charge(ctx: &StepCtx, card: &str, cents: u32) -> Result<String> {
        if cents > 100 { Err("no answer".into()) } else { Ok(format!("{card} {cents} {}", ctx.attempt())) }
    }

    pub async fn found(_ctx: &StepCtx, card: &str, cents: &u32) -> Result<Fate<String>> {
        Ok(Fate::Happened(format!("{card} {cents} found")))
    }

    #[task(version = 2)]
    pub async fn checkout(ctx: Ctx, number: u32) -> Result<String> {
        let cents = double(&ctx, &number).await?;
        let one = charge(&ctx, "visa", cents).await?;
        Ok(format!("{one}, {}", charge(&ctx, "visa", cents * 100).await?))
    }
}

mod by_hand {
    use super::with_macros::found;
    use super::{Ctx, InDoubt, Result, Retry, Spec, Step, StepCtx, StepFailed, Task, TaskOptions, TaskRun, expand};

    pub fn double<'a>(ctx: &'a Ctx, number: &'a u32) -> Step<impl Future<Output = Result<u32, StepFailed>> + use<'a>> {
        const SPEC: Spec = Spec {
            name: "double",
            site: "by_hand::double",
            retry: Retry { attempts: 2, first_ms: 1, ..Retry::DEFAULT },
            keyed: true,
            ..Spec::ordinary()
        };
        let call = expand::call(ctx, &SPEC, Some(expand::key(number)));
        Step::new(async move {
            expand::inline(&call, async |ctx| if ctx.attempt() == 1 { Err("again") } else { Ok(number * 2) }).await
        })
    }

    pub fn charge(ctx: &Ctx, card: &str, cents: u32) -> Step<impl Future<Output = Result<String, StepFailed>> + use<>> {
        const SPEC: Spec = Spec { name: "charge", site: "by_hand::charge", ..Spec::irreversible(InDoubt::Probe) };
        let call = expand::call(ctx, &SPEC, None);
        let (card, asked) = (card.to_owned(), card.to_owned());
        let probe = expand::probe(move |ctx| {
            let card = asked.clone();
            async move { found(&ctx, &card, &cents).await }
        });
        let body = move |ctx: StepCtx| {
            let card = card.clone();
            async move { if cents > 100 { Err("no answer") } else { Ok(format!("{card} {cents} {}", ctx.attempt())) } }
        };
        Step::new(expand::spawned(call, body, Some(probe)))
    }

    pub enum Checkout {}

    impl Task for Checkout {
        const NAME: &'static str = "checkout";
        const VERSION: u32 = 2;
        type Input = u32;
        type Output = String;
        fn options() -> TaskOptions {
            TaskOptions::default()
        }
    }

    pub fn checkout(ctx: Ctx, number: u32) -> TaskRun<Checkout, impl Future<Output = Result<String>>> {
        TaskRun::new(async move {
            let cents = double(&ctx, &number).await?;
            let one = charge(&ctx, "visa", cents).await?;
            Ok(format!("{one}, {}", charge(&ctx, "visa", cents * 100).await?))
        })
    }
}

/// What is left of a run: its steps by name with what they gave, and its outcome.
async fn recorded(lobster: Lobster, id: lobster_core::RunId) -> Vec<String> {
    let view = lobster.show(id).await.expect("the run is there");
    lobster.shutdown(Duration::from_secs(5)).await;
    let summary = format!("{:?} {:?}", view.summary.task, view.outcome);
    view.steps.iter().map(|step| format!("{} {:?} {}", step.name, step.state, step.attempts)).chain([summary]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_macros_and_a_run_by_hand_leave_the_same_records() {
    let start = || Lobster::open("memory:").settings(Settings::test());
    let lobster = start().task(with_macros::checkout).start().await.unwrap();
    let run = lobster.submit(with_macros::checkout, 21).await.unwrap();
    assert_eq!(run.outcome().await.unwrap(), "visa 42 1, visa 4200 found");
    let with_macros = recorded(lobster, run.id()).await;

    let lobster = start().task(by_hand::checkout).start().await.unwrap();
    let run = lobster.submit(by_hand::checkout, 21).await.unwrap();
    run.outcome().await.unwrap();
    assert_eq!(recorded(lobster, run.id()).await, with_macros);
    assert_eq!(with_macros.len(), 4, "{with_macros:?}");
    assert!(with_macros[0].starts_with("double[21] "), "{with_macros:?}");
}

//! W5, W11: a process is killed in the middle of a run; its successor goes on.
//!
//! Invariant: time runs from before the successor's start to its word that a step's body that never ran has begun.

use super::{Stage, state};
use crate::{Result, meter::Meter, options::Child};
use lobster_core::{Ctx, Field, Lobster, State, StepCtx, step, task};
use std::{
    process::Stdio,
    sync::{Arc, OnceLock},
    time::Instant,
};
use tokio::io::{AsyncBufReadExt, BufReader};

const SAID: &str = "begun";

/// What a life is to do at the first step that the other did not do.
struct Life {
    child: Child,
    meter: Arc<Meter>,
}

static LIFE: OnceLock<Life> = OnceLock::new();

#[step]
async fn one(_ctx: &StepCtx, n: u32) -> lobster_core::Result<String> {
    step_of(n).await
}

/// How far a run with state is.
#[derive(State, Default)]
struct Place {
    next: Field<u32>,
}

/// The same, and it says in the state where it is.
#[step]
async fn placed(_ctx: &StepCtx, #[state] place: &mut Place, n: u32) -> lobster_core::Result<String> {
    place.next.set(n);
    step_of(n).await
}

async fn step_of(n: u32) -> lobster_core::Result<String> {
    let life = LIFE.get().ok_or("this process has no life")?;
    if n == life.child.done {
        if life.child.first {
            // A state's filling is a step too.
            life.meter.recorded(u64::from(n + u32::from(life.child.state))).await;
        }
        println!("{SAID}");
        if life.child.first {
            std::future::pending::<()>().await;
        }
    }
    Ok(format!("{n:098}"))
}

#[task]
async fn long(ctx: Ctx, steps: u32) -> lobster_core::Result<u32> {
    for n in 0..steps {
        one(&ctx, n).await?;
    }
    Ok(steps)
}

/// The same with a state: large, of many members, and one of them changes with every step.
#[task]
async fn long_with_state(ctx: Ctx, steps: u32) -> lobster_core::Result<u32> {
    state::fill_fields(&ctx).await?;
    for n in 0..steps {
        placed(&ctx, n).await?;
    }
    Ok(steps)
}

/// One life of the process.
pub async fn child(child: Child) -> Result<()> {
    let (steps, state) = (child.steps, child.state);
    let (tiers, meter) = child.place.open().await?;
    if LIFE.set(Life { child, meter }).is_err() {
        return Err("a process has one life".into());
    }
    let lobster = Lobster::open("").tiers(tiers).task(long).task(long_with_state).start().await?;
    if state {
        lobster.submit(long_with_state, steps).key("the run").await?.outcome().await?;
    } else {
        lobster.submit(long, steps).key("the run").await?.outcome().await?;
    }
    Ok(())
}

/// Milliseconds from process start to first new step; no synced statements are counted, they are in another process.
pub async fn round(stage: &Stage<'_>, done: u32, state: bool) -> Result<(f64, u64)> {
    let place = stage.site.place();
    let done = stage.options.scaled(done);
    let steps = 2 * done;
    let life = |first: bool| {
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        command.arg("child").args(place.words()).arg(steps.to_string()).arg(done.to_string());
        command.arg(if first { "first" } else { "second" }).arg(if state { "state" } else { "none" });
        command.stdout(Stdio::piped()).kill_on_drop(true);
        command.spawn()
    };
    let mut first = life(true)?;
    said(&mut first).await?;
    first.kill().await?;
    let began = Instant::now();
    let mut second = life(false)?;
    said(&mut second).await?;
    let took = began.elapsed();
    if !second.wait().await?.success() {
        return Err("the successor did not end the run".into());
    }
    Ok((took.as_secs_f64() * 1e3, 0))
}

async fn said(child: &mut tokio::process::Child) -> Result<()> {
    let stdout = child.stdout.take().ok_or("the child has no stdout")?;
    match BufReader::new(stdout).lines().next_line().await?.as_deref() {
        Some(SAID) => Ok(()),
        other => Err(format!("the child said {other:?}").into()),
    }
}

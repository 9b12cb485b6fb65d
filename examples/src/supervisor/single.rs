//! The supervisor of a single working process: runs it, kills it when the schedule says so, starts it again at once. What it knows of
//! the job is what the working process says; it does not know lobster.
//!
//! Invariant: a kill is due when the working process says that so many steps are done, and before it begins the one that is held.

use std::collections::VecDeque;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::future::LocalBoxFuture;
use tokio::sync::watch;

use super::End;
use super::interrupts::{Interrupt, Interrupts};
use super::worker_process::{self, WorkerProcess};
use crate::chaos::{self, KillPoint};
use crate::progress::{View, Voice};

/// How long a working process may take to drain; then it is killed, which loses nothing either.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// Deaths in a row that nobody asked for and after which nothing new had been done.
const IDLE_DEATHS_MAX: u32 = 5;

/// What is to be done.
pub struct Job<'a> {
    /// What people see counted.
    pub unit: &'static str,
    /// How many of these there are.
    pub total: u64,
    /// How many of these a step does at once, as far as there are so many.
    pub step: u64,
    /// Steps that are done before it begins.
    pub done: u64,
    /// How many times to kill.
    pub chaos: u64,
    /// What the moments are drawn with.
    pub seed: u64,
    /// How a working process is started that begins no step after so many.
    pub work: &'a dyn Fn(Option<u64>) -> Command,
    /// Notes that it was killed.
    pub killed: &'a dyn Fn() -> LocalBoxFuture<'a, anyhow::Result<()>>,
    /// What else there is to be told of the job, in a few words.
    pub words: &'a dyn Fn() -> anyhow::Result<String>,
}

/// Does the job.
///
/// # Errors
/// The working process cannot be started, or what happens cannot be noted.
pub async fn supervise(job: &Job<'_>) -> anyhow::Result<End> {
    let mut interrupts = Interrupts::listen()?;
    let finished = watch::Sender::new(job.done);
    let mut view = View::new(job.total, job.unit);
    let life = Life { job, finished: &finished, voice: view.voice() };
    let began = Instant::now();
    let end = {
        let mut work = std::pin::pin!(life.to_the_end(plan(job), &mut interrupts));
        let mut look = tokio::time::interval(view.every());
        loop {
            tokio::select! {
                end = &mut work => break end,
                _ = look.tick() => view.show(life.done(), &life.text(began)?),
            }
        }
    };
    view.end(life.done(), &life.text(began)?);
    end
}

/// The kills of this job, as counts of finished steps.
fn plan(job: &Job<'_>) -> VecDeque<KillPoint> {
    let steps = job.total.div_ceil(job.step).saturating_sub(job.done);
    let points = chaos::schedule(job.chaos, job.seed, steps);
    if (points.len() as u64) < job.chaos {
        eprintln!("{steps} steps are still to do, which leaves room for {} kills", points.len());
    }
    points.into_iter().map(|point| KillPoint { after: job.done + point.after, hold: job.done + point.hold, ..point }).collect()
}

/// What it takes to drive the working process.
struct Life<'a, 'j> {
    job: &'a Job<'j>,
    /// Steps that are done.
    finished: &'a watch::Sender<u64>,
    voice: Voice,
}

impl Life<'_, '_> {
    /// How many of what people see counted are in so many steps.
    fn of(&self, steps: u64) -> u64 {
        (steps * self.job.step).min(self.job.total)
    }

    fn done(&self) -> u64 {
        self.of(*self.finished.borrow())
    }

    /// The rate is that of this job, not of the ones before on the same records.
    fn text(&self, began: Instant) -> anyhow::Result<String> {
        let now = self.done() - self.of(self.job.done);
        let per_second = u128::from(now) * 1000 / began.elapsed().as_millis().max(1);
        Ok(format!("{}, {per_second} {}/s", (self.job.words)()?, self.job.unit))
    }

    /// One life of the working process after the other, until the job is done or cannot go on.
    async fn to_the_end(&self, mut kills: VecDeque<KillPoint>, interrupts: &mut Interrupts) -> anyhow::Result<End> {
        let (mut idle_deaths, mut before) = (0, *self.finished.borrow());
        loop {
            let kill = kills.front().copied();
            let mut worker = WorkerProcess::start((self.job.work)(kill.map(|kill| kill.hold)), self.finished)?;
            let status = tokio::select! {
                () = self.due(kill) => {
                    let status = worker.kill().await?;
                    if worker_process::was_killed(status) {
                        (self.job.killed)().await?;
                        kills.pop_front();
                        continue;
                    }
                    status
                }
                status = worker.ended() => status?,
                interrupt = interrupts.next() => return self.drain(worker, interrupt?, interrupts).await,
            };
            if let Some(end) = self.ended(status, &mut idle_deaths, &mut before) {
                return Ok(end);
            }
        }
    }

    /// Waits until a kill is due.
    async fn due(&self, kill: Option<KillPoint>) {
        match kill {
            Some(KillPoint { after, .. }) => {
                let mut finished = self.finished.subscribe();
                let _reached = finished.wait_for(|finished| *finished >= after).await;
            }
            None => std::future::pending().await,
        }
    }

    /// What the end of a process means that nobody killed here; `None`: the next one is to be started.
    fn ended(&self, status: ExitStatus, idle_deaths: &mut u32, before: &mut u64) -> Option<End> {
        if status.success() {
            return Some(End::Done);
        }
        let now = *self.finished.borrow();
        *idle_deaths = if now > *before { 0 } else { *idle_deaths + 1 };
        *before = now;
        let words = format!("the working process ended: {status}");
        if !worker_process::was_killed(status) || *idle_deaths >= IDLE_DEATHS_MAX {
            return Some(End::Failed(words));
        }
        self.voice.say(&format!("{words}; it is started again"));
        None
    }

    /// Asks the worker to stop; a second interrupt, or too long a wait, kills it.
    async fn drain(&self, mut worker: WorkerProcess, interrupt: Interrupt, more: &mut Interrupts) -> anyhow::Result<End> {
        self.voice.say(&format!("{}: what has begun is brought to a safe point; run it again to go on", interrupt.name()));
        let drained = tokio::select! {
            status = worker.drain() => status.map(|_| true)?,
            () = tokio::time::sleep(DRAIN_MAX) => false,
            second = more.next() => second.map(|_| false)?,
        };
        if !drained {
            worker.kill().await.context("the working process could not be killed")?;
        }
        Ok(End::Interrupted(interrupt.exit_code()))
    }
}

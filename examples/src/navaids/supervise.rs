//! The supervisor of an import: runs the working process, kills it when the schedule says so, starts it again at once. What it
//! knows of the import is what the working process says and the tally has; it does not know lobster.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::watch;

use super::rows::PAGE;
use super::tally::{Counts, Fact, Tally};
use crate::chaos::{self, KillPoint};
use crate::progress::{View, Voice};
use crate::supervisor::End;
use crate::supervisor::interrupts::{Interrupt, Interrupts};
use crate::supervisor::worker_process::{self, WorkerProcess};

/// How long a working process may take to drain; then it is killed, which loses nothing either.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// Deaths in a row that nobody asked for and after which nothing new had been done.
const IDLE_DEATHS_MAX: u32 = 5;

/// What is to be done.
pub struct Job<'a> {
    /// The file of the tally; the import has its name there.
    pub tally: PathBuf,
    /// Rows of the import.
    pub rows: usize,
    /// How many times to kill.
    pub chaos: u64,
    /// What the moments are drawn with.
    pub seed: u64,
    /// How a working process is started that begins no page after this one.
    pub work: &'a (dyn Fn(Option<u64>) -> Command + Sync),
}

/// Does the job.
///
/// # Errors
/// The working process cannot be started, or the tally cannot be read or written.
pub async fn supervise(job: &Job<'_>) -> anyhow::Result<End> {
    let mut interrupts = Interrupts::listen()?;
    let counts = Counts::read(&job.tally)?.unwrap_or_default();
    let begun = counts.begun.last_key_value().map_or(0, |(page, _)| *page);
    let finished = watch::Sender::new(begun);
    let mut view = View::new(job.rows as u64, "rows");
    let life = Life { job, tally: &Tally::open(&job.tally)?, finished: &finished, voice: view.voice() };
    let began = (Instant::now(), rows(job, begun));
    let end = {
        let mut work = std::pin::pin!(life.to_the_end(plan(job, begun), &mut interrupts));
        let mut look = tokio::time::interval(view.every());
        loop {
            tokio::select! {
                end = &mut work => break end,
                _ = look.tick() => {
                    let done = life.rows();
                    view.show(done, &life.text(done, began)?);
                }
            }
        }
    };
    let done = life.rows();
    view.end(done, &life.text(done, began)?);
    end
}

/// So many rows are in so many pages.
fn rows(job: &Job<'_>, pages: u64) -> u64 {
    (pages * PAGE as u64).min(job.rows as u64)
}

/// The kills of this job, as counts of finished pages, after so many pages.
fn plan(job: &Job<'_>, begun: u64) -> VecDeque<KillPoint> {
    let pages = (job.rows.div_ceil(PAGE) as u64).saturating_sub(begun);
    let points = chaos::schedule(job.chaos, job.seed, pages);
    if (points.len() as u64) < job.chaos {
        eprintln!("{pages} pages are still to do, which leaves room for {} kills", points.len());
    }
    points.into_iter().map(|point| KillPoint { after: begun + point.after, hold: begun + point.hold, ..point }).collect()
}

/// What it takes to drive the working process.
struct Life<'a> {
    job: &'a Job<'a>,
    tally: &'a Tally,
    /// Pages that are done when the one at work begins.
    finished: &'a watch::Sender<u64>,
    voice: Voice,
}

impl Life<'_> {
    /// Rows that are done.
    fn rows(&self) -> u64 {
        let pages = *self.finished.borrow();
        rows(self.job, pages)
    }

    /// The rate is that of this job, not of the ones before on the same files.
    fn text(&self, done: u64, (began, before): (Instant, u64)) -> anyhow::Result<String> {
        let counts = Counts::read(&self.job.tally)?.unwrap_or_default();
        let per_second = u128::from(done - before) * 1000 / began.elapsed().as_millis().max(1);
        Ok(format!("{} KiB written, {} kills, {per_second} rows/s", counts.written / 1024, counts.kills))
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
                        self.tally.add(&Fact::Kill)?;
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
        self.voice.say(&format!("{}: the page at work is brought to its end; run it again to go on", interrupt.name()));
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

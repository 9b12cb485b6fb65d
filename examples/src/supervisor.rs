//! The supervisor: finds or starts the ledger, runs the working process, kills it when the schedule says so and starts it
//! again at once, and reads at the end what really happened. It never touches lobster itself, and never kills the ledger.

pub(crate) mod interrupts;
pub(crate) mod worker_process;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::watch;

use crate::chaos::{self, KillPoint};
use crate::figures::{self, Figures};
use crate::ledger::wire::{Killed, Started, Watch};
use crate::ledger::{self, Client, Kind, wall_ms};
use crate::options::Role;
use crate::progress::{Progress, Voice};
use interrupts::{Interrupt, Interrupts};
use worker_process::WorkerProcess;

/// How long a working process may take to drain; then it is killed, which loses nothing either.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// Deaths in a row that nobody asked for and after which nothing new had been executed.
const IDLE_DEATHS_MAX: u32 = 5;
/// A ledger that is silent for so long is looked after.
const LEDGER_SILENT: Duration = Duration::from_secs(1);

/// How long to wait for the end of a ledger that was asked to.
const LEDGER_END: Duration = Duration::from_secs(1);

/// How the parts of the example are started: by role, with everything they need in arguments and environment.
pub type Programs = Arc<dyn Fn(Role) -> Command + Send + Sync>;

/// What is to be done.
pub struct Job {
    /// The ledger's file.
    pub ledger: PathBuf,
    /// The orders.
    pub orders: BTreeSet<u32>,
    /// How many times to kill.
    pub chaos: u64,
    /// What the moments are drawn with.
    pub seed: u64,
}

/// How the job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The working process says that every run has ended.
    Done,
    /// Somebody asked for it; the exit code to answer with.
    Interrupted(u8),
    /// The working process gave up.
    Failed(String),
}

/// How the job ended, and what really happened.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// How it ended.
    pub end: End,
    /// What happened.
    pub figures: Figures,
}

impl Verdict {
    /// 0 only for a job that was done with nothing doubled and nothing lost.
    pub fn exit_code(&self) -> u8 {
        match self.end {
            End::Interrupted(code) => code,
            End::Done if self.figures.are_good() => 0,
            End::Done | End::Failed(_) => 1,
        }
    }
}

/// Does the job.
///
/// # Errors
/// The parts cannot be started, or the ledger's file cannot be read.
pub async fn supervise(job: &Job, programs: &Programs) -> anyhow::Result<Verdict> {
    let mut interrupts = Interrupts::listen()?;
    let ledger_process = ledger::find_or_start(&job.ledger, || programs(Role::Ledger)).await?;
    let client = Client::open(&job.ledger, 1);
    let kills = plan(job, &client).await?;

    let finished = watch::Sender::new(0);
    let view = Progress::new(job.orders.len());
    let voice = view.voice();
    let looking = tokio::spawn(look_on(view, job.ledger.clone(), client.clone(), Arc::clone(programs), finished.subscribe()));
    let end = Drive { client: &client, programs, finished: &finished, voice: &voice }.to_the_end(kills, &mut interrupts).await;
    looking.abort();
    voice.end();

    let end = end?;
    let succeeded = outcomes(programs).await?;
    let figures = Figures::count(&figures::read_tables(&job.ledger).await?, &job.orders, &succeeded);
    client.stop().await?;
    if let Some(mut process) = ledger_process {
        // Somebody else may still be connected; then it stays until they leave.
        let _still_needed = tokio::time::timeout(LEDGER_END, process.wait()).await;
    }
    Ok(Verdict { end, figures })
}

/// The kills of this job, as counts of the ledger.
async fn plan(job: &Job, client: &Client) -> anyhow::Result<VecDeque<KillPoint>> {
    if job.chaos == 0 {
        return Ok(VecDeque::new());
    }
    let executed = client.counts().await?.executed;
    let effects = figures::read_tables(&job.ledger).await?.effects;
    let done: BTreeSet<(u32, Kind)> =
        effects.iter().filter(|effect| job.orders.contains(&effect.order)).map(|effect| (effect.order, effect.kind)).collect();
    let calls = (job.orders.len() * Kind::ALL.len() - done.len()) as u64;
    let points = chaos::schedule(job.chaos, job.seed, calls);
    if (points.len() as u64) < job.chaos {
        eprintln!("{calls} calls are still to do, which leaves room for {} kills", points.len());
    }
    Ok(points.into_iter().map(|point| KillPoint { after: executed + point.after, hold: executed + point.hold }).collect())
}

/// What it takes to drive the working process.
struct Drive<'a> {
    client: &'a Client,
    programs: &'a Programs,
    finished: &'a watch::Sender<u64>,
    voice: &'a Voice,
}

impl Drive<'_> {
    /// One life of the working process after the other, until the job is done or cannot go on.
    async fn to_the_end(&self, mut kills: VecDeque<KillPoint>, interrupts: &mut Interrupts) -> anyhow::Result<End> {
        let mut after_kill = false;
        let mut idle_deaths = 0;
        let mut executed = self.client.counts().await?.executed;
        loop {
            let mut worker = self.start(after_kill).await?;
            let life = live(self.client, &mut worker, kills.front().copied(), interrupts).await?;
            after_kill = matches!(life, Life::Due);
            match life {
                Life::Due => {
                    let at_ms = wall_ms();
                    if worker.kill().await?.success() {
                        self.client.release().await?;
                        return Ok(End::Done);
                    }
                    kills.pop_front();
                    let hold = kills.front().map(|next| next.hold);
                    self.client.killed(Killed { pid: worker.pid(), at_ms, hold }).await?;
                }
                Life::Interrupted(interrupt) => return self.drain(worker, interrupt, interrupts).await,
                Life::Ended(status) => {
                    self.client.release().await?;
                    if status.success() {
                        return Ok(End::Done);
                    }
                    let executed_now = self.client.counts().await?.executed;
                    idle_deaths = if executed_now > executed { 0 } else { idle_deaths + 1 };
                    executed = executed_now;
                    let words = format!("the working process {} ended: {status}", worker.pid());
                    if !worker_process::was_killed(status) || idle_deaths >= IDLE_DEATHS_MAX {
                        return Ok(End::Failed(words));
                    }
                    self.voice.say(&format!("{words}; it is started again"));
                }
            }
        }
    }

    async fn start(&self, after_kill: bool) -> anyhow::Result<WorkerProcess> {
        let at_ms = wall_ms();
        let worker = WorkerProcess::start((self.programs)(Role::Work), self.finished)?;
        self.client.started(Started { pid: worker.pid(), at_ms, after_kill }).await?;
        Ok(worker)
    }

    /// Asks the worker to stop; a second interrupt, or too long a wait, kills it.
    async fn drain(&self, mut worker: WorkerProcess, interrupt: Interrupt, more: &mut Interrupts) -> anyhow::Result<End> {
        self.voice.say(&format!("{}: what has begun is brought to a safe point; run it again to go on", interrupt.name()));
        self.client.release().await?;
        let drained = tokio::select! {
            status = worker.drain() => status.map(|_| true)?,
            () = tokio::time::sleep(DRAIN_MAX) => false,
            second = more.next() => second.map(|_| false)?,
        };
        if !drained {
            worker.kill().await?;
        }
        Ok(End::Interrupted(interrupt.exit_code()))
    }
}

/// What ended the wait for a working process.
enum Life {
    /// It is to be killed now.
    Due,
    /// It ended by itself.
    Ended(std::process::ExitStatus),
    /// Somebody asked the whole job to end.
    Interrupted(Interrupt),
}

async fn live(
    client: &Client,
    worker: &mut WorkerProcess,
    kill: Option<KillPoint>,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Life> {
    let pid = worker.pid();
    let due = async {
        match kill {
            Some(KillPoint { after, hold }) => client.reached(Watch { executed: after, hold, pid }).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        reached = due => reached.map(|()| Life::Due).context("the ledger was to say when the kill is due"),
        status = worker.ended() => Ok(Life::Ended(status?)),
        interrupt = interrupts.next() => Ok(Life::Interrupted(interrupt?)),
    }
}

/// Shows the progress, and starts the ledger again should it die.
async fn look_on(mut progress: Progress, file: PathBuf, client: Client, programs: Programs, finished: watch::Receiver<u64>) {
    let voice = progress.voice();
    loop {
        tokio::time::sleep(progress.every()).await;
        match tokio::time::timeout(LEDGER_SILENT, client.counts()).await {
            Ok(Ok(counts)) => {
                let finished = *finished.borrow();
                progress.show(finished, counts);
            }
            Ok(Err(_)) | Err(_) => {
                voice.say("the ledger is silent, it is looked after");
                if let Err(error) = ledger::find_or_start(&file, || programs(Role::Ledger)).await {
                    voice.say(&format!("{error:#}"));
                }
            }
        }
    }
}

/// The orders whose run has succeeded, as lobster's records say: one line `succeeded <order>` each.
async fn outcomes(programs: &Programs) -> anyhow::Result<BTreeSet<u32>> {
    let mut report = tokio::process::Command::from(programs(Role::Report));
    let output =
        report.stdin(Stdio::null()).stderr(Stdio::inherit()).output().await.context("the report could not be started")?;
    if !output.status.success() {
        bail!("the report on the run records ended: {}", output.status);
    }
    let text = String::from_utf8(output.stdout).context("the report on the run records")?;
    let orders = text.lines().filter_map(|line| line.strip_prefix("succeeded "));
    orders.map(|order| order.parse().with_context(|| format!("the report names an order `{order}`"))).collect()
}

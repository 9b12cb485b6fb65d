//! The supervisor: finds or starts the ledger, runs the working processes, kills one when the schedule says so and starts it
//! again at once, and reads at the end what really happened. It never touches lobster itself, and never kills the ledger.

mod drive;
mod interrupts;
pub mod single;
mod worker_process;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::watch;

use crate::chaos::{self, KillPoint};
use crate::figures::{self, Figures};
use crate::ledger::{self, Client, Kind};
use crate::options::Role;
use crate::progress::Progress;
use drive::Drive;
use interrupts::Interrupts;

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
    /// How many working processes.
    pub nodes: usize,
    /// How many times to kill.
    pub chaos: u64,
    /// What the moments are drawn with.
    pub seed: u64,
}

/// How the job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The working processes say that every run has ended.
    Done,
    /// Somebody asked for it; the exit code to answer with.
    Interrupted(u8),
    /// A working process gave up.
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
    let drive = Drive { client: &client, programs, finished: &finished, voice: &voice };
    let end = drive.to_the_end(job.nodes, kills, &mut interrupts).await;
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
    Ok(points
        .into_iter()
        .map(|point| KillPoint { after: executed + point.after, hold: executed + point.hold, ..point })
        .collect())
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

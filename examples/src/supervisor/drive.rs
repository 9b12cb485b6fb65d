//! The lives of the working processes, until the job is done or cannot go on.
//!
//! Invariant: a process that was killed here, or that died, is started again at once; one that ended by itself is not.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::{join_all, select_all};
use tokio::sync::watch;

use super::interrupts::{Interrupt, Interrupts};
use super::worker_process::{WorkerProcess, was_killed};
use super::{End, Programs};
use crate::chaos::KillPoint;
use crate::ledger::wire::{Killed, Started, Watch};
use crate::ledger::{Client, wall_ms};
use crate::options::Role;
use crate::progress::Voice;

/// How long working processes may take to drain; then they are killed, which loses nothing either.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// Deaths in a row that nobody asked for and after which nothing new had been executed.
const IDLE_DEATHS_MAX: u32 = 5;

/// What it takes to drive them.
pub(super) struct Drive<'a> {
    pub(super) client: &'a Client,
    pub(super) programs: &'a Programs,
    pub(super) finished: &'a watch::Sender<u64>,
    pub(super) voice: &'a Voice,
}

/// What a wait for the working processes ends with.
enum Event {
    /// This process is to be killed now.
    Due(u32),
    /// The one at this place ended by itself.
    Ended(usize, ExitStatus),
    /// Somebody asked the whole job to end.
    Interrupted(Interrupt),
}

impl Drive<'_> {
    /// One life after the other in each of the places, until all have ended by themselves.
    pub(super) async fn to_the_end(
        &self,
        nodes: usize,
        mut kills: VecDeque<KillPoint>,
        interrupts: &mut Interrupts,
    ) -> anyhow::Result<End> {
        let mut workers = Vec::new();
        for _ in 0..nodes {
            workers.push(self.start(false).await?);
        }
        let mut deaths = Deaths { executed: self.client.counts().await?.executed, idle: 0 };
        while !workers.is_empty() {
            match self.next(&mut workers, kills.front().copied(), interrupts).await? {
                Event::Due(pid) => {
                    let place = workers.iter().position(|worker| worker.pid() == pid).context("a kill is due of a stranger")?;
                    let at_ms = wall_ms();
                    if workers[place].kill().await?.success() {
                        self.leaves(&mut workers, place).await?;
                        continue;
                    }
                    kills.pop_front();
                    let hold = kills.front().map(|next| next.hold);
                    self.client.killed(Killed { pid, at_ms, hold }).await?;
                    workers[place] = self.start(true).await?;
                }
                Event::Ended(place, status) if status.success() => self.leaves(&mut workers, place).await?,
                Event::Ended(place, status) => {
                    self.client.release().await?;
                    let words = format!("the working process {} ended: {status}", workers[place].pid());
                    deaths.count(self.client.counts().await?.executed);
                    if !was_killed(status) || deaths.idle >= IDLE_DEATHS_MAX {
                        workers.swap_remove(place);
                        self.drain(workers, interrupts).await?;
                        return Ok(End::Failed(words));
                    }
                    self.voice.say(&format!("{words}; it is started again"));
                    workers[place] = self.start(false).await?;
                }
                Event::Interrupted(interrupt) => {
                    let name = interrupt.name();
                    self.voice.say(&format!("{name}: what has begun is brought to a safe point; run it again to go on"));
                    self.client.release().await?;
                    self.drain(workers, interrupts).await?;
                    return Ok(End::Interrupted(interrupt.exit_code()));
                }
            }
        }
        Ok(End::Done)
    }

    async fn start(&self, after_kill: bool) -> anyhow::Result<WorkerProcess> {
        let at_ms = wall_ms();
        let worker = WorkerProcess::start((self.programs)(Role::Work), self.finished)?;
        self.client.started(Started { pid: worker.pid(), at_ms, after_kill }).await?;
        Ok(worker)
    }

    /// All runs have ended, as this process says: nobody is to be killed any more.
    async fn leaves(&self, workers: &mut Vec<WorkerProcess>, place: usize) -> anyhow::Result<()> {
        workers.swap_remove(place);
        Ok(self.client.release().await?)
    }

    async fn next(
        &self,
        workers: &mut [WorkerProcess],
        kill: Option<KillPoint>,
        interrupts: &mut Interrupts,
    ) -> anyhow::Result<Event> {
        let mut pids: Vec<u32> = workers.iter().map(WorkerProcess::pid).collect();
        let due = async {
            match kill {
                Some(KillPoint { after, hold, draw }) => {
                    let victim = draw % pids.len();
                    pids.rotate_left(victim);
                    self.client.reached(Watch { executed: after, hold, pids }).await
                }
                None => std::future::pending().await,
            }
        };
        let ended = select_all(workers.iter_mut().map(|worker| Box::pin(worker.ended())));
        tokio::select! {
            pid = due => pid.map(Event::Due).context("the ledger was to say when the kill is due"),
            (status, place, _others) = ended => Ok(Event::Ended(place, status?)),
            interrupt = interrupts.next() => Ok(Event::Interrupted(interrupt?)),
        }
    }

    /// Asks the workers to stop; an interrupt, or too long a wait, kills those that have not.
    async fn drain(&self, mut workers: Vec<WorkerProcess>, interrupts: &mut Interrupts) -> anyhow::Result<()> {
        let drained = tokio::select! {
            _ended = join_all(workers.iter_mut().map(WorkerProcess::drain)) => true,
            () = tokio::time::sleep(DRAIN_MAX) => false,
            second = interrupts.next() => second.map(|_| false)?,
        };
        if !drained {
            for worker in &mut workers {
                worker.kill().await?;
            }
        }
        Ok(())
    }
}

/// Deaths that nobody asked for.
struct Deaths {
    /// Calls executed when one was last counted.
    executed: u64,
    /// In a row, with nothing executed between them.
    idle: u32,
}

impl Deaths {
    fn count(&mut self, executed: u64) {
        self.idle = if executed > self.executed { 0 } else { self.idle + 1 };
        self.executed = executed;
    }
}

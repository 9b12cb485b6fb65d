//! The working process, seen from its supervisor. It is asked to stop by closing its standard input, so that it also
//! stops when the supervisor dies; what it prints as `finished <n>` is its progress.

use std::process::{Command, ExitStatus, Stdio};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::watch;

pub struct WorkerProcess {
    child: Child,
    pid: u32,
    /// Taken out of `child`, whose `wait` would close it, which means: stop.
    input: Option<ChildStdin>,
}

impl WorkerProcess {
    /// Starts it in a process group of its own: Ctrl-C is for the supervisor, which passes it on as a request to stop.
    pub fn start(mut command: Command, finished: &watch::Sender<u64>) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = tokio::process::Command::from(command).spawn().context("the working process could not be started")?;
        let pid = child.id().context("the working process has no id, it ended at once")?;
        let input = child.stdin.take();
        if let Some(output) = child.stdout.take() {
            tokio::spawn(follow(output, finished.clone()));
        }
        Ok(Self { child, pid, input })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks it to stop and waits for its end.
    pub async fn drain(&mut self) -> std::io::Result<ExitStatus> {
        self.input = None;
        self.child.wait().await
    }

    /// SIGKILL to this process only; the answer says how it really ended.
    pub async fn kill(&mut self) -> std::io::Result<ExitStatus> {
        if self.child.try_wait()?.is_none() {
            self.child.start_kill()?;
        }
        self.child.wait().await
    }
}

/// Whether a signal ended it, rather than itself.
pub fn was_killed(status: ExitStatus) -> bool {
    #[cfg(unix)]
    let by_signal = std::os::unix::process::ExitStatusExt::signal(&status).is_some();
    #[cfg(not(unix))]
    let by_signal = false;
    by_signal
}

/// A process after a kill counts up again what was finished before: the view only rises.
async fn follow(output: ChildStdout, finished: watch::Sender<u64>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(count) = line.strip_prefix("finished ").and_then(|count| count.parse::<u64>().ok()) {
            finished.send_if_modified(|finished| std::mem::replace(finished, count.max(*finished)) < count);
        }
    }
}

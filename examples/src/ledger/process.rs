//! Finding the ledger of a file, and starting one if none is alive.
//! It belongs to nobody: not in the starter's process group, so that neither kills nor Ctrl-C of the job reach it.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio_util::codec::{FramedRead, LinesCodec};

use super::{beside, client};

/// How long a ledger may take to say hello.
const GREETING: Duration = Duration::from_secs(2);
/// How long a new ledger may take to come up.
const START: Duration = Duration::from_secs(15);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// A greeted connection to the ledger of this file, if one is alive.
pub(super) async fn connect(file: &Path) -> Option<(FramedRead<OwnedReadHalf, LinesCodec>, OwnedWriteHalf)> {
    let port = tokio::fs::read_to_string(beside(file, "port")).await.ok()?.trim().parse::<u16>().ok()?;
    tokio::time::timeout(GREETING, async {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
        client::greet(stream, file).await
    })
    .await
    .ok()
    .flatten()
}

/// Whether a ledger is alive on this file.
pub async fn find(file: &Path) -> bool {
    connect(file).await.is_some()
}

/// Makes sure that a ledger is alive on `file`: reuses one, or starts `command` and waits for it to come up. The answer is
/// the process that was started, if any; dropping it leaves the ledger alone.
///
/// # Errors
/// It cannot be started, or does not come up; its own words are in `<file>.log`.
pub async fn find_or_start(file: &Path, command: impl Fn() -> std::process::Command) -> anyhow::Result<Option<Child>> {
    if find(file).await {
        return Ok(None);
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("the ledger's folder {}", folder.display()))?;
    }
    let log = beside(file, "log");
    let deadline = tokio::time::Instant::now() + START;
    let mut child = start(command(), &log)?;
    while !find(file).await {
        if tokio::time::Instant::now() > deadline {
            bail!("the ledger of {} did not come up, see {}", file.display(), log.display());
        }
        // It gives up when another one holds the file, which may be about to come up or to end.
        if child.try_wait()?.is_some_and(|status| !status.success()) {
            tokio::time::sleep(LOOK * 20).await;
            if !find(file).await {
                child = start(command(), &log)?;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(Some(child))
}

fn start(mut command: std::process::Command, log: &Path) -> anyhow::Result<Child> {
    let words = File::create(log).with_context(|| format!("the ledger's log {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Command::from(command).spawn().context("the ledger could not be started")
}

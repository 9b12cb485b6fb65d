//! The ledger's door: one lock per file, one loopback port, one reader and one writer per connection.
//! The port is published only when the file is locked and open, and taken back before either is given up.

use std::fs::{File, TryLockError};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::beside;
use super::clerk::{AnswerTo, Clerk, ConnectionId, Job};
use super::wire::{OPEN_ASKS_MAX, Question, lines};

/// A ledger that nobody has been connected to for so long ends itself.
pub const IDLE_MAX: Duration = Duration::from_secs(180);
/// How long a new ledger waits for the lock of one that is just ending.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How long an ending ledger waits for its last answers to be read.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Questions between the connections and the clerk.
const JOBS_MAX: usize = 4096;

/// Serves the ledger in `file` until it is told to stop, or nobody has been connected for `idle`.
///
/// # Errors
/// Another ledger serves this file; or the file cannot be read or written any more. Nothing that was answered is lost.
pub async fn serve(file: &Path, idle: Duration) -> anyhow::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("the ledger's folder {}", folder.display()))?;
    }
    let _lock = lock(file).await?;
    let file = std::path::absolute(file)?;
    let clerk = Clerk::open(&file).await.with_context(|| format!("the ledger's file {}", file.display()))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("a port for the ledger")?;
    let port_file = beside(&file, "port");
    publish(&port_file, listener.local_addr()?.port())?;

    let (jobs, inbox) = mpsc::channel(JOBS_MAX);
    // Each ends the other: the clerk by dropping its inbox, the door by letting the last sender of jobs go.
    let (worked, accepted) = tokio::join!(clerk.work(inbox), accept(&listener, jobs, idle));
    std::fs::remove_file(&port_file).with_context(|| format!("{} could not be removed", port_file.display()))?;
    worked.context("the ledger could not write").and(accepted)
}

async fn lock(file: &Path) -> anyhow::Result<File> {
    let path = beside(file, "lock");
    let lock = File::create(&path).with_context(|| format!("the lock {}", path.display()))?;
    let deadline = tokio::time::Instant::now() + LOCK_WAIT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(TryLockError::WouldBlock) => bail!("another ledger serves {}", file.display()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("the lock {}", path.display())),
        }
    }
}

/// The port appears whole or not at all.
fn publish(port_file: &Path, port: u16) -> anyhow::Result<()> {
    let draft = beside(port_file, "new");
    std::fs::write(&draft, format!("{port}\n")).with_context(|| format!("{} could not be written", draft.display()))?;
    std::fs::rename(&draft, port_file).with_context(|| format!("{} could not be written", port_file.display()))
}

/// Takes connections until nobody has been connected for `idle`, or the clerk has ended and the last answers are out.
async fn accept(listener: &TcpListener, jobs: mpsc::Sender<Job>, idle: Duration) -> anyhow::Result<()> {
    let mut connections = JoinSet::new();
    let mut next: ConnectionId = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.context("the ledger's port")?;
                next += 1;
                connections.spawn(converse(next, stream, jobs.clone()));
            }
            Some(_) = connections.join_next() => {}
            () = jobs.closed() => break,
            () = tokio::time::sleep(idle), if connections.is_empty() => break,
        }
    }
    let last_answers = async { while connections.join_next().await.is_some() {} };
    // Whoever does not read its answers by then does not want them.
    let _slow_reader = tokio::time::timeout(LAST_ANSWERS, last_answers).await;
    Ok(())
}

async fn converse(id: ConnectionId, stream: TcpStream, jobs: mpsc::Sender<Job>) {
    // Without it, a small answer could wait for the acknowledgement of the one before.
    let _slower = stream.set_nodelay(true);
    let (from, to) = stream.into_split();
    let (out, answers) = mpsc::unbounded_channel();
    let listen = async {
        if jobs.send(Job::Came(id)).await.is_ok() {
            hear(id, from, out, &jobs).await;
            let _clerk_gone = jobs.send(Job::Gone(id)).await;
        }
    };
    tokio::join!(listen, speak(to, answers));
}

/// Passes questions on until the other side ends or talks nonsense.
async fn hear(id: ConnectionId, from: OwnedReadHalf, out: mpsc::UnboundedSender<Vec<u8>>, jobs: &mpsc::Sender<Job>) {
    let places = Arc::new(Semaphore::new(OPEN_ASKS_MAX));
    let mut lines = lines(from);
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = jobs.closed() => return,
        };
        let Some(Ok(line)) = line else { return };
        let question = match serde_json::from_str::<Question>(&line) {
            Ok(question) => question,
            Err(error) => {
                eprintln!("connection {id} is ended, its question cannot be read: {error}");
                return;
            }
        };
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let to = AnswerTo { id: question.id, out: out.clone(), _place: place };
        if jobs.send(Job::Asked(id, question.ask, to)).await.is_err() {
            return;
        }
    }
}

/// Writes answers, as many at once as there are, until nobody can give one any more.
async fn speak(mut to: OwnedWriteHalf, mut answers: mpsc::UnboundedReceiver<Vec<u8>>) {
    let mut ready = Vec::new();
    while answers.recv_many(&mut ready, OPEN_ASKS_MAX).await > 0 {
        let text = ready.concat();
        ready.clear();
        if to.write_all(&text).await.is_err() {
            return;
        }
    }
}

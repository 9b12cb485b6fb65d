//! The ledger's client: several connections, each pipelined, each coming back by itself.
//! What was asked and not answered is asked again on the next connection; the keys make that harmless.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio_util::codec::{FramedRead, LinesCodec};

use super::wire::{Act, Answer, Ask, Begun, Counts, Killed, Question, Receipt, Reply, Started, Watch, lines, push_line};
use super::{Fate, process, wall_ms};

/// Questions open on one connection; fewer than the ledger's own bound, so that neither side can block the other.
const OPEN_MAX: usize = 512;
/// How long a question may stay without an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// First and longest pause between two attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Why the ledger gave no receipt.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// No answer in time: it may have happened or not.
    #[error("the ledger did not answer within {} s", PATIENCE.as_secs())]
    Silent,
    /// The key was closed before: it has not happened and never will.
    #[error("the ledger has closed this key")]
    Closed,
    /// The key was executed for something else.
    #[error("the ledger has executed this key for something else: {0:?}")]
    Conflict(Box<Receipt>),
    /// The ledger did not understand.
    #[error("the ledger cannot make sense of this: {0}")]
    Invalid(String),
}

/// A handle to the ledger; clones share the connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    lanes: Vec<mpsc::Sender<Open>>,
    next_lane: AtomicUsize,
    next_mark: AtomicU64,
    /// Tells the marks of this process from those of an earlier one with the same process id.
    born_ms: u64,
}

struct Open {
    ask: Ask,
    answer: oneshot::Sender<Answer>,
}

impl Open {
    /// What nobody waits for any more is not sent, or it might be done long after its sender has given it up.
    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }
}

impl Client {
    /// A client of the ledger in `file` with so many connections. It connects in the background, and again whenever it
    /// has to, to whatever ledger serves the file by then.
    pub fn open(file: &Path, connections: usize) -> Self {
        let lanes = (0..connections.max(1))
            .map(|_| {
                let (lane, asks) = mpsc::channel(OPEN_MAX);
                tokio::spawn(keep_lane(file.to_owned(), asks));
                lane
            })
            .collect();
        let (next_lane, next_mark) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { shared: Arc::new(Shared { lanes, next_lane, next_mark, born_ms: wall_ms() }) }
    }

    /// Does something once: the receipt is the same however often the key is sent.
    ///
    /// # Errors
    /// `Silent`: it may have happened or not. Any other: this request has not been executed.
    pub async fn act(&self, act: Act) -> Result<Receipt, LedgerError> {
        match self.ask(Ask::Act(act)).await? {
            Answer::Receipt { receipt, .. } => Ok(receipt),
            other => Err(refusal(other)),
        }
    }

    /// Did this key happen?
    ///
    /// # Errors
    /// No answer in time, or an impossible key.
    pub async fn did_happen(&self, key: &str) -> Result<Fate, LedgerError> {
        fate(self.ask(Ask::DidHappen { key: key.to_owned() }).await?)
    }

    /// Closes a key: afterwards it has either happened or never will.
    ///
    /// # Errors
    /// No answer in time, or an impossible key.
    pub async fn close(&self, key: &str) -> Result<Fate, LedgerError> {
        fate(self.ask(Ask::Close { key: key.to_owned() }).await?)
    }

    /// Reports that the body of a step has begun in this process; counted once, however often it has to be sent.
    ///
    /// # Errors
    /// No answer in time, or an impossible step name.
    pub async fn begun(&self, step: &str, order: u32, attempt: u32, epoch: u64) -> Result<(), LedgerError> {
        let (pid, at_ms) = (std::process::id(), wall_ms());
        let mark = format!("{pid}-{}-{}", self.shared.born_ms, self.shared.next_mark.fetch_add(1, Ordering::Relaxed));
        self.note(Ask::Begun(Begun { mark, step: step.to_owned(), order, attempt, epoch, pid, at_ms })).await
    }

    /// Reports a start of the working process.
    ///
    /// # Errors
    /// No answer in time.
    pub async fn started(&self, started: Started) -> Result<(), LedgerError> {
        self.note(Ask::Started(started)).await
    }

    /// Reports a kill of the working process.
    ///
    /// # Errors
    /// No answer in time.
    pub async fn killed(&self, killed: Killed) -> Result<(), LedgerError> {
        self.note(Ask::Killed(killed)).await
    }

    /// Waits, as long as it takes, until the job has come so far; returns the process at work that the watch prefers.
    ///
    /// # Errors
    /// The ledger did not understand.
    pub async fn reached(&self, watch: Watch) -> Result<u32, LedgerError> {
        match self.send(Ask::Watch(watch)).await.await {
            Ok(Answer::Reached { pid }) => Ok(pid),
            Ok(other) => Err(refusal(other)),
            Err(_) => Err(LedgerError::Silent),
        }
    }

    /// How far the ledger has come.
    ///
    /// # Errors
    /// No answer in time.
    pub async fn counts(&self) -> Result<Counts, LedgerError> {
        match self.ask(Ask::Counts).await? {
            Answer::Counts(counts) => Ok(counts),
            other => Err(refusal(other)),
        }
    }

    /// No kill is due any more: nothing waits at a hold.
    ///
    /// # Errors
    /// No answer in time.
    pub async fn release(&self) -> Result<(), LedgerError> {
        self.note(Ask::Release).await
    }

    /// Asks the ledger to end as soon as nobody else is connected. For a client of one connection.
    ///
    /// # Errors
    /// No answer in time.
    pub async fn stop(&self) -> Result<(), LedgerError> {
        self.note(Ask::Stop).await
    }

    async fn note(&self, ask: Ask) -> Result<(), LedgerError> {
        match self.ask(ask).await? {
            Answer::Noted => Ok(()),
            other => Err(refusal(other)),
        }
    }

    async fn ask(&self, ask: Ask) -> Result<Answer, LedgerError> {
        let answered = async { self.send(ask).await.await };
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(LedgerError::Silent),
        }
    }

    async fn send(&self, ask: Ask) -> oneshot::Receiver<Answer> {
        let (answer, answered) = oneshot::channel();
        let lane = self.shared.next_lane.fetch_add(1, Ordering::Relaxed) % self.shared.lanes.len();
        // A lane ends only with its runtime; then the question is dropped and reads as unanswered.
        let _runtime_gone = self.shared.lanes[lane].send(Open { ask, answer }).await;
        answered
    }
}

fn refusal(answer: Answer) -> LedgerError {
    match answer {
        Answer::Closed => LedgerError::Closed,
        Answer::Conflict { first } => LedgerError::Conflict(Box::new(first)),
        Answer::Invalid { message } => LedgerError::Invalid(message),
        other => LedgerError::Invalid(format!("it answered {other:?}")),
    }
}

fn fate(answer: Answer) -> Result<Fate, LedgerError> {
    match answer {
        Answer::Receipt { receipt, .. } => Ok(Fate::Happened(receipt)),
        Answer::NotSeen => Ok(Fate::NotSeen),
        Answer::Closed => Ok(Fate::Closed),
        other => Err(refusal(other)),
    }
}

/// Keeps one connection alive until the client is gone.
async fn keep_lane(file: PathBuf, mut asks: mpsc::Receiver<Open>) {
    let mut open = BTreeMap::new();
    let mut next_id = 1;
    let mut pause = PAUSES.0;
    while !asks.is_closed() {
        match process::connect(&file).await {
            Some((from, to)) => {
                pause = PAUSES.0;
                converse(from, to, &mut asks, &mut open, &mut next_id).await;
            }
            None => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }
}

/// Asks and hears until the connection breaks or the client is gone.
async fn converse(
    mut from: FramedRead<OwnedReadHalf, LinesCodec>,
    mut to: OwnedWriteHalf,
    asks: &mut mpsc::Receiver<Open>,
    open: &mut BTreeMap<u64, Open>,
    next_id: &mut u64,
) {
    let mut text = Vec::new();
    open.retain(|_, question| question.is_wanted());
    for (&id, question) in &*open {
        push_line(&mut text, &Question { id, ask: question.ask.clone() });
    }
    if to.write_all(&text).await.is_err() {
        return;
    }
    let mut fresh = Vec::new();
    loop {
        let room = OPEN_MAX.saturating_sub(open.len());
        tokio::select! {
            count = asks.recv_many(&mut fresh, room), if room > 0 => {
                if count == 0 {
                    return;
                }
                text.clear();
                for question in fresh.drain(..).filter(Open::is_wanted) {
                    push_line(&mut text, &Question { id: *next_id, ask: question.ask.clone() });
                    open.insert(*next_id, question);
                    *next_id += 1;
                }
                if to.write_all(&text).await.is_err() {
                    return;
                }
            }
            line = from.next() => {
                let Some(Ok(line)) = line else { return };
                let Ok(reply) = serde_json::from_str::<Reply>(&line) else { return };
                if let Some(question) = open.remove(&reply.id) {
                    // Whoever asked may have lost its patience.
                    let _gone = question.answer.send(reply.answer);
                }
            }
        }
    }
}

/// Says hello on a fresh connection; `None` if that is not the ledger of this file.
pub(super) async fn greet(stream: TcpStream, file: &Path) -> Option<(FramedRead<OwnedReadHalf, LinesCodec>, OwnedWriteHalf)> {
    stream.set_nodelay(true).ok()?;
    let (from, mut to) = stream.into_split();
    let mut from = lines(from);
    let mut hello = Vec::new();
    push_line(&mut hello, &Question { id: 0, ask: Ask::Hello { pid: std::process::id() } });
    to.write_all(&hello).await.ok()?;
    let line = from.next().await?.ok()?;
    let reply = serde_json::from_str::<Reply>(&line).ok()?;
    let here = std::path::absolute(file).ok()?;
    (reply.answer == Answer::Here { file: here.to_string_lossy().into_owned() }).then_some((from, to))
}

//! The clerk: the one task that owns the ledger's rules and its file. It takes whatever has come in meanwhile as one
//! batch, decides, writes, syncs, and only then lets the answers go; so batches grow with the load by themselves.

use std::collections::HashMap;

use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::rules::{Decision, Rules};
use super::store::{ClosedRow, EffectRow, Rows, Store};
use super::wall_ms;
use super::wire::{Act, Answer, Ask, Reply, Watch, push_line};

/// Most requests in one batch.
const BATCH_MAX: usize = 512;

/// Identifies a connection.
pub type ConnectionId = u64;

/// What the connections tell the clerk.
pub enum Job {
    /// A connection was opened.
    Came(ConnectionId),
    /// A question came in.
    Asked(ConnectionId, Ask, AnswerTo),
    /// A connection has ended.
    Gone(ConnectionId),
}

/// Where an answer goes. Dropping it leaves the question without an answer.
pub struct AnswerTo {
    pub id: u64,
    pub out: mpsc::UnboundedSender<Vec<u8>>,
    /// Bounds the open questions of a connection, and with them what `out` can hold.
    pub _place: OwnedSemaphorePermit,
}

impl AnswerTo {
    fn send(self, answer: Answer) {
        let mut line = Vec::new();
        push_line(&mut line, &Reply { id: self.id, answer });
        // Whoever asked may be gone; what it asked is done and written down all the same.
        let _gone = self.out.send(line);
    }
}

pub struct Clerk {
    file: String,
    rules: Rules,
    store: Store,
    /// Open connections, and the process at the other end once it has said so.
    connections: HashMap<ConnectionId, Option<u32>>,
    watches: Vec<(ConnectionId, Watch, AnswerTo)>,
    /// Calls that wait at the hold, in the order they came.
    waiting: Vec<(ConnectionId, Act, AnswerTo)>,
    /// The connection that set the hold.
    holder: Option<ConnectionId>,
    /// Somebody has asked the ledger to end when the others have left.
    stop: bool,
}

impl Clerk {
    pub async fn open(file: &std::path::Path) -> Result<Self, sqlx::Error> {
        let mut store = Store::open(file).await?;
        let rules = store.load().await?;
        Ok(Self {
            file: file.to_string_lossy().into_owned(),
            rules,
            store,
            connections: HashMap::new(),
            watches: Vec::new(),
            waiting: Vec::new(),
            holder: None,
            stop: false,
        })
    }

    /// Works until it is told to stop or all senders of `jobs` are gone. An error means that a batch could not be
    /// written: nothing of it has been answered, and the ledger must end.
    pub async fn work(mut self, mut jobs: mpsc::Receiver<Job>) -> Result<(), sqlx::Error> {
        let mut arrived = Vec::with_capacity(BATCH_MAX);
        while !(self.stop && self.connections.len() <= 1) && jobs.recv_many(&mut arrived, BATCH_MAX).await > 0 {
            let mut batch = Batch::default();
            for job in arrived.drain(..) {
                self.take(job, &mut batch);
            }
            self.look_at_waiting(&mut batch);
            self.look_at_watches();
            if !batch.rows.is_empty() {
                self.store.write(&batch.rows).await?;
            }
            for (to, answer) in batch.answers {
                to.send(answer);
            }
        }
        self.store.close().await
    }

    fn take(&mut self, job: Job, batch: &mut Batch) {
        match job {
            Job::Came(connection) => {
                self.connections.insert(connection, None);
            }
            Job::Gone(connection) => {
                self.connections.remove(&connection);
                self.release(connection);
            }
            Job::Asked(connection, ask, to) => self.answer(connection, ask, to, batch),
        }
    }

    fn answer(&mut self, connection: ConnectionId, ask: Ask, to: AnswerTo, batch: &mut Batch) {
        let at_ms = wall_ms();
        let answer = match ask {
            Ask::Hello { pid } => {
                self.connections.insert(connection, Some(pid));
                Answer::Here { file: self.file.clone() }
            }
            Ask::Act(act) => return self.act(connection, act, to, batch),
            Ask::DidHappen { key } => {
                let (row, answer) = self.rules.did_happen(key, at_ms);
                batch.rows.requests.push(row);
                answer
            }
            Ask::Close { key } => {
                let (row, answer, fresh) = self.rules.close(key.clone(), at_ms);
                batch.rows.requests.push(row);
                if fresh {
                    batch.rows.closed.push(ClosedRow { key, at_ms });
                }
                answer
            }
            Ask::Begun(body) => {
                let answer = self.rules.begun(&body);
                if answer == Answer::Noted {
                    batch.rows.bodies.push(body);
                }
                answer
            }
            Ask::Started(started) => {
                batch.rows.starts.push(started);
                Answer::Noted
            }
            Ask::Killed(killed) => {
                self.rules.counts.kills += 1;
                self.forget_calls_of(killed.pid, batch);
                self.hold(killed.hold, connection);
                batch.rows.kills.push(killed);
                Answer::Noted
            }
            Ask::Watch(watch) => {
                self.hold(Some(watch.hold), connection);
                return self.watches.push((connection, watch, to));
            }
            Ask::Release => {
                self.release(connection);
                Answer::Noted
            }
            Ask::Counts => Answer::Counts(self.rules.counts),
            Ask::Stop => {
                self.stop = true;
                Answer::Noted
            }
        };
        batch.answers.push((to, answer));
    }

    fn act(&mut self, connection: ConnectionId, act: Act, to: AnswerTo, batch: &mut Batch) {
        match self.rules.act(&act, wall_ms()) {
            Decision::Wait => self.waiting.push((connection, act, to)),
            Decision::Answer(row, answer) => {
                batch.rows.requests.push(row);
                if let Answer::Receipt { receipt, repeated: false } = &answer {
                    batch.rows.effects.push(EffectRow { key: act.key, receipt: receipt.clone() });
                }
                batch.answers.push((to, answer));
            }
        }
    }

    fn hold(&mut self, at: Option<u64>, holder: ConnectionId) {
        self.rules.hold = at;
        self.holder = at.map(|_| holder);
    }

    fn release(&mut self, connection: ConnectionId) {
        self.watches.retain(|(watcher, ..)| *watcher != connection);
        if self.holder == Some(connection) {
            self.hold(None, connection);
        }
    }

    /// The calls that wait are taken up again in the order they came; those that must go on waiting do.
    fn look_at_waiting(&mut self, batch: &mut Batch) {
        if self.rules.hold.is_none_or(|hold| self.rules.counts.executed < hold) {
            for (connection, act, to) in std::mem::take(&mut self.waiting) {
                self.act(connection, act, to, batch);
            }
        }
    }

    /// What a killed process had asked and what was still waiting is lost on the way, as in a network.
    fn forget_calls_of(&mut self, pid: u32, batch: &mut Batch) {
        let Self { waiting, connections, rules, .. } = self;
        waiting.retain(|(connection, act, _)| {
            let sender = connections.get(connection).copied().flatten();
            let keep = sender.is_some_and(|sender| sender != pid);
            if !keep {
                batch.rows.requests.push(rules.drop_call(act, wall_ms()));
            }
            keep
        });
    }

    /// Watchers hear at once, before the batch is synced: whoever kills then hits calls that are executed but not
    /// answered, which is where it hurts most.
    fn look_at_watches(&mut self) {
        for (connection, watch, to) in std::mem::take(&mut self.watches) {
            match self.rules.reached(&watch) {
                Some(pid) => to.send(Answer::Reached { pid }),
                None => self.watches.push((connection, watch, to)),
            }
        }
    }
}

#[derive(Default)]
struct Batch {
    rows: Rows,
    answers: Vec<(AnswerTo, Answer)>,
}

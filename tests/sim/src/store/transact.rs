//! Business transactions, through the simulation: the server has the row locked, the process does the work, and each may lose the other.
//!
//! Invariant: work is done by a task of its process alone, and only while the transaction is open; what a lost connection leaves to the
//! server is a transaction without work, or a commit that was on its way.

use super::{
    SimStore,
    facts::{entries, offered},
};
use crate::{
    history::Event,
    node::Node,
    swarm::{Call, Moment},
    world::{Fate, Fault, World, sleep},
};
use lobster_core::store::{
    contract::{Business, Failed, Hold, Journal, Result, Row, Transacted, Work},
    memory::MemoryTx,
};
use std::sync::{Arc, Mutex, PoisonError, atomic::Ordering};
use tokio::sync::oneshot;

/// What the work left, and its row.
type Worked = (MemoryTx, Option<Row>);

/// The connection of one transaction, as the server sees it.
struct Line {
    world: Arc<World>,
    node: Arc<Node>,
    hold: Hold,
    begin: Fate,
    commit: Fate,
    /// What was before it began is lost if this has grown.
    crashes: u64,
    tell: Mutex<Option<oneshot::Sender<Result<Transacted>>>>,
    row: Mutex<Option<Row>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unknown(why: &str) -> Result<Transacted> {
    Err(Failed::Unknown(why.to_owned()))
}

fn away(why: &str) -> Result<Transacted> {
    Err(Failed::Unavailable(why.to_owned()))
}

impl SimStore {
    /// Runs the work where it belongs: it stops, freezes and dies with its process.
    #[allow(clippy::disallowed_methods, reason = "the store's own tasks belong to no node")]
    pub(super) async fn transact_run(&self, hold: Hold, work: Work) -> Result<Transacted> {
        let (world, node) = (self.world.clone(), self.node.clone());
        let (begin, commit) = (world.fate(), world.fate());
        world.note(format_args!(
            "node {} {:?} {} e{} {} {:?} {:?}, {:?} {:?} {:?}",
            node.serial,
            Call::Transact,
            hold.run,
            hold.epoch,
            hold.head,
            begin.fault,
            begin.before,
            commit.fault,
            commit.before,
            commit.after
        ));
        let (hand, handed) = oneshot::channel();
        let (bring, brought) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let crashes = world.crashes.load(Ordering::SeqCst);
        let (tell, row) = (Mutex::new(Some(tell)), Mutex::default());
        tokio::spawn(serve(Arc::new(Line { world, node, hold, begin, commit, crashes, tell, row }), hand, brought));
        if let Ok(mut transaction) = handed.await {
            let row = work(&mut transaction).await;
            // If nobody takes it, the server has ended the transaction, and said so.
            drop(bring.send((transaction, row)));
        }
        let Ok(answer) = told.await else { return std::future::pending().await };
        let (node, run, epoch) = (self.node.serial, hold.run, hold.epoch);
        self.world.note(format_args!("node {node} {run} e{epoch} told {answer:?}"));
        if let Ok(Transacted::Seen(seen)) = &answer
            && (!seen.mine || seen.cancel)
        {
            self.world.log(Event::Stopped { node, run, epoch });
        }
        answer
    }
}

/// The server's part.
async fn serve(line: Arc<Line>, hand: oneshot::Sender<MemoryTx>, brought: oneshot::Receiver<Worked>) {
    let Line { world, node, hold, begin, commit, .. } = &*line;
    world.pass(node, Call::Transact, Moment::Sent);
    sleep(begin.before).await;
    if node.dead() {
        return;
    }
    world.met(Call::Transact, begin.fault);
    if line.crashed() || begin.fault == Fault::Lost {
        return line.tell(unknown("the connection broke"));
    }
    if world.out() || begin.fault == Fault::Unavailable {
        return line.tell(away("the store is away"));
    }
    let Some(row) = world.lock_row(hold.run) else {
        world.met(Call::Transact, Fault::Busy);
        return line.tell(Ok(Transacted::Busy));
    };
    world.pass(node, Call::Transact, Moment::Applied);
    if matches!(begin.fault, Fault::Unknown | Fault::Late) {
        // Nobody works in it; the server has not noticed yet.
        line.tell(unknown("the connection broke"));
        return sleep(begin.after).await;
    }
    let ours = line.clone();
    let done = world.memory.transact(*hold, Box::new(move |transaction| Box::pin(ours.open(transaction, hand, brought)))).await;
    let committed = matches!(done, Ok(Transacted::Done));
    if committed {
        line.log();
        world.pass(node, Call::Commit, Moment::Applied);
    }
    if matches!(done, Ok(Transacted::Seen(_))) && lock(&line.row).is_some() {
        world.met(Call::Commit, Fault::Fenced);
    }
    drop(row);
    sleep(commit.after).await;
    line.tell(if committed && commit.fault == Fault::Unknown { unknown("the answer was lost") } else { done });
    world.pass(node, Call::Commit, Moment::Answered);
}

impl Line {
    /// The first answer is the one that is heard.
    fn tell(&self, answer: Result<Transacted>) {
        if let Some(tell) = lock(&self.tell).take() {
            drop(tell.send(answer));
        }
    }

    fn crashed(&self) -> bool {
        self.world.crashes.load(Ordering::SeqCst) != self.crashes
    }

    /// The open transaction: handed to the process, and brought back with a row if it is to be committed.
    async fn open(
        self: Arc<Self>,
        transaction: &mut Business,
        hand: oneshot::Sender<MemoryTx>,
        brought: oneshot::Receiver<Worked>,
    ) -> Option<Row> {
        let transaction = transaction.downcast_mut::<MemoryTx>().expect("the memory tier hands out its own transactions");
        let Self { world, node, hold, commit, .. } = &*self;
        hand.send(transaction.clone()).ok()?;
        let brought = tokio::select! {
            biased;
            brought = brought => brought.ok(),
            // As a server ends a transaction whose process is frozen.
            () = sleep(hold.most) => None,
        };
        let Some((worked, row)) = brought else {
            world.met(Call::Commit, Fault::Ended);
            self.tell(away("the server has ended the transaction"));
            return None;
        };
        // What was written is there until it is committed, or undone.
        *transaction = worked;
        let row = row?;
        world.pass(node, Call::Commit, Moment::Sent);
        sleep(commit.before).await;
        if node.dead() && !commit.ghost {
            return None;
        }
        world.met(Call::Commit, commit.fault);
        if world.out() || commit.fault == Fault::Unavailable {
            self.tell(away("the connection broke before the commit"));
            return None;
        }
        match commit.fault {
            // It never arrives, which the server notices late.
            Fault::Lost => {
                self.tell(unknown("the connection broke"));
                sleep(commit.after).await;
                return None;
            }
            // It arrives late: until then the row is locked.
            Fault::Late => {
                self.tell(unknown("the connection broke"));
                sleep(commit.after).await;
            }
            _ => {}
        }
        if self.crashed() {
            self.tell(unknown("the store crashed"));
            return None;
        }
        if !world.healed() && world.faults().chance(world.swarm.refused) {
            world.met(Call::Commit, Fault::Refused);
            self.tell(Ok(Transacted::Failed(format!("a deferred constraint/{}", world.token()))));
            return None;
        }
        *lock(&self.row) = Some(row.clone());
        Some(row)
    }

    /// Says what was committed.
    fn log(&self) {
        let Some(row) = lock(&self.row).take() else { return };
        let (run, epoch, from, to) = (self.hold.run, self.hold.epoch, row.from, row.to);
        let rows = [row];
        self.world.log(Event::Appended { run, epoch, from, to, facts: offered(run, epoch, &rows) });
        self.world.log(Event::Recorded { run, to, entries: entries(run, epoch, &rows) });
    }
}

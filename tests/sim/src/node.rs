//! A simulated process: its tasks, and what the nemesis does to all of them at once.
//!
//! Invariant: nothing of a killed process is ever polled again, and nothing of a paused one until it is resumed.

use crate::{history::Event, nemesis::Role, rng::Rng, world::World};
use lobster_core::{
    BoxFuture, Lobster, Wall,
    store::contract::{Boot, Incarnation},
};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

/// A simulated machine: its clocks. Processes of one machine can prove each other dead.
#[derive(Debug)]
pub(crate) struct Machine {
    pub number: usize,
    /// Added to the true time: no two machines count from the same moment.
    pub boot_offset: Duration,
    pub wall_offset_ms: AtomicI64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Running,
    Paused,
    /// Dies at the end of the poll that is under way.
    Dying,
    Dead,
}

type Cell = Arc<Mutex<Option<BoxFuture<'static, ()>>>>;

struct Inner {
    mode: Mode,
    parked: Vec<Waker>,
    tasks: BTreeMap<u64, Cell>,
    next: u64,
    rng: Rng,
    incarnations: Vec<Incarnation>,
    /// When the last good renewal was sent.
    leased: Option<Boot>,
    engine: Option<Lobster>,
}

/// A simulated process.
pub(crate) struct Node {
    pub serial: u32,
    pub role: Role,
    pub machine: Arc<Machine>,
    pub world: Arc<World>,
    inner: Mutex<Inner>,
    polls: AtomicU64,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.serial)
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Node>>> = const { RefCell::new(None) };
}

/// The process whose task is being polled.
pub(crate) fn current() -> Arc<Node> {
    CURRENT.with_borrow(Clone::clone).expect("steps and bodies are polled by tasks of a node")
}

impl Node {
    pub fn new(world: &Arc<World>, serial: u32, role: Role, machine: Arc<Machine>) -> Arc<Self> {
        let rng = Rng::new(world.seed, "node", u64::from(serial));
        let inner = Inner {
            mode: Mode::Running,
            parked: Vec::new(),
            tasks: BTreeMap::new(),
            next: 0,
            rng,
            incarnations: Vec::new(),
            leased: None,
            engine: None,
        };
        Arc::new(Self { serial, role, machine, world: world.clone(), inner: Mutex::new(inner), polls: AtomicU64::new(0) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics under a node's lock")
    }

    // ---- clocks and chance ------------------------------------------------------------------------------------------

    pub fn boot(&self) -> Boot {
        Boot(self.world.now() + self.machine.boot_offset)
    }
    pub fn wall(&self) -> Wall {
        let offset = self.machine.wall_offset_ms.load(Ordering::SeqCst);
        Wall(self.world.wall().0 + offset)
    }
    pub fn random(&self) -> u64 {
        self.lock().rng.next()
    }
    /// Numbers drawn and polls made: two runs of a seed end with the same.
    pub fn spent(&self) -> (u64, u64) {
        (self.lock().rng.drawn(), self.polls.load(Ordering::SeqCst))
    }

    // ---- the lease, as this process may rely on it ------------------------------------------------------------------

    pub fn joined(&self, incarnation: Incarnation) {
        let mut inner = self.lock();
        inner.incarnations.push(incarnation);
        inner.leased = None;
    }
    pub fn leased(&self, sent: Option<Boot>) {
        let mut inner = self.lock();
        inner.leased = sent.map(|sent| inner.leased.map_or(sent, |before| before.max(sent)));
    }
    /// Is the self-fence ahead?
    pub fn lease_good(&self) -> bool {
        let fence = self.world.swarm.settings.lease.self_fence;
        self.lock().leased.is_some_and(|sent| self.boot() < sent + fence)
    }
    /// The incarnation that it joined as last.
    pub fn newest(&self) -> Option<Incarnation> {
        self.lock().incarnations.last().copied()
    }
    pub fn is(&self, incarnation: Incarnation) -> bool {
        self.lock().incarnations.contains(&incarnation)
    }

    /// Its engine has started.
    pub fn serve(&self, lobster: Lobster) {
        self.lock().engine = Some(lobster);
    }
    pub fn engine(&self) -> Option<Lobster> {
        self.lock().engine.clone()
    }

    // ---- tasks ------------------------------------------------------------------------------------------------------

    #[allow(clippy::disallowed_methods, reason = "the simulated host's own spawn")]
    pub fn spawn(self: &Arc<Self>, task: BoxFuture<'static, ()>) {
        let mut inner = self.lock();
        if inner.mode == Mode::Dead {
            return;
        }
        let (id, cell) = (inner.next, Arc::new(Mutex::new(Some(task))));
        inner.next += 1;
        inner.tasks.insert(id, cell.clone());
        drop(inner);
        tokio::spawn(Task { node: self.clone(), id, cell });
    }
    pub fn dead(&self) -> bool {
        self.lock().mode == Mode::Dead
    }
    /// Dies in the middle of the poll that is under way.
    pub fn die(&self) {
        self.lock().mode = Mode::Dying;
    }
    pub fn dying(&self) -> bool {
        matches!(self.lock().mode, Mode::Dying | Mode::Dead)
    }
    pub fn running(&self) -> bool {
        self.lock().mode == Mode::Running
    }
    pub fn pause(&self) {
        let mut inner = self.lock();
        if inner.mode == Mode::Running {
            inner.mode = Mode::Paused;
        }
    }
    pub fn resume(&self) {
        let mut inner = self.lock();
        if inner.mode != Mode::Paused {
            return;
        }
        inner.mode = Mode::Running;
        let parked = std::mem::take(&mut inner.parked);
        drop(inner);
        parked.into_iter().for_each(Waker::wake);
    }
    /// The process is gone, at once, and its host knows it.
    pub fn kill(&self) {
        let (tasks, parked, incarnations, engine) = {
            let mut inner = self.lock();
            inner.mode = Mode::Dead;
            let (tasks, parked) = (std::mem::take(&mut inner.tasks), std::mem::take(&mut inner.parked));
            (tasks, parked, inner.incarnations.clone(), inner.engine.take())
        };
        drop(engine);
        for incarnation in incarnations {
            self.world.memory.kill(incarnation);
        }
        for cell in tasks.into_values() {
            let future = cell.lock().expect("no task of this node is being polled by this thread").take();
            // Destructors run, which no kill would allow; whatever they want of host or store, a dead node does not get.
            drop(future);
        }
        parked.into_iter().for_each(Waker::wake);
    }
}

/// One task of a node, on the runtime.
struct Task {
    node: Arc<Node>,
    id: u64,
    cell: Cell,
}

impl Future for Task {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut inner = self.node.lock();
            match inner.mode {
                Mode::Running => {}
                Mode::Dead | Mode::Dying => return Poll::Ready(()),
                Mode::Paused => {
                    inner.parked.push(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
        self.node.polls.fetch_add(1, Ordering::SeqCst);
        if self.node.world.spins() {
            let message = "it spins: time does not go on".to_owned();
            self.node.world.log(Event::Panicked { node: self.node.serial, message });
            return Poll::Ready(());
        }
        let mut slot = self.cell.lock().expect("a task is polled by one thread, and user panics are caught by the engine");
        let Some(future) = slot.as_mut() else { return Poll::Ready(()) };
        let before = CURRENT.replace(Some(self.node.clone()));
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        CURRENT.set(before);
        let polled = polled.unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|&said| said.into()));
            let message = said.unwrap_or_else(|| "(no text)".into());
            self.node.world.log(Event::Panicked { node: self.node.serial, message });
            Poll::Ready(())
        });
        if self.node.dying() {
            drop(slot);
            crate::nemesis::kill(&self.node);
            return Poll::Ready(());
        }
        if polled.is_ready() {
            let done = slot.take();
            drop(slot);
            drop(done);
            self.node.lock().tasks.remove(&self.id);
        }
        polled
    }
}

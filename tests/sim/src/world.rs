//! What all simulated processes share: true time, the one store, the outside world, faults and the history.
//!
//! Invariant: every decision of the world is drawn from a stream of the seed.

use crate::{
    history::{Event, History, Step},
    locks::Locks,
    nemesis::Role,
    node::{Machine, Node},
    outside::Outside,
    plan::Act,
    rng::Rng,
    store::{look, results},
    swarm::{Blow, Call, Moment, Swarm, Trigger},
};
use lobster_core::{
    RunId, Wall,
    store::{
        contract::{Boot, Clock, Recording},
        memory::Memory,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// Sleeps in simulated time.
#[allow(clippy::disallowed_methods, reason = "the simulated host's own sleep")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// More polls than any healthy simulation makes without time going on.
const POLLS_AT_ONE_MOMENT: u64 = 30_000;

/// The moment at which every simulation begins: 2026-01-01T00:00:00Z.
const EPOCH_MS: i64 = 1_767_225_600_000;

/// The store's clock, and the true one.
#[derive(Clone, Copy)]
pub(crate) struct StoreClock(Instant);

impl fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreClock")
    }
}

impl StoreClock {
    /// A second before the beginning, so that no moment is zero.
    fn now(self) -> Duration {
        Instant::now().saturating_duration_since(self.0) + Duration::from_secs(1)
    }
}

impl Clock for StoreClock {
    fn boot(&self) -> Boot {
        Boot(self.now())
    }
    fn wall(&self) -> Wall {
        Wall(EPOCH_MS).plus(self.now())
    }
}

/// What becomes of one store call.
pub(crate) struct Fate {
    pub before: Duration,
    pub after: Duration,
    pub fault: Fault,
    /// It applies even if its process is dead by then.
    pub ghost: bool,
}

/// How a store call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    None,
    /// Refused before it applied.
    Unavailable,
    /// Unknown, and it did not apply.
    Lost,
    /// Unknown, and it applied.
    Unknown,
    /// Unknown, and it applies after that was said: a commit held somewhere and decided later.
    Late,
    /// Somebody else has the row locked.
    Busy,
    /// The server ended the transaction: its process was frozen for too long, or died.
    Ended,
    /// The row is not its holder's any more, or a cancel is asked for, after the work was done.
    Fenced,
    /// The store refused the commit: a deferred constraint.
    Refused,
}

pub(crate) struct World {
    pub seed: u64,
    pub swarm: Swarm,
    pub memory: Arc<Memory>,
    pub clock: StoreClock,
    pub outside: Mutex<Outside>,
    history: Mutex<History>,
    faults: Mutex<Rng>,
    healed: AtomicBool,
    over: AtomicBool,
    told: Mutex<BTreeSet<(usize, u32)>>,
    /// Until then the store refuses everything.
    outage: Mutex<Duration>,
    /// Grows with each crash of the store: what was sent before and has not applied is lost.
    pub crashes: AtomicU64,
    triggers: Mutex<Vec<Trigger>>,
    tokens: AtomicU64,
    /// How often the poison of a call worked.
    poisoned: Mutex<BTreeMap<(RunId, u32), u32>>,
    /// Polls since time last went on.
    spun: Mutex<(Duration, u64)>,
    bodies: AtomicU64,
    pub nodes: Mutex<Vec<Arc<Node>>>,
    /// Last epoch under which a process was given a run: that of a body at its first poll.
    granted: Mutex<BTreeMap<(u32, RunId), u64>>,
    /// Of runs of which something may be lost: the last epoch of which that is so.
    doubts: Mutex<BTreeMap<RunId, u64>>,
    pub locks: Locks,
    /// Steps that wrote in a transaction, committed or not.
    writers: Mutex<BTreeMap<RunId, BTreeSet<Step>>>,
}

impl World {
    pub fn new(seed: u64, swarm: Swarm, echo: bool) -> Arc<Self> {
        let clock = StoreClock(Instant::now());
        let memory = Memory::strict(Arc::new(clock));
        let triggers = Mutex::new(swarm.triggers.clone());
        Arc::new(Self {
            seed,
            outside: Mutex::new(Outside::new(seed)),
            swarm,
            memory,
            clock,
            history: Mutex::new(History::new(echo)),
            faults: Mutex::new(Rng::new(seed, "faults", 0)),
            healed: AtomicBool::new(false),
            over: AtomicBool::new(false),
            told: Mutex::default(),
            outage: Mutex::default(),
            crashes: AtomicU64::new(0),
            triggers,
            tokens: AtomicU64::new(0),
            poisoned: Mutex::default(),
            spun: Mutex::default(),
            bodies: AtomicU64::new(0),
            nodes: Mutex::default(),
            granted: Mutex::default(),
            doubts: Mutex::default(),
            locks: Locks::default(),
            writers: Mutex::default(),
        })
    }

    // ---- time -------------------------------------------------------------------------------------------------------

    pub fn now(&self) -> Duration {
        self.clock.now()
    }
    pub fn wall(&self) -> Wall {
        self.clock.wall()
    }

    /// Counts a poll; says whether so many were made at one moment that time will never go on.
    pub fn spins(&self) -> bool {
        let now = self.now();
        let mut spun = self.spun.lock().expect("nothing panics under this lock");
        if spun.0 != now {
            *spun = (now, 0);
        }
        spun.1 += 1;
        spun.1 > POLLS_AT_ONE_MOMENT
    }

    // ---- history ----------------------------------------------------------------------------------------------------

    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("nothing panics under the history's lock")
    }
    pub fn log(&self, event: Event) {
        self.history().log(self.now(), event);
    }
    pub fn note(&self, what: fmt::Arguments<'_>) {
        self.history().note(self.now(), what);
    }
    /// A call meets its fault.
    pub fn met(&self, call: Call, fault: Fault) {
        if fault != Fault::None {
            *self.history().faults.entry((call, fault)).or_default() += 1;
        }
    }
    /// A number that no other execution of anything returns.
    pub fn token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::SeqCst) + 1
    }
    /// Does this execution take its process with it?
    pub fn poisons(&self, run: RunId, epoch: u64, act: &Act) -> bool {
        let mut poisoned = self.poisoned.lock().expect("nothing panics under this lock");
        let worked = poisoned.entry((run, act.label)).or_default();
        *worked += 1;
        let works = *worked <= act.poison;
        drop(poisoned);
        if works {
            self.log(Event::Poisoned { run, epoch });
        }
        works
    }
    pub fn body(&self) -> u32 {
        u32::try_from(self.bodies.fetch_add(1, Ordering::SeqCst)).unwrap_or(u32::MAX)
    }
    /// A node was handed a run.
    pub fn grant(&self, node: u32, run: RunId, epoch: u64) {
        self.granted.lock().expect("nothing panics under this lock").insert((node, run), epoch);
    }
    pub fn granted(&self, node: u32, run: RunId) -> u64 {
        self.granted.lock().expect("nothing panics under this lock").get(&(node, run)).copied().unwrap_or(0)
    }

    /// Up to which epoch the store says that what happened to this run may be lost, when this one is claimed: always the same once it
    /// has said so.
    pub fn doubt(&self, run: RunId, epoch: u64) -> Option<u64> {
        let mut doubts = self.doubts.lock().expect("nothing panics under this lock");
        if let Some(doubt) = doubts.get(&run) {
            return Some(*doubt);
        }
        if self.healed() || !self.faults().chance(self.swarm.doubts) {
            return None;
        }
        let doubt = epoch - 1;
        doubts.insert(run, doubt);
        self.log(Event::Doubted { run, epoch: doubt });
        Some(doubt)
    }

    // ---- faults -----------------------------------------------------------------------------------------------------

    pub fn faults(&self) -> MutexGuard<'_, Rng> {
        self.faults.lock().expect("nothing panics under this lock")
    }
    pub fn healed(&self) -> bool {
        self.healed.load(Ordering::SeqCst)
    }
    pub fn heal(&self) {
        self.healed.store(true, Ordering::SeqCst);
        self.log(Event::Healed);
    }
    pub fn fate(&self) -> Fate {
        let swarm = &self.swarm;
        let mut rng = self.faults();
        let part = |rng: &mut Rng| match rng.below(4) {
            0 => rng.ms(0, swarm.latency_ms),
            _ => Duration::ZERO,
        };
        let (mut before, mut after) = (part(&mut rng), part(&mut rng));
        if self.healed() {
            return Fate { before, after, fault: Fault::None, ghost: false };
        }
        if rng.chance(swarm.slow) {
            let ttl = swarm.settings.lease.ttl.as_millis() as u64;
            let slow = rng.ms(ttl / 10, ttl * 3 / 2);
            *(if rng.chance(500) { &mut before } else { &mut after }) += slow;
        }
        let kinds = [
            (swarm.unavailable, Fault::Unavailable),
            (swarm.lost, Fault::Lost),
            (swarm.unknown, Fault::Unknown),
            (swarm.late, Fault::Late),
        ];
        let fault = kinds.into_iter().find_map(|(permille, fault)| rng.chance(permille).then_some(fault));
        if fault == Some(Fault::Late) {
            after += rng.ms(1, 500);
        }
        let ghost = swarm.own_hosts && rng.chance(swarm.ghosts);
        Fate { before, after, fault: fault.unwrap_or(Fault::None), ghost }
    }
    pub fn out(&self) -> bool {
        !self.healed() && self.now() < *self.outage.lock().expect("nothing panics under this lock")
    }
    pub fn begin_outage(&self, length: Duration) {
        *self.outage.lock().expect("nothing panics under this lock") = self.now() + length;
    }
    pub fn crash(&self) {
        self.crashes.fetch_add(1, Ordering::SeqCst);
        self.memory.crash_store();
        self.log(Event::Crashed);
        for run in self.runs() {
            if let Some(stored) = self.memory.durable(run) {
                self.log(look(run, &stored.recording));
                self.audit(run, &stored.recording);
            }
        }
    }
    /// Every run that a process was handed.
    pub fn runs(&self) -> BTreeSet<RunId> {
        self.granted.lock().expect("nothing panics under this lock").keys().map(|(_, run)| *run).collect()
    }
    /// A step writes in a transaction.
    pub fn writes(&self, run: RunId, step: Step) {
        self.writers.lock().expect("nothing panics under this lock").entry(run).or_default().insert(step);
    }
    /// Says what the transactions of a run have left, beside what its recording says of them.
    fn audit(&self, run: RunId, recording: &Recording) {
        let writers = self.writers.lock().expect("nothing panics under this lock").get(&run).cloned().unwrap_or_default();
        if writers.is_empty() {
            return;
        }
        let results = results(run, recording).into_iter().filter(|(_, step, _, ok)| *ok && writers.contains(step));
        let recorded = results.map(|(_, step, token, _)| (step, token)).collect();
        let number = |step: &Step, what: &str| self.memory.number(&format!("{step} {what}"));
        let left = writers.iter().map(|step| (*step, number(step, "times"), number(step, "token"))).collect();
        self.log(Event::Audited { run, recorded, left });
    }
    /// A moment of a task of a node passes, at which the node may be struck: not while the task is polled.
    pub async fn pass_inside(self: &Arc<Self>, node: &Arc<Node>, call: Call, moment: Moment) {
        let (tell, told) = tokio::sync::oneshot::channel();
        let (world, node) = (self.clone(), node.clone());
        crate::nemesis::spawn(async move {
            world.pass(&node, call, moment);
            let _ = tell.send(());
        });
        let _ = told.await;
    }
    /// A moment of an operation passes: does a trigger strike?
    pub fn pass(self: &Arc<Self>, node: &Arc<Node>, call: Call, moment: Moment) {
        if self.healed() {
            return;
        }
        let struck = {
            let mut triggers = self.triggers.lock().expect("nothing panics under this lock");
            for trigger in triggers.iter_mut().filter(|trigger| trigger.call == call && trigger.moment == moment) {
                trigger.count = trigger.count.saturating_sub(1);
            }
            let ripe = |trigger: &Trigger| trigger.call == call && trigger.moment == moment && trigger.count == 0;
            triggers.iter().position(ripe).map(|index| triggers.swap_remove(index))
        };
        if let Some(Trigger { blow, .. }) = struck {
            self.log(Event::Struck { call, moment, blow });
            match blow {
                Blow::Kill => crate::nemesis::kill(node),
                Blow::Pause => crate::nemesis::pause(node),
                Blow::Crash => self.crash(),
            }
        }
    }
    /// A fresh process on a machine.
    pub fn process(self: &Arc<Self>, role: Role, machine: Arc<Machine>) -> Arc<Node> {
        let mut nodes = self.nodes.lock().expect("nothing panics under this lock");
        let node = Node::new(self, u32::try_from(nodes.len()).unwrap_or(u32::MAX), role, machine);
        nodes.push(node.clone());
        node
    }
    /// A client was told how its run ended.
    pub fn told(&self, client: usize, number: u32) {
        self.told.lock().expect("nothing panics under this lock").insert((client, number));
    }
    pub fn was_told(&self, client: usize, number: u32) -> bool {
        self.told.lock().expect("nothing panics under this lock").contains(&(client, number))
    }
    /// The simulation ends: nothing starts any more, and everything is let go.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        let nodes = std::mem::take(&mut *self.nodes.lock().expect("nothing panics under this lock"));
        nodes.iter().for_each(|node| node.kill());
    }
    pub fn over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.nodes.lock().expect("nothing panics under this lock").clone()
    }
}

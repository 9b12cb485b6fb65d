//! Real kills: SIGKILL at every named point and at random moments, SIGSTOP past the lease.
//!
//! Rule: nothing lost, nothing doubled, nothing recorded run again, at most one key step re-run per crash and run.

mod books;
mod frozen;
mod people;
mod points;
mod proofs;

use lobster_core::{Client, ErrorKind, Lobster, Reason, RunState, Settings, StepState};
use lobster_store::Tiers;
use lobster_tests::{
    Place, stores_of,
    world::{Event, World},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus, Stdio},
};
use tokio::sync::oneshot;

/// Runs of one scenario.
const RUNS: u32 = 8;

/// A store that processes share.
type Store = fn() -> Place;

struct Scenario {
    store: Store,
    place: Place,
    world: World,
    address: String,
    kills: u32,
    runs: u32,
}

impl Scenario {
    fn new(store: Store) -> Self {
        Self::of(store, RUNS)
    }
    fn of(store: Store, runs: u32) -> Self {
        let world = World::default();
        let address = world.listen().to_string();
        Self { store, place: store(), world, address, kills: 0, runs }
    }
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command.args([self.place.url(), &self.address]).env_remove("LOBSTER_CRASH").stdout(Stdio::null());
        command
    }
    /// Starts a worker on all runs.
    fn worker(&self, crash: Option<&str>) -> Child {
        let mut command = self.command();
        command.args(["0", &self.runs.to_string()]);
        if let Some(crash) = crash {
            command.env("LOBSTER_CRASH", crash);
        }
        command.spawn().unwrap()
    }
    /// Runs a worker until it is killed at a point; falls back to an earlier pass if there are not that many.
    fn die_at(&mut self, point: &str, pass: u32) {
        for pass in [pass, 1] {
            if self.worker(Some(&format!("{point}:{pass}"))).wait().unwrap().signal() == Some(9) {
                self.kills += 1;
                return;
            }
            // All is done: begin with fresh runs.
            self.check_all();
            *self = Self { kills: self.kills, ..Self::new(self.store) };
        }
        panic!("{point} was never passed");
    }

    /// A look from outside, while no worker lives.
    fn look<T>(&self, look: impl AsyncFnOnce(&Client) -> T) -> T {
        self.look_on(async |client, _| look(client).await)
    }
    /// The same with the stores, for whoever waits for their hints.
    fn look_on<T>(&self, look: impl AsyncFnOnce(&Client, &Tiers) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tiers = stores_of(self.place.url()).await;
            let client = Lobster::open(self.place.url()).tiers(tiers.clone()).settings(Settings::test()).connect().await.unwrap();
            look(&client, &tiers).await
        })
    }

    /// Steps with a recorded result, by run key and step name.
    fn recorded(&self) -> BTreeSet<(String, String)> {
        self.look(async |client| {
            let mut recorded = BTreeSet::new();
            for run in client.runs().limit(1000).list().await.unwrap() {
                for step in client.show(run.id).await.unwrap().steps {
                    if matches!(step.state, StepState::Done(_) | StepState::Failed(_)) {
                        recorded.insert((run.key.clone().unwrap_or_default(), step.name));
                    }
                }
            }
            recorded
        })
    }

    /// A person who asks the world about every held run and says what it says.
    async fn resolve_held(client: &Client, world: &World) {
        let held = client.runs().state(RunState::Held).limit(1000).list().await.unwrap();
        for run in &held {
            let why = client.why_not_running(run.id).await.unwrap();
            if !matches!(why, Some(Reason::Held(_))) {
                continue;
            }
            let key = run.key.clone().unwrap();
            let view = client.show(run.id).await.unwrap();
            let Some(step) = view.steps.iter().find(|step| matches!(step.state, StepState::Intended | StepState::InDoubt(_)))
            else {
                continue;
            };
            assert_eq!(step.name, "held#0", "only this one waits for a person: {why:?}");
            let executed = world.events().into_iter().rev().find(|event| {
                event.what == "call" && event.run == key && event.step == step.name && world.ask(&event.key).is_some()
            });
            let fate = match executed.and_then(|event| world.ask(&event.key)) {
                Some(receipt) => lobster_core::Fate::Happened(receipt),
                None => lobster_core::Fate::Closed,
            };
            while let Err(error) = client.resolve(run.id, step.id, fate).await {
                // Another person, or its holder, was quicker.
                if matches!(error.kind(), ErrorKind::Held | ErrorKind::Conflict) {
                    break;
                }
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            }
        }
    }

    /// Waits for the end of a worker, beside a person who resolves what is held as soon as the store hints at it.
    ///
    /// That worker lives, so that every hold after this began is hinted at.
    fn beside_a_person(&self, mut worker: Child) -> ExitStatus {
        let (tell, mut ended) = oneshot::channel();
        let waits = std::thread::spawn(move || tell.send(worker.wait().unwrap()));
        let status = self.look_on(async |client, tiers| {
            loop {
                let hints = tiers.wake.hints();
                Self::resolve_held(client, &self.world).await;
                tokio::select! {
                    biased;
                    status = &mut ended => return status.unwrap(),
                    _ = tiers.wake.hinted(hints) => {}
                }
            }
        });
        waits.join().unwrap().unwrap();
        status
    }

    /// A worker that lives to the end, beside a person who resolves what is held.
    fn finish(&self) {
        let status = self.beside_a_person(self.worker(None));
        assert!(status.success(), "{status:?}");
        self.check_all();
    }

    /// What begins after a kill: nothing that was recorded, and of a run at most one key step that had begun before.
    fn beyond(&self, kill: &str, goes_on: impl FnOnce(&Self)) {
        let recorded = self.recorded();
        let before = self.world.events();
        goes_on(self);
        let after = self.world.events();
        let (old, new) = (begun(&before), begun(&after[before.len()..]));
        for step in new.keys() {
            assert!(!recorded.contains(step), "{kill}: {step:?} was recorded and ran again");
        }
        let mut again: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (run, step) in new.keys().filter(|step| old.contains_key(step)) {
            if ["durable#0", "retried#0", "probed#0", "held#0"].contains(&step.as_str()) {
                again.entry(run).or_default().push(step);
            }
        }
        for (run, steps) in again {
            assert!(steps.len() <= 1, "{kill}: {run} ran {steps:?} again");
        }
    }

    /// Everything ended, nothing lost, nothing doubled.
    fn check_all(&self) {
        let states = self.look(async |client| {
            let runs = client.runs().limit(1000).list().await.unwrap();
            runs.into_iter().map(|run| (run.key.unwrap_or_default(), run.state, run.reason)).collect::<Vec<_>>()
        });
        assert_eq!(states.len(), self.runs as usize, "one run a key");
        for (key, state, reason) in &states {
            assert_eq!(*state, RunState::Succeeded, "{key} {reason}");
        }
        let executed = self.world.executed();
        for n in 0..self.runs {
            for step in ["retried#0", "probed#0", "held#0"] {
                let keys = executed.get(&(format!("job-{n}"), step.to_owned())).map_or(0, BTreeSet::len);
                assert_eq!(keys, 1, "job-{n} {step} was executed under {keys} keys");
            }
        }
    }
}

/// Bodies and calls of a step, by run, in some events.
fn begun(events: &[Event]) -> BTreeMap<(String, String), u32> {
    let mut begun = BTreeMap::new();
    for event in events.iter().filter(|event| event.what != "ask") {
        *begun.entry((event.run.clone(), event.step.clone())).or_default() += 1;
    }
    begun
}

/// xorshift64, G. Marsaglia 2003.
struct Draw(u64);

impl Draw {
    fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// How often, unless the environment says otherwise (`tests/run --full` does).
fn number(variable: &str, default: u32) -> u32 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

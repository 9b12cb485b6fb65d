//! Real kills: SIGKILL at every named point and at random moments, SIGSTOP past the lease.
//!
//! Rule: nothing lost, nothing doubled, nothing recorded run again, at most one key step re-run per crash and run.

use lobster_core::{Client, ErrorKind, Field, Lobster, Log, Reason, RunState, Settings, State, StepState, StepView, Table};
use lobster_store::Tiers;
use lobster_tests::{
    stores_in,
    world::{Event, World},
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};
use tokio::sync::oneshot;

/// Runs of one scenario.
const RUNS: u32 = 8;

struct Scenario {
    folder: tempfile::TempDir,
    world: World,
    address: String,
    kills: u32,
    runs: u32,
}

impl Scenario {
    fn new() -> Self {
        Self::of(RUNS)
    }
    fn of(runs: u32) -> Self {
        let world = World::default();
        let address = world.listen().to_string();
        Self { folder: tempfile::tempdir().unwrap(), world, address, kills: 0, runs }
    }
    fn database(&self) -> PathBuf {
        self.folder.path().join("runs.db")
    }
    fn url(&self) -> String {
        format!("sqlite://{}", self.database().display())
    }
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command.args([&self.url(), &self.address]).env_remove("LOBSTER_CRASH").stdout(Stdio::null());
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
            *self = Self { kills: self.kills, ..Self::new() };
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
            let tiers = stores_in(&self.database()).await;
            let client = Lobster::open(&self.url()).tiers(tiers.clone()).settings(Settings::test()).connect().await.unwrap();
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

/// Kills at a point five times, each time on top of what the last one left, and checks after each.
fn killed_at(point: &str) {
    let mut scenario = Scenario::new();
    let passes = number("LOBSTER_PASSES", 5);
    for pass in 1..=passes {
        // P0 and the like are passed once in a process.
        let pass = if point == "P0" { 1 } else { pass };
        scenario.die_at(point, pass);
        scenario.beyond(&format!("{point}:{pass}"), Scenario::finish);
        scenario = Scenario { kills: scenario.kills, ..Scenario::new() };
    }
    assert_eq!(scenario.kills, passes);
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

macro_rules! points {
    ($($name:ident: $point:literal,)*) => {$(
        #[test]
        fn $name() {
            killed_at($point);
        }
    )*};
}

points! {
    killed_before_the_first_claim: "P0",
    killed_with_a_claim_sent: "P1",
    killed_with_a_claim_acknowledged: "P2",
    killed_with_a_recording_read: "P3",
    killed_in_a_step_body: "P7",
    killed_with_a_flush_sent: "P10",
    killed_with_a_flush_acknowledged: "P11",
    killed_with_an_intent_sent: "P12",
    killed_with_an_intent_acknowledged_and_no_call_begun: "P13",
    killed_with_a_call_applied_and_no_answer_here: "P14",
    killed_with_an_answer_here: "P15",
    killed_with_a_result_sent: "P16",
    killed_with_a_result_acknowledged: "P17",
    killed_between_steps: "P19",
    killed_with_a_finish_sent: "P20",
    killed_with_a_finish_acknowledged: "P21",
    killed_with_a_release_sent: "P22",
    killed_with_a_release_acknowledged: "P23",
    killed_with_a_submit_sent: "submit sent",
}

// ---- state ----------------------------------------------------------------------------------------------------------

/// As `worker` has it.
#[derive(State, Default)]
#[allow(dead_code, reason = "a struct of a state is read by its members")]
struct Pages {
    next: Field<u32>,
    seen: Log<u32>,
    counts: Table<u32, u32>,
}

const BOOKS: u32 = 4;

/// Starts a worker on all books, of so many rounds each.
fn books(scenario: &Scenario, rounds: u32, crash: Option<&str>) -> Child {
    let mut command = scenario.command();
    command.args(["books", &BOOKS.to_string(), &rounds.to_string()]);
    if let Some(crash) = crash {
        command.env("LOBSTER_CRASH", crash);
    }
    command.spawn().unwrap()
}

/// Every round is in the state once, and a `durable` one was begun again at most once a kill and run.
fn check_books(scenario: &Scenario, rounds: u32) {
    scenario.look(async |client| {
        for n in 0..BOOKS {
            let run = client.find(format!("book-{n}")).await.unwrap().unwrap();
            let pages: Pages = client.state(run, Pages::NAME).await.unwrap().unwrap();
            assert_eq!(pages.seen.to_vec(), (0..rounds).collect::<Vec<_>>(), "book-{n}");
            assert_eq!(pages.counts.values().sum::<u32>(), rounds, "book-{n}");
            let view = client.show(run).await.unwrap();
            let steps: Vec<_> = view.steps.iter().map(|step| step.name.as_str()).collect();
            assert_eq!(steps, ["page#0", "leaf#0"], "a constant history");
        }
    });
    let begun = begun(&scenario.world.events());
    for n in 0..BOOKS {
        let of = |kind: &'static str| {
            let book = format!("book-{n}");
            begun.iter().filter(move |((run, step), _)| *run == book && step.starts_with(kind)).map(|(_, count)| *count)
        };
        assert_eq!((of("page").count(), of("leaf").count()), (30, rounds as usize - 30), "book-{n}");
        let again: u32 = of("page").map(|count| count - 1).sum();
        assert!(again <= scenario.kills, "book-{n}: {again} pages for {} kills", scenario.kills);
    }
}

fn books_killed_at(point: &str) {
    const ROUNDS: u32 = 200;
    for pass in 1..=number("LOBSTER_PASSES", 5) {
        let mut scenario = Scenario::new();
        // A second time on top of what the first one left, if there is that much.
        for pass in [pass, pass, 1] {
            let killed = books(&scenario, ROUNDS, Some(&format!("{point}:{pass}"))).wait().unwrap().signal() == Some(9);
            scenario.kills += u32::from(killed);
            if !killed && scenario.kills == 0 {
                // All is done: begin with fresh runs.
                scenario = Scenario::new();
            }
        }
        assert!(scenario.kills > 0, "{point} was never passed");
        assert!(books(&scenario, ROUNDS, None).wait().unwrap().success());
        check_books(&scenario, ROUNDS);
    }
}

macro_rules! points_of_books {
    ($($name:ident: $point:literal,)*) => {$(
        #[test]
        fn $name() {
            books_killed_at($point);
        }
    )*};
}

points_of_books! {
    killed_in_a_round: "P7",
    killed_with_a_round_sent: "P10",
    killed_with_a_round_acknowledged: "P11",
    killed_with_a_durable_round_sent: "P16",
    killed_with_a_durable_round_acknowledged: "P17",
    killed_with_a_fold_sent: "fold sent",
    killed_with_a_fold_acknowledged: "fold acknowledged",
}

#[test]
fn twenty_kills_at_random_rounds() {
    const ROUNDS: u32 = 3000;
    let mut draw = Draw::new();
    let mut scenario = Scenario::new();
    for _ in 0..20 {
        let mut worker = books(&scenario, ROUNDS, None);
        let heard = scenario.world.events().len();
        // Long enough for every run to be recorded further: a run that kills its process again and again is set aside.
        scenario.world.wait_for(heard + 400 + draw.below(200) as usize, Duration::from_millis(300));
        worker.kill().unwrap();
        if worker.wait().unwrap().signal() == Some(9) {
            scenario.kills += 1;
        }
    }
    assert!(scenario.kills > 0);
    assert!(books(&scenario, ROUNDS, None).wait().unwrap().success());
    check_books(&scenario, ROUNDS);
}

/// A process that only asks, killed while it asks.
fn asks(scenario: &Scenario, what: [&str; 2], crash: Option<&str>, fate: Option<u64>) -> Option<i32> {
    let mut command = scenario.command();
    command.args(what);
    if let Some(crash) = crash {
        command.env("LOBSTER_CRASH", crash);
    }
    if let Some(fate) = fate {
        command.env("FATE", fate.to_string());
    }
    command.spawn().unwrap().wait().unwrap().signal()
}

#[test]
fn killed_in_a_cancel() {
    for point in ["cancel sent", "cancel acknowledged"] {
        for _ in 0..5 {
            let mut scenario = Scenario::new();
            scenario.die_at("P14", 1);
            assert_eq!(asks(&scenario, ["cancel", "job-0"], Some(point), None), Some(9));
            assert_eq!(asks(&scenario, ["cancel", "job-0"], None, None), None);
            scenario.beside_a_person(scenario.worker(None));
            let states = scenario.look(async |client| {
                let runs = client.runs().limit(1000).list().await.unwrap();
                runs.into_iter().map(|run| (run.key.unwrap_or_default(), run.state)).collect::<BTreeMap<_, _>>()
            });
            assert_eq!(states.get("job-0"), Some(&RunState::Cancelled), "{point}");
            assert_eq!(states.values().filter(|state| **state == RunState::Succeeded).count(), RUNS as usize - 1);
        }
    }
}

/// Waits until a call waits for a person; `None`: all runs ended without. Returns the run's key, and what its world says of the call.
fn waits_for_a_person(scenario: &Scenario) -> Option<(String, Option<u64>)> {
    scenario.look_on(async |client, tiers| {
        loop {
            let hints = tiers.wake.hints();
            for run in client.runs().state(RunState::Held).limit(1000).list().await.unwrap() {
                let view = client.show(run.id).await.unwrap();
                let waits = |step: &&StepView| matches!(step.state, StepState::Intended | StepState::InDoubt(_));
                let Some(step) = view.steps.iter().find(waits) else { continue };
                assert_eq!(step.name, "held#0");
                let key = run.key.unwrap();
                let call = scenario.world.events().into_iter().find(|event| event.run == key && event.step == "held#0");
                return Some((key, call.and_then(|call| scenario.world.ask(&call.key))));
            }
            if client.runs().state(RunState::Succeeded).count().await.unwrap() == u64::from(RUNS) {
                return None;
            }
            tiers.wake.hinted(hints).await;
        }
    })
}

#[test]
fn killed_in_a_resolve() {
    for point in ["resolve sent", "resolve acknowledged"] {
        let mut kills = 0;
        while kills < 5 {
            let mut scenario = Scenario::new();
            // Dies in the first call of the held step of some run; P14 passes twice per run before it.
            scenario.die_at("P14", 2 * RUNS + 1);
            let worker = scenario.worker(None);
            // The death may have been in a call of another step: then nobody is asked.
            if let Some((key, fate)) = waits_for_a_person(&scenario) {
                assert_eq!(asks(&scenario, ["resolve", &key], Some(point), fate), Some(9));
                kills += 1;
                // Stated again, or found stated: the run goes on either way.
                asks(&scenario, ["resolve", &key], None, fate);
            }
            scenario.beside_a_person(worker);
            scenario.check_all();
        }
    }
}

#[test]
fn a_hundred_kills_at_random_moments() {
    let mut draw = Draw::new();
    let mut kills = 0;
    while kills < number("LOBSTER_KILLS", 100) {
        let scenario = Scenario::new();
        // Fewer than set a run aside: killed this fast, several processes in a row may record nothing new of it.
        for time in 0..4 {
            let killed = |scenario: &Scenario| {
                let mut worker = scenario.worker(None);
                let heard = scenario.world.events().len();
                scenario.world.wait_for(heard + 1 + draw.below(12) as usize, Duration::from_millis(300));
                worker.kill().unwrap();
                kills += u32::from(worker.wait().unwrap().signal() == Some(9));
            };
            scenario.beyond(&format!("kill {time}"), killed);
        }
        scenario.beyond("the last kill", Scenario::finish);
    }
}

/// Where no death can be proved, somebody else has to be silent for TTL and guard before it is taken for dead.
#[cfg(not(all(target_os = "linux", not(lobster_portable))))]
#[test]
fn without_a_proof_of_death_a_take_over_waits_for_the_lease() {
    let scenario = Scenario::of(1);
    assert_eq!(scenario.worker(Some("P14")).wait().unwrap().signal(), Some(9));
    let (heard, began) = (scenario.world.events().len(), std::time::Instant::now());
    let successor = scenario.worker(None);
    assert!(scenario.world.wait_for(heard + 1, Duration::from_secs(60)) > heard, "nobody takes the run over");
    let (waited, lease) = (began.elapsed(), Settings::test().lease);
    assert!(waited >= lease.ttl + lease.guard, "it was taken over after {waited:?}");
    assert!(scenario.beside_a_person(successor).success());
    scenario.check_all();
}

#[cfg(all(target_os = "linux", not(lobster_portable)))]
#[test]
fn a_restarted_process_and_a_living_sibling_take_over_without_waiting_for_the_lease() {
    let long = |scenario: &Scenario, crash: Option<&str>| {
        let mut command = scenario.command();
        command.args(["0", &RUNS.to_string()]).env("LONG_LEASE", "1");
        if let Some(crash) = crash {
            command.env("LOBSTER_CRASH", crash);
        }
        command.spawn().unwrap()
    };
    let finish = |scenario: &Scenario, worker: Child| {
        scenario.beside_a_person(worker);
        scenario.check_all();
    };
    let restarted = Scenario::new();
    assert_eq!(long(&restarted, Some("P14")).wait().unwrap().signal(), Some(9));
    let again = long(&restarted, None);
    finish(&restarted, again);

    loop {
        let shared = Scenario::new();
        let mut dies = long(&shared, Some("P14:3"));
        let sibling = long(&shared, None);
        let killed = dies.wait().unwrap().signal() == Some(9);
        finish(&shared, sibling);
        // Its sibling may have been quicker at all of it: then once more.
        if killed {
            break;
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

/// Waits until a child is stopped; `false`: it has ended.
fn stopped(child: &Child) -> bool {
    let (_, status) = waitpid(Some(pid(child)), WaitOptions::UNTRACED).unwrap().unwrap();
    status.stopped()
}

/// Stops a worker at a point until another has taken over and finished, then lets it go on.
fn frozen_at(point: &str) {
    // One run: with several, another thread may be stopped between the last check and the send, which no check can close.
    let (scenario, mut zombie) = loop {
        let scenario = Scenario::of(1);
        let mut zombie = scenario.worker(Some(&format!("{point}:1:stop")));
        assert!(stopped(&zombie), "{point} was never passed");
        // Stopped by another of its threads in the middle of a write it keeps every process from writing: that is SQLite.
        let gate = std::fs::File::options().read(true).write(true).open(scenario.folder.path().join("runs.db.gate")).unwrap();
        if gate.try_lock().is_ok() {
            break (scenario, zombie);
        }
        zombie.kill().unwrap();
        zombie.wait().unwrap();
    };
    scenario.finish();
    let stored = |scenario: &Scenario| {
        scenario.look(async |client| {
            let run = client.find("job-0").await.unwrap().unwrap();
            format!("{:?}", client.show(run).await.unwrap())
        })
    };
    let (before, rows) = (scenario.world.events().len(), stored(&scenario));
    kill_process(pid(&zombie), Signal::CONT).unwrap();
    // It finds its runs ended, writes nothing, and leaves.
    assert!(zombie.wait().unwrap().success());
    let late: Vec<_> = scenario.world.events()[before..].to_vec();
    assert!(late.iter().all(|event| event.what != "call"), "{point}: {late:?}");
    assert_eq!(stored(&scenario), rows, "{point}");
    scenario.check_all();
}

#[test]
fn frozen_past_its_lease_in_a_step_body() {
    frozen_at("P7");
}

#[test]
fn frozen_past_its_lease_with_an_intent_acknowledged() {
    frozen_at("P13");
}

#[test]
fn frozen_past_its_lease_with_a_result_sent() {
    frozen_at("P16");
}

//! Any two calls on one run at once: one of them comes first, and both are told so. Behind a pooler too, where a run of the tests has one.
//!
//! What must come out is asked of the memory tier, which does one thing after the other. The calls meet twice in each order: the later
//! one has looked at the tables before the earlier one commits (it waits at a gate in a row policy, before it locks anything), or it
//! finds the earlier one with its locks (which waits in a trigger).

use crate::kit::*;
use lobster_servers::shared::{self, by_the_pooler};
use lobster_store::{
    Tiers,
    conformance::TestClock,
    contract::{
        Answer, Batch, Beat, Boot, Evidence, Folded, Grant, Incarnation, NewVerdict, Origin, Row, RunId, Sealed, Stored, Then,
        Wall,
        record::{Fate, Kind, StepName},
    },
    memory::Memory,
};
use std::time::Duration;
use tokio::task::JoinHandle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Append,
    /// One row of results of one run, which the tier does by a statement of its own.
    Step,
    Finish,
    Hold,
    Claim,
    Revoke,
    Renew,
    Cancel,
    Verdict,
    Fold,
    Sweep,
}

use Call::{Append, Cancel, Claim, Finish, Fold, Hold, Renew, Revoke, Step, Sweep, Verdict};

const CALLS: [Call; 11] = [Append, Step, Finish, Hold, Claim, Revoke, Renew, Cancel, Verdict, Fold, Sweep];

/// Where the run is before the race. It has two rows, of which the last is an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Running,
    /// Running, of a node that was revoked.
    Orphan,
    Ready,
    Held,
    Ended,
}

const OWNER: u64 = 1;
const OTHER: u64 = 2;

fn owner() -> Incarnation {
    incarnation(OWNER)
}

/// The only run.
fn run() -> RunId {
    run_id(1)
}

fn hold() -> Then {
    Then::Hold { reason: "a person must look".to_owned(), wake: 0 }
}

fn silence() -> Evidence {
    Evidence::Silence { beat: 0, age: Duration::ZERO }
}

async fn begin(tiers: &Tiers, start: Start) -> Grant {
    join(tiers, owner()).await;
    join(tiers, incarnation(OTHER)).await;
    create(tiers, 1).await;
    let grant = claim(tiers, owner(), 1).await.remove(0);
    let mut rows = offer(&grant, 1);
    rows.rows.push(row(run(), grant.epoch, 2).intent());
    assert_eq!(append(tiers, batch(owner(), true, vec![rows])).await[0].tail, 2);
    let then = match start {
        Start::Running => return grant,
        Start::Orphan => {
            tiers.members.revoke(owner(), silence()).await.expect("a revoke is answered");
            return grant;
        }
        Start::Ready => Then::Release,
        Start::Held => hold(),
        Start::Ended => finish(run(), Wall(5)),
    };
    assert!(append(tiers, batch(owner(), true, vec![ends(&grant, 2, then)])).await[0].then);
    grant
}

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    text: String,
    /// It was not the time for it: the same again later.
    nothing: bool,
}

impl Told {
    fn of<T: std::fmt::Debug>(answer: T) -> Self {
        Self { text: format!("{answer:?}"), nothing: false }
    }
}

async fn make(call: Call, tiers: Tiers, grant: Grant) -> Told {
    let journal = &tiers.journal;
    let one = |offer| Batch { incarnation: owner(), synced: true, patient: None, offers: vec![offer] };
    let batch = match call {
        Append => {
            let mut rows = offer(&grant, 3);
            rows.rows.push(row(run(), grant.epoch, 4).intent());
            one(rows)
        }
        Step => {
            let mut rows = offer(&grant, 3);
            let body = rows.rows[0].deltas.take().map(|half| half.body);
            rows.rows = vec![Row::new(run(), grant.epoch, 3, 3, body, None)];
            one(rows)
        }
        Finish => one(ends(&grant, 2, finish(run(), Wall(5)))),
        Hold => one(ends(&grant, 2, hold())),
        Claim => {
            let grants = journal.claim(asks(incarnation(OTHER), 4)).await;
            return Told { nothing: grants.as_ref().is_ok_and(Vec::is_empty), ..Told::of(grants) };
        }
        Revoke => return Told::of(tiers.members.revoke(owner(), silence()).await),
        Renew => return Told::of(tiers.members.renew(owner(), Beat { seq: 1, at: Boot::default(), lapsed: true }).await),
        Cancel => return Told::of(journal.cancel(run(), outcome(run()), Wall(5)).await),
        Verdict => {
            let fate = Sealed::new(Kind::Verdict, run(), &Fate { happened: None, forced: false });
            let (step, origin) = (StepName::default(), Origin::Person);
            return Told::of(
                journal.verdict(NewVerdict { run: run(), step, intent: 2, tail: 2, origin, fate, at: Wall(0) }).await,
            );
        }
        Fold => {
            let folded = journal.fold(fold(&grant, owner(), 1)).await;
            return Told { nothing: matches!(folded, Ok(Folded::Busy)), ..Told::of(folded) };
        }
        Sweep => {
            let swept = journal.sweep(Wall(10), 10).await;
            return Told { nothing: matches!(swept, Ok(0)), ..Told::of(swept) };
        }
    };
    let answers = journal.append(batch).await;
    let nothing = answers.as_ref().is_ok_and(|answers| *answers == [Answer::Busy]);
    Told { nothing, ..Told::of(answers) }
}

/// All that is left of run and nodes.
async fn left(tiers: &Tiers, attempts_count: bool) -> String {
    let stored = tiers.catalog.read(run()).await.expect("a read is answered").map(|mut stored: Stored| {
        // The moment of the submit is the server's own.
        stored.summary.submitted = Wall(0);
        stored.summary.attempts *= u32::from(attempts_count);
        stored
    });
    let peers = tiers.members.peers().await.expect("peers are answered");
    let mut peers: Vec<_> = peers.into_iter().map(|peer| (peer.incarnation, peer.state, peer.beat)).collect();
    peers.sort_by_key(|(incarnation, ..)| *incarnation);
    format!("{stored:#?} {peers:?}")
}

/// One after the other.
async fn in_order(start: Start, calls: &[Call], attempts_count: bool) -> (Vec<Told>, String) {
    let tiers = Tiers::of(Memory::new(TestClock::new()), "memory");
    let grant = begin(&tiers, start).await;
    let mut told = Vec::new();
    for call in calls {
        told.push(make(*call, tiers.clone(), grant.clone()).await);
    }
    let left = left(&tiers, attempts_count).await;
    (told, left)
}

/// Two processes that can be stopped within a statement: the first after it has locked what it changes, the second after it has looked
/// and before it locks.
struct Ring {
    first: Process,
    second: Process,
    eye: Session,
    gate: Session,
    roles: [String; 2],
}

/// The advisory lock that stops the second, and the one that stops the first. A call waits there for as long as a slow machine takes.
const BEFORE: u8 = 1;
const AFTER: u8 = 2;

impl Ring {
    async fn new() -> Self {
        let url = shared::postgres();
        let mut eye = Session::of(&url).await;
        eye.tell(&schema()).await;
        let roles = ["first", "second"].map(|name| format!("{name}_{}", database(&url)));
        let [first, second] = &roles;
        eye.tell(&format!(
            "CREATE ROLE {first} LOGIN IN ROLE lobster_worker; CREATE ROLE {second} LOGIN IN ROLE lobster_worker;
            CREATE FUNCTION pass(n int8) RETURNS bool LANGUAGE plpgsql VOLATILE SET lock_timeout = 0 AS $$ BEGIN
                IF current_query() LIKE '%set_config%' THEN
                    PERFORM pg_advisory_lock_shared(n); PERFORM pg_advisory_unlock_shared(n);
                END IF;
                RETURN true;
            END $$;
            CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN
                PERFORM pg_advisory_lock_shared({AFTER}); PERFORM pg_advisory_unlock_shared({AFTER});
                RETURN COALESCE(NEW, OLD);
            END $$"
        ))
        .await;
        for table in ["runs", "nodes"] {
            eye.tell(&format!(
                "ALTER TABLE lobster.{table} ENABLE ROW LEVEL SECURITY;
                CREATE POLICY first ON lobster.{table} TO {first} USING (true);
                CREATE POLICY second ON lobster.{table} TO {second} USING (pass({BEFORE})) WITH CHECK (true)"
            ))
            .await;
        }
        for (table, events) in [("runs", "UPDATE OR DELETE"), ("nodes", "UPDATE OR DELETE"), ("manifests", "INSERT")] {
            eye.tell(&format!(
                "CREATE TRIGGER stop BEFORE {events} ON lobster.{table} FOR EACH ROW WHEN (current_user = '{first}')
                EXECUTE FUNCTION stop()"
            ))
            .await;
        }
        let gate = Session::of(&url).await;
        let (of_first, of_second) =
            (process(&by_the_pooler(&role(&url, first))).await, process(&by_the_pooler(&role(&url, second))).await);
        Self { first: of_first, second: of_second, eye, gate, roles }
    }

    async fn close(&mut self, gate: u8) {
        self.gate.tell(&format!("SELECT pg_advisory_lock({gate})")).await;
    }

    async fn open(&mut self, gate: u8) {
        self.gate.tell(&format!("SELECT pg_advisory_unlock({gate})")).await;
    }

    async fn begin(&mut self, start: Start) -> Grant {
        for table in [
            "runs",
            "inputs",
            "deltas",
            "changes",
            "manifests",
            "parts",
            "outcomes",
            "verdicts_in",
            "tags",
            "nodes",
            "node_tasks",
        ] {
            self.eye.tell(&format!("DELETE FROM lobster.{table}")).await;
        }
        // Both beat in its name, so that each can do everything.
        join(&self.first.tiers, owner()).await;
        join(&self.second.tiers, owner()).await;
        begin(&self.first.tiers, start).await
    }

    fn call(&self, who: usize, call: Call, grant: &Grant) -> JoinHandle<Told> {
        let tiers = if who == 0 { &self.first.tiers } else { &self.second.tiers };
        tokio::spawn(make(call, tiers.clone(), grant.clone()))
    }

    /// Waits until a call waits for a lock, or is done: `false`. The server's own cleaning of emptied tables, which locks whole tables for a
    /// moment, is nothing that a call stays at, nor is the lock that a hint takes of all databases of the server.
    async fn waits(&mut self, who: usize, call: &JoinHandle<Told>) -> bool {
        let role = &self.roles[who];
        let text = format!(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE usename = '{role}' AND state = 'active' AND wait_event_type = 'Lock'
                AND wait_event NOT IN ('relation', 'extend', 'object'))"
        );
        let looks = async {
            loop {
                match call.is_finished() {
                    true => return false,
                    false if self.eye.is(&text).await => return true,
                    false => {}
                }
            }
        };
        soon(looks).await
    }

    /// `later` has looked before `earlier` commits.
    async fn looked(&mut self, start: Start, earlier: Call, later: Call) {
        let grant = self.begin(start).await;
        self.close(BEFORE).await;
        let late = self.call(1, later, &grant);
        let overtakes = !self.waits(1, &late).await;
        // What a sweep or a renewal sees is nothing for it, it does not lock.
        assert!(!overtakes || [Sweep, Renew].contains(&later), "{start:?}, {later:?}: looks at the run or its node");
        let early = soon(self.call(0, earlier, &grant)).await.expect("no call panics");
        self.open(BEFORE).await;
        let mut late = soon(late).await.expect("no call panics");
        let searches = [Claim, Sweep].contains(&later);
        let seen = in_order(start, &[later], true).await.0.remove(0);
        let (mut expected, end) = match (overtakes, searches) {
            (true, _) => {
                let (mut told, end) = in_order(start, &[later, earlier], true).await;
                told.reverse();
                (told, end)
            }
            // What a claim or a sweep did not see when it looked, it finds the next time.
            (_, true) => in_order(start, &[earlier, later, later], true).await,
            _ => in_order(start, &[earlier, later], true).await,
        };
        // And a run that was there when a batch looked, and was gone when it locked, is locked by somebody for all the batch knows.
        if !overtakes && (searches || (earlier == Sweep && late.nothing)) {
            let again = make(later, self.second.tiers.clone(), grant).await;
            late = if searches { late } else { again };
        }
        if searches && seen.nothing {
            expected[1] = seen;
        }
        let what = format!("{start:?}: {earlier:?}, after {later:?} has looked");
        assert_eq!([early, late], expected[..2], "{what}");
        assert_eq!(left(&self.first.tiers, true).await, end, "{what}");
    }

    /// `later` comes while `earlier` has its locks.
    async fn locked(&mut self, start: Start, earlier: Call, later: Call) {
        let grant = self.begin(start).await;
        self.close(AFTER).await;
        let early = self.call(0, earlier, &grant);
        let stopped = self.waits(0, &early).await;
        // Whatever changes something stops at the gate.
        let idle = in_order(start, &[earlier], true).await.1 == in_order(start, &[], true).await.1;
        assert!(stopped || idle, "{start:?}: {earlier:?} has passed the gate");
        let late = self.call(1, later, &grant);
        // One that need not wait is done before the other is.
        let overtakes = !self.waits(1, &late).await && stopped;
        self.open(AFTER).await;
        let early = soon(early).await.expect("no call panics");
        let mut late = soon(late).await.expect("no call panics");
        let went_first = overtakes && !late.nothing;
        if overtakes && late.nothing {
            late = make(later, self.second.tiers.clone(), grant.clone()).await;
        }
        // A revoke does not wait for runs that are locked: those keep their counters.
        let attempts_count = ![earlier, later].contains(&Revoke);
        let order: &[Call] = match went_first {
            false => &[earlier, later],
            // What the other does meanwhile is nothing that this sweep has seen.
            true if earlier == Sweep => {
                make(earlier, self.first.tiers.clone(), grant).await;
                &[later, earlier, earlier]
            }
            true => &[later, earlier],
        };
        let (mut expected, end) = in_order(start, order, attempts_count).await;
        if went_first {
            expected.swap(0, 1);
        }
        assert_eq!([early, late], expected[..2], "{start:?}: {earlier:?} has its locks, {later:?} comes");
        assert_eq!(left(&self.first.tiers, attempts_count).await, end, "{start:?}: {earlier:?} has its locks, {later:?} comes");
    }
}

fn all_pairs(start: Start) {
    block_on(async {
        let mut ring = Ring::new().await;
        for earlier in CALLS {
            for later in CALLS {
                ring.looked(start, earlier, later).await;
                ring.locked(start, earlier, later).await;
            }
        }
    });
}

#[test]
fn of_a_running_run() {
    all_pairs(Start::Running);
}

#[test]
fn of_an_orphan() {
    all_pairs(Start::Orphan);
}

#[test]
fn of_a_ready_run() {
    all_pairs(Start::Ready);
}

#[test]
fn of_a_held_run() {
    all_pairs(Start::Held);
}

#[test]
fn of_an_ended_run() {
    all_pairs(Start::Ended);
}

//! The memory tier is what simulation stands on: it loses exactly what a real store may lose, names nodes as hosts do, and
//! tells a caller that breaks the rules.

use lobster_store::{
    conformance::TestClock,
    contract::{
        Answer, Batch, Beat, Catalog, Claim, Clock, Evidence, Failed, Fold, Folded, Grant, Incarnation, Journal, Members,
        NewNode, NewRun, Offer, Renewed, Revoked, Row, RunId, RunState, Sealed, Seen, StoredPart, TaskVersion, Then, Wake, Wall,
        record::{
            Came, Changed, Fact, Input, Intent, Kind, Manifest, MemberParts, Outcome, Part, PartRef, Payload, StateChange,
            StateParts, StepResult, Whole, encode_change, encode_delta,
        },
    },
    memory::Memory,
};
use std::{sync::Arc, time::Duration};
use uuid::Builder;

struct World {
    clock: Arc<TestClock>,
    store: Arc<Memory>,
}

fn work() -> TaskVersion {
    TaskVersion { task: "work".to_owned(), version: 1 }
}

fn incarnation(number: u8) -> Incarnation {
    Incarnation(Builder::from_random_bytes([number; 16]).into_uuid())
}

fn new_run(number: u8) -> NewRun {
    let id = RunId(Builder::from_unix_timestamp_millis(1, &[number; 10]).into_uuid());
    let input = Sealed::new(Kind::Input, id, &Input::default());
    NewRun { id, key: None, digest: [0; 32], task: work(), tags: Vec::new(), due: Wall(0), input }
}

fn row(run: RunId, epoch: u64, from: u64, facts: Vec<Fact>) -> Row {
    let (to, intent) = (from + facts.len() as u64 - 1, matches!(facts.as_slice(), [Fact::Intent(_)]));
    let body: bytes::Bytes = (from..).zip(facts).flat_map(|(seq, fact)| encode_delta(seq, fact)).collect::<Vec<u8>>().into();
    Row { intent, ..Row::new(run, epoch, from, to, Some(body), None) }
}

fn result() -> Fact {
    Fact::Result(StepResult { came: Some(Came::Value(Payload::default())), ..StepResult::default() })
}

fn offer(grant: &Grant, tail: u64) -> Offer {
    let rows = vec![row(grant.run, grant.epoch, tail + 1, vec![result()])];
    Offer { run: grant.run, epoch: grant.epoch, head: tail + 1, rows, progress: true, then: None }
}

impl World {
    fn new() -> Self {
        let clock = TestClock::new();
        Self { store: Memory::strict(clock.clone()), clock }
    }

    async fn join(&self, number: u8, name: Option<&str>) -> Result<String, Failed> {
        let (incarnation, name) = (incarnation(number), name.map(str::to_owned));
        let node = NewNode { incarnation, name, tasks: vec![work()], slots: 2, ttl: Duration::from_secs(10) };
        self.store.join(node).await.map(|joined| joined.name)
    }

    async fn granted(&self, number: u8) -> Grant {
        self.store.submit(vec![new_run(number)]).await.expect("memory answers");
        let asks = Claim { incarnation: incarnation(1), tasks: vec![work()], limit: 1, alone: false, now: self.clock.wall() };
        self.store.claim(asks).await.expect("memory answers").remove(0)
    }

    async fn append(&self, synced: bool, offers: Vec<Offer>) -> Result<Vec<Seen>, Failed> {
        let answers = self.store.append(Batch { incarnation: incarnation(1), synced, patient: None, offers }).await?;
        let seen = |answer| match answer {
            Answer::Seen(seen) => seen,
            Answer::Busy => panic!("memory is never busy"),
        };
        Ok(answers.into_iter().map(seen).collect())
    }

    async fn tail(&self, run: RunId) -> u64 {
        self.store.read(run).await.expect("memory answers").expect("the run exists").recording.deltas.len() as u64
    }
}

#[tokio::test]
async fn a_crash_takes_back_exactly_what_was_relaxed() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    let (one, two) = (world.granted(1).await, world.granted(2).await);
    world.append(true, vec![offer(&one, 0), offer(&two, 0)]).await.expect("the offers keep the rules");
    let before = world.store.read(one.run).await.expect("memory answers");
    for tail in [1, 2] {
        world.append(false, vec![offer(&one, tail)]).await.expect("the offer keeps the rules");
    }
    assert_eq!((world.tail(one.run).await, world.tail(two.run).await), (3, 1));
    world.store.crash_store();
    assert_eq!(world.store.read(one.run).await.expect("memory answers"), before);
    world.store.crash_store();
    assert_eq!((world.tail(one.run).await, world.tail(two.run).await), (1, 1), "nothing is taken back twice");
}

#[tokio::test]
async fn any_synced_write_makes_everything_durable() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    let grant = world.granted(1).await;
    world.append(false, vec![offer(&grant, 0)]).await.expect("the offer keeps the rules");
    world.store.submit(vec![new_run(2)]).await.expect("memory answers");
    world.store.crash_store();
    assert_eq!(world.tail(grant.run).await, 1);
}

#[tokio::test]
async fn a_call_that_writes_nothing_syncs_nothing() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    let grant = world.granted(1).await;
    let asks = Claim { incarnation: incarnation(1), tasks: vec![work()], limit: 9, alone: false, now: world.clock.wall() };
    world.append(false, vec![offer(&grant, 0)]).await.expect("the offer keeps the rules");
    world.store.submit(vec![new_run(1)]).await.expect("memory answers");
    assert_eq!(world.store.claim(asks).await.expect("memory answers"), []);
    assert_eq!(world.store.sweep(world.clock.wall(), 9).await.expect("memory answers"), 0);
    world.append(true, Vec::new()).await.expect("nothing keeps the rules");
    let refused = world.store.revoke(incarnation(1), Evidence::Death).await.expect("memory answers");
    assert_eq!(refused, Revoked::Refused);
    world.store.crash_store();
    assert_eq!(world.tail(grant.run).await, 0);
}

#[tokio::test]
async fn a_relaxed_end_comes_back_unless_it_was_told() {
    for told in [false, true] {
        let world = World::new();
        world.join(1, None).await.expect("the name is free");
        let grant = world.granted(1).await;
        let outcome = Sealed::new(Kind::Outcome, grant.run, &Outcome::default());
        let then = Some(Then::Finish { state: RunState::Succeeded, outcome, at: world.clock.wall() });
        let seen = world.append(false, vec![Offer { then, ..offer(&grant, 0) }]).await.expect("the offer keeps the rules");
        assert!(seen[0].then);
        if told {
            let outcomes = world.store.outcomes(&[grant.run]).await.expect("memory answers");
            assert!(matches!(outcomes.as_slice(), [Some(Some(_))]));
        }
        world.store.crash_store();
        let row = world.store.read(grant.run).await.expect("memory answers").expect("the run exists").summary;
        assert_eq!(row.state, if told { RunState::Succeeded } else { RunState::Running });
        assert_eq!(row.owner, (!told).then_some(incarnation(1)));
    }
}

#[tokio::test]
async fn a_relaxed_eviction_that_was_lost_is_not_claimed() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    let grant = world.granted(1).await;
    world.append(false, vec![Offer { then: Some(Then::Release), ..offer(&grant, 0) }]).await.expect("the offer keeps the rules");
    world.store.crash_store();
    let asks = Claim { incarnation: incarnation(1), tasks: vec![work()], limit: 9, alone: false, now: world.clock.wall() };
    assert_eq!(world.store.claim(asks).await.expect("memory answers"), [], "its indexes went back with it");
}

#[tokio::test]
async fn a_crash_takes_renewals_back() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    world.clock.advance(Duration::from_secs(5));
    for seq in 1..=3 {
        let beat = Beat { seq, at: world.clock.boot(), lapsed: false };
        assert_eq!(world.store.renew(incarnation(1), beat).await.expect("memory answers"), Renewed::Good);
    }
    world.store.crash_store();
    let peer = world.store.peers().await.expect("memory answers").remove(0);
    assert_eq!((peer.beat, peer.age), (0, Some(Duration::from_secs(5))));
}

#[tokio::test]
async fn a_beat_from_the_future_has_no_age() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    let beat = Beat { seq: 1, at: world.clock.boot() + Duration::from_secs(1), lapsed: false };
    world.store.renew(incarnation(1), beat).await.expect("memory answers");
    assert_eq!(world.store.peers().await.expect("memory answers")[0].age, None);
    let age = Duration::from_nanos(1);
    let refused = world.store.revoke(incarnation(1), Evidence::Silence { beat: 1, age }).await.expect("memory answers");
    assert_eq!(refused, Revoked::Refused);
}

#[tokio::test]
async fn the_calendar_moves_no_lease() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    for years in [-10, 10] {
        world.clock.set_wall(Wall(world.clock.wall().0 + years * 365 * 24 * 3_600_000));
        assert_eq!(world.store.peers().await.expect("memory answers")[0].age, Some(Duration::ZERO));
    }
}

#[tokio::test]
async fn nodes_take_the_first_free_slot() {
    let world = World::new();
    for (number, name) in [(1, "memory-0"), (2, "memory-1"), (3, "memory-2")] {
        assert_eq!(world.join(number, None).await.expect("a slot is free"), name);
    }
    world.store.kill(incarnation(2));
    world.store.leave(incarnation(1)).await.expect("memory answers");
    let silence = Evidence::Silence { beat: 0, age: Duration::ZERO };
    world.store.revoke(incarnation(3), silence).await.expect("memory answers");
    for (number, name) in [(4, "memory-0"), (5, "memory-1"), (6, "memory-2"), (7, "memory-3")] {
        assert_eq!(world.join(number, None).await.expect("a slot is free"), name);
    }
}

#[tokio::test]
async fn a_fixed_name_may_look_like_a_slot() {
    let world = World::new();
    world.join(1, Some("memory-0")).await.expect("the name is free");
    assert_eq!(world.join(2, None).await.expect("a slot is free"), "memory-1");
    assert!(matches!(world.join(3, Some("memory-1")).await, Err(Failed::Refused(_))));
}

#[tokio::test]
async fn a_join_offered_again_is_the_same_join() {
    let world = World::new();
    let first = world.join(1, Some("anna")).await.expect("the name is free");
    assert_eq!(world.join(1, Some("anna")).await.expect("it has joined already"), first);
    world.store.leave(incarnation(1)).await.expect("memory answers");
    assert!(matches!(world.join(1, Some("anna")).await, Err(Failed::Refused(_))), "an incarnation that is over stays over");
}

#[tokio::test]
async fn a_kill_frees_the_name_and_proves_the_death_and_does_nothing_else() {
    let world = World::new();
    world.join(1, Some("anna")).await.expect("the name is free");
    let grant = world.granted(1).await;
    world.store.note(incarnation(1), 0, Some(grant.run));
    let (peers, run) = (world.store.peers().await, world.store.read(grant.run).await.expect("memory answers"));
    assert!(!world.store.proves_dead(incarnation(1)));
    world.store.kill(incarnation(1));
    assert!(world.store.proves_dead(incarnation(1)));
    assert_eq!(world.store.peers().await.expect("memory answers"), peers.expect("memory answers"));
    assert_eq!(world.store.read(grant.run).await.expect("memory answers"), run);
    world.join(2, Some("anna")).await.expect("the name is free again");
    let revoked = world.store.revoke(incarnation(1), Evidence::Death).await.expect("memory answers");
    assert_eq!(revoked, Revoked::Failed { suspects: vec![grant.run] }, "its notes outlived it");
}

#[tokio::test]
async fn notes_outlive_a_crash_of_the_store() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    let grant = world.granted(1).await;
    world.store.note(incarnation(1), 1, Some(grant.run));
    world.store.crash_store();
    world.store.kill(incarnation(1));
    let revoked = world.store.revoke(incarnation(1), Evidence::Death).await.expect("memory answers");
    assert_eq!(revoked, Revoked::Failed { suspects: vec![grant.run] });
}

#[tokio::test]
async fn waiters_are_woken_in_the_order_they_came() {
    let world = World::new();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let wait = |number: usize| {
        let (store, order) = (world.store.clone(), order.clone());
        async move {
            store.hinted(0).await;
            order.lock().expect("no waiter panics").push(number);
        }
    };
    let mut waiters = tokio::task::JoinSet::new();
    for number in 0..20 {
        waiters.spawn(wait(number));
    }
    tokio::task::yield_now().await;
    world.store.hint();
    waiters.join_all().await;
    assert_eq!(*order.lock().expect("no waiter panics"), (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_strict_store_tells_a_caller_that_breaks_the_rules() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    let grant = world.granted(1).await;
    let good = offer(&grant, 0);
    let then = |state| Then::Finish { state, outcome: Sealed::new(Kind::Outcome, grant.run, &Outcome::default()), at: Wall(1) };
    let mut flipped = good.clone();
    flipped.rows[0].mark ^= 1;
    let gap = Offer { head: 2, ..good.clone() };
    let intent = Intent::default();
    let mixed = vec![row(grant.run, grant.epoch, 1, vec![Fact::Intent(intent.clone()), result()])];
    let early = vec![row(grant.run, grant.epoch, 1, vec![Fact::Intent(intent)]), row(grant.run, grant.epoch, 2, vec![result()])];
    let three = (1..=3).map(|seq| row(grant.run, grant.epoch, seq, vec![result()])).collect();
    for broken in [
        vec![good.clone(), good.clone()],
        vec![flipped],
        vec![gap],
        vec![Offer { rows: mixed, ..good.clone() }],
        vec![Offer { rows: early, ..good.clone() }],
        vec![Offer { rows: three, ..good.clone() }],
        vec![Offer { progress: false, ..good.clone() }],
        vec![Offer { head: 0, rows: Vec::new(), ..good.clone() }],
        vec![Offer { then: Some(then(RunState::Ready)), ..good.clone() }],
    ] {
        let answer = world.append(true, broken.clone()).await;
        assert!(matches!(answer, Err(Failed::Internal(_) | Failed::Corrupt { .. })), "{broken:?}: {answer:?}");
    }
    assert_eq!(world.tail(grant.run).await, 0, "and writes nothing");
    world.append(true, vec![Offer { then: Some(then(RunState::Failed)), ..good }]).await.expect("this offer keeps the rules");
}

#[tokio::test]
async fn a_strict_store_tells_a_folder_that_breaks_the_rules() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    let grant = world.granted(1).await;
    world.append(true, vec![offer(&grant, 0)]).await.expect("the offer keeps the rules");
    let run = grant.run;
    let part = |id| StoredPart { id, sealed: Part { whole: Some(Whole::Value(vec![7].into())) }.seal(run, id) };
    let manifest = |seq, next_part, parts: &[StoredPart]| {
        let parts = parts.iter().map(|part| PartRef { id: part.id, crc: part.sealed.crc, bytes: 3, segment: part.id }).collect();
        let members = vec![MemberParts { member: "total".to_owned(), parts }];
        let states = vec![StateParts { members, ..StateParts::default() }];
        Sealed::new(Kind::Manifest, run, &Manifest { seq, states, next_part, ..Manifest::default() })
    };
    let good = Fold {
        incarnation: incarnation(1),
        run,
        epoch: grant.epoch,
        base: 0,
        seq: 1,
        manifest: manifest(1, 3, &[part(1), part(2)]),
        parts: vec![part(1), part(2)],
        dropped: vec![9],
    };
    let moved = StoredPart { id: 2, ..part(1) };
    for broken in [
        Fold { seq: 2, ..good.clone() },
        Fold { base: 1, ..good.clone() },
        Fold { manifest: Sealed { crc: good.manifest.crc ^ 1, ..good.manifest.clone() }, ..good.clone() },
        Fold { manifest: manifest(1, 3, &[part(1)]), ..good.clone() },
        Fold { manifest: manifest(1, 2, &[part(1), part(2)]), ..good.clone() },
        Fold { manifest: manifest(1, 3, &[part(1), moved.clone()]), parts: vec![part(1), moved], ..good.clone() },
        Fold { dropped: vec![2], ..good.clone() },
    ] {
        let answer = world.store.fold(broken.clone()).await;
        assert!(matches!(answer, Err(Failed::Internal(_) | Failed::Corrupt { .. })), "{broken:?}: {answer:?}");
    }
    let stored = world.store.read(run).await.expect("memory answers").expect("the run exists");
    assert_eq!(stored.recording.snapshot, None, "and writes nothing");
    assert_eq!(world.store.fold(good).await.expect("this fold keeps the rules"), Folded::Done);
}

#[tokio::test]
async fn a_strict_store_tells_whose_row_is_not_what_it_says() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    let grant = world.granted(1).await;
    let delta = |seq| encode_delta(seq, result());
    let change = |seq| encode_change(seq, Changed::State(StateChange::default()));
    let of = |to, deltas, changes| Row::new(grant.run, grant.epoch, 1, to, deltas, changes);
    for broken in [
        of(2, Some(delta(1)), None),
        of(3, Some(delta(1)), Some(change(3))),
        of(1, Some(delta(1)), Some(bytes::Bytes::new())),
        of(1, Some(bytes::Bytes::new()), Some(change(1))),
        of(1, None, None),
        of(1, Some(delta(2)), None),
        Row { mark: 7, ..of(1, Some(delta(1)), Some(change(1))) },
    ] {
        let answer = world.append(true, vec![Offer { rows: vec![broken.clone()], ..offer(&grant, 0) }]).await;
        assert!(matches!(answer, Err(Failed::Internal(_) | Failed::Corrupt { .. })), "{broken:?}: {answer:?}");
    }
    let rows = vec![of(2, Some(delta(1)), Some(change(2)))];
    world.append(true, vec![Offer { rows, ..offer(&grant, 0) }]).await.expect("each seq has a delta or a change");
}

#[tokio::test]
async fn a_crash_takes_back_exactly_the_folds_that_were_not_synced() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    let grant = world.granted(1).await;
    let rows = |seq| {
        let change = encode_change(seq, Changed::State(StateChange::default()));
        vec![Row::new(grant.run, grant.epoch, seq, seq, Some(encode_delta(seq, result())), Some(change))]
    };
    let append = |seq, synced| world.append(synced, vec![Offer { rows: rows(seq), ..offer(&grant, seq - 1) }]);
    let fold = |base, seq| {
        let (run, incarnation, epoch) = (grant.run, incarnation(1), grant.epoch);
        let manifest = Sealed::new(Kind::Manifest, run, &Manifest { seq, ..Manifest::default() });
        world.store.fold(Fold { incarnation, run, epoch, base, seq, manifest, parts: Vec::new(), dropped: Vec::new() })
    };
    let read = async || world.store.read(grant.run).await.expect("memory answers").expect("the run exists").recording;
    append(1, true).await.expect("the offer keeps the rules");
    assert_eq!(fold(0, 1).await.expect("memory answers"), Folded::Done);
    append(2, true).await.expect("the offer keeps the rules");
    let synced = read().await;
    assert_eq!((synced.snapshot.as_ref().map(|snapshot| snapshot.seq), synced.changes.len()), (Some(1), 1));
    append(3, false).await.expect("the offer keeps the rules");
    for (base, seq) in [(1, 2), (2, 3)] {
        assert_eq!(fold(base, seq).await.expect("memory answers"), Folded::Done);
    }
    append(4, false).await.expect("the offer keeps the rules");
    let durable = world.store.durable(grant.run).expect("the run exists").recording;
    assert_eq!(durable, synced);
    world.store.crash_store();
    assert_eq!(read().await, synced);
}

#[tokio::test]
async fn a_strict_store_tells_a_submitter_that_breaks_the_rules() {
    let world = World::new();
    let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
    let run = new_run(1);
    for broken in [
        NewRun { id: RunId(incarnation(1).0), ..run.clone() },
        NewRun { tags: tags(&["b", "a"]), ..run.clone() },
        NewRun { tags: tags(&["a", "a"]), ..run.clone() },
        NewRun { key: Some("k".repeat(201)), ..run.clone() },
        NewRun { input: new_run(2).input, ..run.clone() },
    ] {
        let answer = world.store.submit(vec![new_run(9), broken]).await;
        assert!(matches!(answer, Err(Failed::Internal(_) | Failed::Corrupt { .. })), "{answer:?}");
    }
    assert_eq!(world.store.count(Default::default()).await.expect("memory answers"), 0, "and writes nothing");
    let lenient = Memory::new(world.clock.clone());
    lenient.submit(vec![NewRun { tags: tags(&["b", "a"]), ..run }]).await.expect("only a strict store checks its caller");
}

#[tokio::test]
async fn what_a_crash_would_leave_can_be_read_before_it() {
    let world = World::new();
    world.join(1, None).await.expect("the name is free");
    let grant = world.granted(1).await;
    let durable = |world: &World| world.store.durable(grant.run).expect("the run exists").recording;
    world.append(true, vec![offer(&grant, 0)]).await.expect("memory answers");
    world.append(false, vec![offer(&grant, 1)]).await.expect("memory answers");
    let before = durable(&world);
    assert_eq!((before.tail, before.deltas.len()), (1, 1), "the second row is relaxed");
    assert_eq!(world.tail(grant.run).await, 2, "reading it changed nothing");
    world.store.crash_store();
    assert_eq!(durable(&world), before);
    assert_eq!(world.tail(grant.run).await, 1);
}

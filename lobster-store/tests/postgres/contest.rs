//! Owners that take runs from one another, rows that others keep locking, clients that freeze: nothing is lost, and only what must wait
//! waits.

use crate::kit::*;
use lobster_servers::{proxy::Proxy, shared};
use lobster_store::{
    Tiers,
    contract::{Answer, Batch, Evidence, Failed, Folded, Grant, Incarnation, NodeState, Revoked, RunId, Then},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

// ---- owners that take runs from one another --------------------------------------------------------------------------

const OWNERS: usize = 4;
const RUNS: u64 = 12;

/// Numbers from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn throw(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.throw(n) == 0
    }
}

/// What all owners know.
#[derive(Default)]
struct Field {
    incarnations: Mutex<Vec<Incarnation>>,
    made: AtomicU64,
    /// Rows that were acknowledged, by run and seq, with their epoch.
    acked: Mutex<BTreeMap<(RunId, u64), u64>>,
    steals: AtomicU64,
}

impl Field {
    /// A new incarnation, which others know of once it has joined.
    async fn join(&self, tiers: &Tiers, at: usize) -> Incarnation {
        let new = incarnation(1000 + self.made.fetch_add(1, Ordering::Relaxed));
        join(tiers, new).await;
        self.incarnations.lock().unwrap_or_else(PoisonError::into_inner)[at] = new;
        new
    }
    fn acked(&self, run: RunId, seq: u64, epoch: u64) {
        let before = self.acked.lock().unwrap_or_else(PoisonError::into_inner).insert((run, seq), epoch);
        assert_eq!(before, None, "row {seq} of {run} was acknowledged twice");
    }
}

/// An owner, which does not always know that it is none any more.
async fn fight(at: usize, tiers: Tiers, field: Arc<Field>, until: Instant) {
    let (mut dice, mut me) = (Dice(at as u64), field.join(&tiers, at).await);
    let mut mine: BTreeMap<RunId, Grant> = BTreeMap::new();
    while Instant::now() < until {
        if dice.one_in(12) {
            let victim = field.incarnations.lock().unwrap_or_else(PoisonError::into_inner)[dice.throw(OWNERS as u64) as usize];
            let evidence = Evidence::Silence { beat: 0, age: Duration::ZERO };
            tiers.members.revoke(victim, evidence).await.expect("a revoke is answered");
        }
        if mine.len() < 4 {
            for grant in claim(&tiers, me, 4).await {
                field.steals.fetch_add(u64::from(grant.epoch > 1), Ordering::Relaxed);
                mine.insert(grant.run, grant);
            }
        }
        let peers = tiers.members.peers().await.expect("peers are answered");
        if !peers.iter().any(|peer| peer.incarnation == me && peer.state == NodeState::Active) {
            // Its runs are lost sooner or later, or already; it tries once more before it is told.
            write(&tiers, me, &mut mine, &field, &mut dice).await;
            mine.clear();
            me = field.join(&tiers, at).await;
        }
        write(&tiers, me, &mut mine, &field, &mut dice).await;
    }
}

/// One batch, offered again now and then as after an unknown outcome.
async fn write(tiers: &Tiers, me: Incarnation, mine: &mut BTreeMap<RunId, Grant>, field: &Field, dice: &mut Dice) {
    let mut offers = Vec::new();
    for grant in mine.values() {
        if !dice.one_in(3) {
            let mut rows = offer(grant, grant.tail + 1);
            rows.rows.extend(dice.one_in(2).then(|| row(grant.run, grant.epoch, grant.tail + 2)));
            rows.then = dice.one_in(8).then_some(Then::Release);
            offers.push(rows);
        }
    }
    let batch = batch(me, dice.one_in(4), offers);
    let answers = tiers.journal.append(batch.clone()).await.expect("an append is answered");
    if dice.one_in(5) {
        let again = tiers.journal.append(batch.clone()).await.expect("an append is answered");
        for (first, second) in answers.iter().zip(&again) {
            let applied = |answer: &Answer| matches!(answer, Answer::Seen(seen) if seen.rows > 0);
            assert!(!(applied(first) && applied(second)), "applied twice: {first:?} {second:?}");
            // The second finds what the first found locked.
            if let (Answer::Busy, Answer::Seen(seen)) = (first, second) {
                mine.retain(|run, _| batch.offers.iter().all(|offer| offer.run != *run || seen.rows == 0));
            }
        }
        told(&batch, &again, &answers, mine, field);
    }
    told(&batch, &answers, &[], mine, field);
}

/// Keeps the books. What `before` had seen is in them already or will be.
fn told(batch: &Batch, answers: &[Answer], before: &[Answer], mine: &mut BTreeMap<RunId, Grant>, field: &Field) {
    for (at, (offer, answer)) in batch.offers.iter().zip(answers).enumerate() {
        let Answer::Seen(seen) = answer else { continue };
        for row in &offer.rows[..seen.rows] {
            field.acked(offer.run, row.to, offer.epoch);
        }
        if before.get(at).is_some_and(|before| matches!(before, Answer::Seen(_))) {
            continue;
        }
        if !seen.mine || seen.then {
            mine.remove(&offer.run);
        } else if let Some(grant) = mine.get_mut(&offer.run) {
            assert_eq!(seen.tail, offer.head - 1 + seen.rows as u64, "the tail of one's own run is no surprise");
            grant.tail = seen.tail;
        }
    }
}

#[test]
fn owners_that_take_runs_from_one_another_lose_and_double_nothing() {
    let long = std::env::var("LOBSTER_KILLS").is_ok_and(|kills| kills.parse().is_ok_and(|kills: u64| kills >= 2000));
    let url = shared::postgres();
    block_on(async {
        let (mut owners, way) = (Vec::new(), way(&url));
        for _ in 0..OWNERS {
            owners.push(process(&way).await);
        }
        let made = owners[0].tiers.journal.submit((0..RUNS).map(new_run).collect()).await.expect("a submit is answered");
        assert_eq!(made.len() as u64, RUNS);
        let field = Arc::new(Field { incarnations: Mutex::new(vec![incarnation(0); OWNERS]), ..Field::default() });
        let until = Instant::now() + Duration::from_secs(if long { 60 } else { 10 });
        let fights: Vec<_> =
            (0..OWNERS).map(|at| tokio::spawn(fight(at, owners[at].tiers.clone(), field.clone(), until))).collect();
        for fight in fights {
            fight.await.expect("no owner finds anything wrong");
        }
        let acked = field.acked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for number in 0..RUNS {
            let run = run_id(number);
            let stored = owners[0].tiers.catalog.read(run).await.expect("a read is answered").expect("the run is there");
            let rows: Vec<_> = stored.recording.deltas.iter().map(|row| (row.from, row.epoch)).collect();
            let expected: Vec<_> =
                acked.iter().filter(|((of, _), _)| *of == run).map(|((_, seq), epoch)| (*seq, *epoch)).collect();
            assert_eq!(rows, expected, "what was acknowledged is what is stored");
            assert!((1..).zip(&rows).all(|(seq, (stored, _))| seq == *stored), "no gap and nothing twice: {rows:?}");
            assert!(rows.windows(2).all(|pair| pair[0].1 <= pair[1].1), "epochs only grow");
            assert_eq!(stored.summary.tail, rows.len() as u64);
        }
        let steals = field.steals.load(Ordering::Relaxed);
        println!("{} rows, {steals} steals", acked.len());
        assert!(acked.len() > 100 && steals > 20, "{} rows, {steals} steals", acked.len());
        drop(owners);
        let mut eye = Session::of(&url).await;
        eye.until("SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database()").await;
        assert_eq!(eye.number("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").await, 0);
    });
}

// ---- a row that others keep locking ---------------------------------------------------------------------------------

#[test]
fn the_owner_of_a_run_that_sixteen_others_keep_locking_makes_progress() {
    let url = shared::postgres();
    block_on(async {
        let process = process(&way(&url)).await;
        let grant = owner(&process.tiers, incarnation(1), 1).await.remove(0);
        let over = Arc::new(AtomicBool::new(false));
        let rivals: Vec<_> = (0..16)
            .map(|_| {
                let (url, over, run) = (url.clone(), over.clone(), grant.run);
                tokio::spawn(async move {
                    let mut rival = Session::of(&url).await;
                    let text = format!(
                        "BEGIN; SELECT 1 FROM lobster.runs WHERE id = '{run}' FOR NO KEY UPDATE; SELECT pg_sleep(0.002); COMMIT"
                    );
                    while !over.load(Ordering::Relaxed) {
                        rival.tell(&text).await;
                    }
                })
            })
            .collect();
        let (mut most, mut patient, mut seq) = (0, 0, 0);
        // Rivals may be slow to come.
        while seq < 100 || patient < 10 {
            seq += 1;
            assert!(seq < 10_000, "the row is locked most of the time");
            let mut busy = 0;
            loop {
                // As the committer does it.
                let wait = (busy >= 3).then_some(Duration::from_secs(1));
                let batch = Batch { patient: wait, ..batch(incarnation(1), true, vec![offer(&grant, seq)]) };
                match process.tiers.journal.append(batch).await.expect("an append is answered").remove(0) {
                    Answer::Seen(seen) => break assert_eq!(seen.rows, 1),
                    Answer::Busy => busy += 1,
                }
            }
            most = most.max(busy);
            patient += u32::from(busy >= 3);
        }
        over.store(true, Ordering::Relaxed);
        for rival in rivals {
            rival.await.expect("a rival ends");
        }
        assert_eq!(most, 3, "whoever waits for the lock gets it");
    });
}

#[test]
fn a_run_that_a_person_has_locked_waits_alone_and_says_so() {
    let url = shared::postgres();
    block_on(async {
        let process = process(&way(&url)).await;
        let grants = owner(&process.tiers, incarnation(1), 3).await;
        let mut person = Session::of(&url).await;
        person.tell(&format!("BEGIN; SELECT 1 FROM lobster.runs WHERE id = '{}' FOR UPDATE", grants[1].run)).await;
        let offers = grants.iter().map(|grant| offer(grant, 1)).collect();
        let answers = process.tiers.journal.append(batch(incarnation(1), true, offers)).await.expect("an append is answered");
        let rows: Vec<_> =
            answers.iter().map(|answer| if let Answer::Seen(seen) = answer { Some(seen.rows) } else { None }).collect();
        assert_eq!(rows, [Some(1), None, Some(1)]);
        let folded = process.tiers.journal.fold(fold(&grants[1], incarnation(1), 1)).await.expect("a fold is answered");
        assert_eq!(folded, Folded::Busy);

        // A batch that waits for it does so for as long as it says.
        let alone =
            Batch { patient: Some(Duration::from_millis(300)), ..batch(incarnation(1), true, vec![offer(&grants[1], 1)]) };
        let began = Instant::now();
        assert_eq!(process.tiers.journal.append(alone.clone()).await.expect("an append is answered"), [Answer::Busy]);
        assert!(began.elapsed() >= Duration::from_millis(300));

        // A cancel waits for two seconds, and tells whoever asked what is in the way.
        let (run, began) = (grants[1].run, Instant::now());
        let failed = process.tiers.journal.cancel(run, outcome(run), HostClock::now()).await.expect_err("the row is locked");
        assert!(matches!(&failed, Failed::Unavailable(why) if why.contains("somebody's open transaction")), "{failed}");
        assert!(began.elapsed() >= Duration::from_secs(2) && began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());

        let waits = Batch { patient: Some(LONG), ..alone };
        let tiers = process.tiers.clone();
        let waits = tokio::spawn(async move { append(&tiers, waits).await });
        let mut eye = Session::of(&url).await;
        eye.until(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')",
        )
        .await;
        person.tell("COMMIT").await;
        assert_eq!(soon(waits).await.expect("it does not panic")[0].rows, 1, "it waited until the person was done");
    });
}

// ---- a client that freezes ------------------------------------------------------------------------------------------

/// Waits until a node's connection has been as it is for so long that a revoke takes it for frozen.
async fn frozen(eye: &mut Session, what: &str) {
    eye.until(&format!(
        "SELECT EXISTS (SELECT 1 FROM pg_stat_activity a JOIN lobster.nodes n ON n.connections = a.application_name
        WHERE n.incarnation = '{}' AND {what} AND a.state_change < clock_timestamp() - interval '1.1 s')",
        incarnation(1)
    ))
    .await;
}

/// Without a pooler. What becomes of a statement that is prepared each time, by one: `pooler.rs`.
#[test]
fn a_client_that_froze_before_the_end_of_its_statement_keeps_only_its_runs_and_only_until_it_is_revoked() {
    let url = shared::postgres();
    block_on(async {
        let (proxy, worker) = (Proxy::start(address(&url)), worker(&url));
        let freezes = process(&proxy.url_through(&worker)).await;
        let (other, mut eye) = (process(&worker).await, Session::of(&url).await);
        let grants = owner(&freezes.tiers, incarnation(1), 3).await;
        // Its connection has prepared the statement: from now on that is one message, and the end of it is the end of the transaction.
        append_one(&freezes.tiers, incarnation(1), &grants[0], 1, true).await;
        proxy.hold_back(5);
        let (tiers, batch) =
            (freezes.tiers.clone(), batch(incarnation(1), true, grants[1..].iter().map(|grant| offer(grant, 1)).collect()));
        let sent = batch.clone();
        let stuck = tokio::spawn(async move { tiers.journal.append(sent).await });
        frozen(&mut eye, "a.state = 'active' AND a.wait_event = 'ClientRead'").await;

        // Everybody else goes on.
        join(&other.tiers, incarnation(2)).await;
        create(&other.tiers, 9).await;
        let own = claim(&other.tiers, incarnation(2), 1).await.remove(0);
        append_one(&other.tiers, incarnation(2), &own, 1, true).await;

        let evidence = Evidence::Silence { beat: 0, age: Duration::ZERO };
        let revoked = other.tiers.members.revoke(incarnation(1), evidence).await.expect("a revoke waits for no run");
        assert_eq!(revoked, Revoked::Failed { suspects: Vec::new() });
        let mut taken = Vec::new();
        let takes = async {
            while taken.len() < 3 {
                taken.extend(claim(&other.tiers, incarnation(2), 4).await);
            }
        };
        soon(takes).await;
        assert!(taken.iter().all(|grant| grant.tail == u64::from(grant.run == grants[0].run)), "nothing of the batch was stored");

        proxy.hold_back(0);
        let failed = soon(stuck).await.expect("it does not panic").expect_err("its connection was ended");
        assert!(matches!(failed, Failed::Unknown(_)), "{failed}");
        let seen = append(&freezes.tiers, batch).await;
        assert!(seen.iter().all(|seen| !seen.mine && seen.rows == 0), "{seen:?}");
    });
}

#[test]
fn a_client_that_froze_within_a_transaction_keeps_its_run_only_until_it_is_revoked() {
    let url = shared::postgres();
    block_on(async {
        let way = way(&url);
        let (freezes, other, mut eye) = (process(&way).await, process(&way).await, Session::of(&url).await);
        let grants = owner(&freezes.tiers, incarnation(1), 2).await;
        let name = eye.ask("SELECT connections FROM lobster.nodes").await;
        let mut frozen_one = Session::of(&with(&way, &format!("application_name={}", name.replace(' ', "%20")))).await;
        frozen_one.tell(&format!("BEGIN; SELECT 1 FROM lobster.runs WHERE id = '{}' FOR UPDATE", grants[0].run)).await;
        frozen(&mut eye, "a.state = 'idle in transaction'").await;
        join(&other.tiers, incarnation(2)).await;
        let evidence = Evidence::Silence { beat: 0, age: Duration::ZERO };
        other.tiers.members.revoke(incarnation(1), evidence).await.expect("a revoke waits for no run");
        let mut taken = Vec::new();
        let takes = async {
            while taken.len() < 2 {
                taken.extend(claim(&other.tiers, incarnation(2), 4).await);
            }
        };
        soon(takes).await;
        assert!(frozen_one.try_tell("COMMIT").await.is_err(), "its session is over");
    });
}

#[test]
fn what_froze_at_the_moment_of_the_revoke_is_ended_by_the_next_sweep() {
    let url = shared::postgres();
    block_on(async {
        let way = way(&url);
        let (freezes, other, mut eye) = (process(&way).await, process(&way).await, Session::of(&url).await);
        let grants = owner(&freezes.tiers, incarnation(1), 1).await;
        join(&other.tiers, incarnation(2)).await;
        let name = eye.ask(&format!("SELECT connections FROM lobster.nodes WHERE incarnation = '{}'", incarnation(1))).await;
        let mut late = Session::of(&with(&way, &format!("application_name={}", name.replace(' ', "%20")))).await;
        late.tell(&format!("BEGIN; SELECT 1 FROM lobster.runs WHERE id = '{}' FOR UPDATE", grants[0].run)).await;
        let evidence = Evidence::Silence { beat: 0, age: Duration::ZERO };
        other.tiers.members.revoke(incarnation(1), evidence).await.expect("a revoke waits for no run");
        assert_eq!(claim(&other.tiers, incarnation(2), 1).await, [], "it may still be on its way");
        frozen(&mut eye, "a.state = 'idle in transaction'").await;
        other.tiers.journal.sweep(HostClock::now(), 1).await.expect("a sweep is answered");
        let takes = async { while claim(&other.tiers, incarnation(2), 1).await.is_empty() {} };
        soon(takes).await;
        assert!(late.try_tell("COMMIT").await.is_err(), "its session is over");
    });
}

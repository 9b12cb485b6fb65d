//! The SQLite tier and the memory tier answer the same to the same calls, whatever these are.

use crate::{kit::*, scratch::Scratch};
use lobster_store::{
    Tiers,
    conformance::TestClock,
    contract::{
        Batch, Claim, Evidence, Fold, Folded, Grant, Incarnation, NewVerdict, Offer, Origin, Row, RunFilter, RunId, RunState,
        Sealed, TaskVersion, Then, Wall, record,
    },
    memory::Memory,
    sqlite::Sqlite,
};
use std::{collections::HashMap, fmt::Debug, time::Duration};

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

struct Pair {
    memory: Tiers,
    sqlite: Tiers,
    dice: Dice,
    nodes: Vec<Incarnation>,
    grants: Vec<(Incarnation, Grant)>,
    /// Seqs of the snapshots.
    folded: HashMap<RunId, u64>,
    folds: usize,
    made: u64,
    now: i64,
}

/// Asks both, and insists on the same answer.
macro_rules! both {
    ($pair:expr, $tier:ident . $call:ident ( $($arg:expr),* )) => {{
        let of_memory = $pair.memory.$tier.$call($($arg.clone()),*).await;
        let of_sqlite = $pair.sqlite.$tier.$call($($arg.clone()),*).await;
        same(stringify!($call), of_memory, of_sqlite)
    }};
}

fn same<T: PartialEq + Debug, E: Debug>(call: &str, memory: Result<T, E>, sqlite: Result<T, E>) -> T {
    let (memory, sqlite) = (memory.expect("the memory tier answers"), sqlite.expect("the SQLite tier answers"));
    assert_eq!(sqlite, memory, "{call}");
    sqlite
}

impl Pair {
    fn task(&mut self) -> TaskVersion {
        let name = if self.dice.one_in(3) { "other" } else { "work" };
        TaskVersion { task: name.to_owned(), version: 1 + self.dice.throw(3) as u32 }
    }

    async fn submit(&mut self) {
        let mut runs = Vec::new();
        for _ in 0..self.dice.throw(4) {
            let again = self.dice.one_in(6) && self.made > 0;
            let number = if again { self.dice.throw(self.made) } else { self.made };
            self.made += u64::from(!again);
            let mut run = new_run(number);
            run.task = self.task();
            run.due = Wall(self.now + self.dice.throw(40) as i64 - 20);
            run.key = match self.dice.throw(3) {
                0 => None,
                1 => Some(format!("k{}", self.dice.throw(30))),
                _ => run.key,
            };
            run.digest = [self.dice.throw(2) as u8; 32];
            run.tags = if self.dice.one_in(2) { Vec::new() } else { vec!["a".to_owned(), "b".to_owned()] };
            runs.push(run);
        }
        both!(self, journal.submit(runs));
    }

    async fn claim(&mut self) {
        let mut tasks = vec![self.task()];
        if self.dice.one_in(2) {
            tasks.push(self.task());
            tasks.dedup_by(|a, b| a.task == b.task);
        }
        let incarnation = self.node();
        let limit = self.dice.throw(5) as usize;
        let claim = Claim { incarnation, tasks, limit, alone: self.dice.one_in(5), now: Wall(self.now) };
        let grants = both!(self, journal.claim(claim));
        let restored = same(
            "restore",
            self.memory.journal.restore(incarnation, &grants).await,
            self.sqlite.journal.restore(incarnation, &grants).await,
        );
        assert_eq!(restored.len(), grants.len());
        self.grants.extend(grants.into_iter().map(|grant| (incarnation, grant)));
    }

    fn node(&mut self) -> Incarnation {
        self.nodes[self.dice.throw(self.nodes.len() as u64) as usize]
    }

    fn then(&mut self, grant: &Grant) -> Option<Then> {
        let wake = grant.wake + u64::from(self.dice.one_in(4));
        match self.dice.throw(10) {
            0 => Some(Then::Release),
            1 => Some(Then::Evict { due: Wall(self.now + self.dice.throw(30) as i64), wake, reason: "sleeps".to_owned() }),
            2 => Some(Then::Hold { reason: "a person".to_owned(), wake }),
            3 => {
                let state = RunState::ALL[3 + self.dice.throw(4) as usize];
                Some(Then::Finish { state, outcome: outcome(grant.run), at: Wall(self.now) })
            }
            _ => None,
        }
    }

    /// A row of deltas, of changes, or of both.
    fn row(&mut self, grant: &Grant, seq: u64) -> Row {
        let full = full_row(grant.run, grant.epoch, seq, 10);
        let (deltas, changes) = (full.deltas.map(|half| half.body), full.changes.map(|half| half.body));
        let which = self.dice.throw(4);
        Row::new(grant.run, grant.epoch, seq, seq, deltas.filter(|_| which != 0), changes.filter(|_| which < 2))
    }

    async fn fold(&mut self) {
        if self.grants.is_empty() {
            return;
        }
        let at = self.dice.throw(self.grants.len() as u64) as usize;
        let (incarnation, grant) = self.grants[at].clone();
        let run = grant.run;
        let base = self.folded.get(&run).copied().unwrap_or(0) + u64::from(self.dice.one_in(8));
        let seq = base + 1 + self.dice.throw(3);
        let ids: Vec<_> = (0..self.dice.throw(4)).map(|_| 1 + self.dice.throw(9)).collect();
        let parts: Vec<_> = ids.iter().map(|id| part(run, *id, 20)).collect();
        let dropped = (0..self.dice.throw(3)).map(|_| 1 + self.dice.throw(9)).collect();
        let manifest = manifest(run, seq, &parts);
        let fold = Fold { incarnation, run, epoch: grant.epoch, base, seq, manifest, parts, dropped };
        if both!(self, journal.fold(fold)) == Folded::Done {
            self.folded.insert(run, seq);
            self.folds += 1;
        }
        let asked: Vec<_> = (0..5).map(|_| self.dice.throw(11)).collect();
        same("parts", self.memory.journal.parts(run, &asked).await, self.sqlite.journal.parts(run, &asked).await);
    }

    async fn append(&mut self) {
        let mut picked: Vec<usize> = Vec::new();
        for _ in 0..=self.dice.throw(3) {
            if !self.grants.is_empty() {
                picked.push(self.dice.throw(self.grants.len() as u64) as usize);
            }
        }
        let Some(incarnation) = picked.first().map(|at| self.grants[*at].0) else { return };
        picked.sort_unstable();
        picked.dedup();
        let mut offers: Vec<Offer> = Vec::new();
        let mut of = Vec::new();
        for at in picked {
            let grant = self.grants[at].1.clone();
            if offers.iter().any(|offer| offer.run == grant.run) {
                continue;
            }
            let head = grant.tail + 1 + u64::from(self.dice.one_in(8));
            let count = self.dice.throw(3);
            let mut rows: Vec<_> = (head..head + count).map(|seq| self.row(&grant, seq)).collect();
            if let Some(last) = rows.last_mut() {
                last.intent = self.dice.one_in(3);
            }
            let (progress, then) = (self.dice.one_in(2), self.then(&grant));
            offers.push(Offer { run: grant.run, epoch: grant.epoch, head, rows, progress, then });
            of.push(at);
        }
        let batch = Batch { incarnation, synced: self.dice.one_in(2), patient: None, offers };
        let answers = both!(self, journal.append(batch));
        for (at, answer) in of.into_iter().zip(answers) {
            if let lobster_store::contract::Answer::Seen(seen) = answer {
                (self.grants[at].1.tail, self.grants[at].1.wake) = (seen.tail, seen.wake);
            }
        }
    }

    async fn person(&mut self) {
        let run = run_id(self.dice.throw(self.made.max(1)));
        let at = Wall(self.now);
        if self.dice.one_in(2) {
            let outcome = outcome(run);
            both!(self, journal.cancel(run, outcome, at));
        } else {
            let fate = Sealed::new(record::Kind::Verdict, run, &record::Fate { happened: None, forced: false });
            let (step, intent, tail) = (record::StepName::default(), 1 + self.dice.throw(2), self.dice.throw(4));
            let verdict = NewVerdict { run, step, intent, tail, origin: Origin::Person, fate, at };
            both!(self, journal.verdict(verdict));
        }
    }

    async fn members(&mut self) {
        let at = self.dice.throw(self.nodes.len() as u64) as usize;
        let incarnation = self.nodes[at];
        for slot in 0..2 {
            let run = (!self.grants.is_empty()).then(|| {
                let at = self.dice.throw(self.grants.len() as u64) as usize;
                self.grants[at].1.run
            });
            self.memory.members.note(incarnation, slot, run);
            self.sqlite.members.note(incarnation, slot, run);
        }
        if self.dice.one_in(2) {
            let silence = Evidence::Silence { beat: 0, age: Duration::ZERO };
            both!(self, members.revoke(incarnation, silence));
        } else {
            both!(self, members.leave(incarnation));
        }
        self.made += 1;
        self.nodes[at] = incarnation_of(self.made);
        self.join(self.nodes[at]).await;
    }

    async fn join(&mut self, incarnation: Incarnation) {
        let mut node = new_node(incarnation);
        node.name = Some(incarnation.to_string());
        self.memory.members.join(node.clone()).await.expect("the memory tier answers");
        self.sqlite.members.join(node).await.expect("the SQLite tier answers");
    }

    async fn look(&mut self) {
        for node in self.nodes.clone() {
            let mut of_memory = self.memory.journal.attend(node).await.expect("the memory tier answers");
            let mut of_sqlite = self.sqlite.journal.attend(node).await.expect("the SQLite tier answers");
            of_memory.sort_by_key(|attention| attention.run);
            of_sqlite.sort_by_key(|attention| attention.run);
            assert_eq!(of_sqlite, of_memory);
        }
        let filter = RunFilter {
            task: self.dice.one_in(2).then(|| "work".to_owned()),
            states: if self.dice.one_in(2) { vec![RunState::Ready, RunState::Failed] } else { Vec::new() },
            tags: if self.dice.one_in(3) { vec!["a".to_owned(), "b".to_owned()] } else { Vec::new() },
            since: None,
            after: self.dice.one_in(3).then(|| run_id(self.dice.throw(self.made + 1))),
        };
        both!(self, catalog.list(filter, 7usize));
        both!(self, catalog.count(filter));
        let runs: Vec<_> = (0..5).map(|_| run_id(self.dice.throw(self.made + 1))).collect();
        same("outcomes", self.memory.catalog.outcomes(&runs).await, self.sqlite.catalog.outcomes(&runs).await);
    }

    async fn compare(&mut self) {
        for number in 0..=self.made {
            both!(self, catalog.read(run_id(number)));
        }
    }
}

fn incarnation_of(number: u64) -> Incarnation {
    incarnation(1_000_000 + number)
}

/// Returns how many folds were made.
async fn play(seed: u64, calls: usize) -> usize {
    let dir = Scratch::new();
    let clock = TestClock::new();
    let store = Sqlite::open(&dir.join("store.db"), clock.clone()).await.expect("the store can be opened");
    let mut pair = Pair {
        memory: Tiers::of(Memory::new(clock.clone()), "memory"),
        sqlite: Tiers::of(store, "sqlite"),
        dice: Dice(seed),
        nodes: vec![incarnation(1), incarnation(2), incarnation(3)],
        grants: Vec::new(),
        folded: HashMap::new(),
        folds: 0,
        made: 0,
        now: 1000,
    };
    for node in pair.nodes.clone() {
        pair.join(node).await;
    }
    for _ in 0..calls {
        pair.now += pair.dice.throw(5) as i64;
        match pair.dice.throw(24) {
            0..4 => pair.submit().await,
            4..8 => pair.claim().await,
            8..15 => pair.append().await,
            15..17 => pair.person().await,
            17 => pair.members().await,
            18 => pair.look().await,
            20..24 => pair.fold().await,
            _ => {
                let (before, limit) = (Wall(pair.now - 60), 3usize);
                both!(pair, journal.sweep(before, limit));
            }
        }
    }
    pair.compare().await;
    pair.folds
}

#[test]
fn both_tiers_answer_the_same() {
    let mut folds = 0;
    for seed in 0..12 {
        eprintln!("seed {seed}");
        folds += block_on(play(seed, 300));
    }
    assert!(folds > 20, "only {folds} folds were made");
}

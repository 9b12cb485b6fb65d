//! The last line: what really happened, from the ledger's file and the run records only.
//! Nothing here is counted by the processes that did the work.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::Path;

use rust_decimal::Decimal;
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{Connection, Row, SqliteConnection};

use crate::ledger::wire::Started;
use crate::ledger::{self, Kind};

/// What the ledger's file holds, as far as the figures need it.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Everything that was executed, in order.
    pub effects: Vec<Effect>,
    /// Requests to act that were refused.
    pub refused: u64,
    /// Every step body that has begun.
    pub bodies: Vec<Body>,
    /// Every start of the working process.
    pub starts: Vec<Started>,
    /// Kills of the working process.
    pub kills: u64,
}

/// A key that was executed.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The key.
    pub key: String,
    /// What was done.
    pub kind: Kind,
    /// To which order.
    pub order: u32,
    /// For how much.
    pub amount: Option<Decimal>,
}

/// A body that has begun.
#[derive(Clone, Debug)]
pub struct Body {
    /// The step.
    pub step: String,
    /// The order it worked for.
    pub order: u32,
    /// The process.
    pub pid: u32,
    /// When.
    pub at_ms: u64,
}

/// The figures of the last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Orders asked for.
    pub orders: usize,
    /// Of these, the ones with a charge.
    pub charged: usize,
    /// What was charged to them, once per order.
    pub total: Decimal,
    /// Keys executed for an (order, kind) that another key had been executed for.
    pub doubled: usize,
    /// Orders asked for without a charge, a shipment, a notice or a successful outcome.
    pub lost: usize,
    /// Requests that the ledger refused because it had executed (or closed) the key.
    pub refused: u64,
    /// Step bodies that have begun more than once.
    pub rerun_bodies: usize,
    /// Kills of the working process.
    pub kills: u64,
    /// From the start of a process after a kill to its first body, in milliseconds: median.
    pub resume_ms_p50: u64,
    /// The longest of these times.
    pub resume_ms_max: u64,
}

impl Figures {
    /// Nothing doubled, nothing lost.
    pub fn are_good(&self) -> bool {
        self.doubled == 0 && self.lost == 0
    }

    /// Counts, given the orders asked for and those whose run is recorded as successful.
    pub fn count(tables: &Tables, asked: &BTreeSet<u32>, succeeded: &BTreeSet<u32>) -> Self {
        let mut keys: BTreeMap<(u32, Kind), BTreeSet<&str>> = BTreeMap::new();
        let mut charges: BTreeMap<u32, Decimal> = BTreeMap::new();
        for effect in &tables.effects {
            keys.entry((effect.order, effect.kind)).or_default().insert(&effect.key);
            if effect.kind == Kind::Charge && asked.contains(&effect.order) {
                charges.entry(effect.order).or_insert(effect.amount.unwrap_or_default());
            }
        }
        let complete = |order: u32| succeeded.contains(&order) && Kind::ALL.iter().all(|kind| keys.contains_key(&(order, *kind)));

        let mut begun: HashMap<(&str, u32), u64> = HashMap::new();
        for body in &tables.bodies {
            *begun.entry((&body.step, body.order)).or_default() += 1;
        }
        let resumes = resume_times(&tables.starts, &tables.bodies);
        Self {
            orders: asked.len(),
            charged: charges.len(),
            total: charges.values().sum(),
            doubled: keys.values().map(|keys| keys.len() - 1).sum(),
            lost: asked.iter().filter(|order| !complete(**order)).count(),
            refused: tables.refused,
            rerun_bodies: begun.values().filter(|times| **times > 1).count(),
            kills: tables.kills,
            resume_ms_p50: resumes.get(resumes.len().saturating_sub(1) / 2).copied().unwrap_or(0),
            resume_ms_max: resumes.last().copied().unwrap_or(0),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { orders, charged, total, doubled, lost, refused, rerun_bodies, kills, resume_ms_p50, resume_ms_max } = self;
        write!(
            f,
            "orders={orders} charged={charged} total={total:.2} doubled={doubled} lost={lost} refused={refused} \
             rerun_bodies={rerun_bodies} kills={kills} resume_ms_p50={resume_ms_p50} resume_ms_max={resume_ms_max}"
        )
    }
}

/// For every start after a kill, the time to the first body of that process; sorted. A process id can come back, so a
/// body belongs to the last start of its process before it.
fn resume_times(starts: &[Started], bodies: &[Body]) -> Vec<u64> {
    let mut bodies_of: HashMap<u32, Vec<u64>> = HashMap::new();
    for body in bodies {
        bodies_of.entry(body.pid).or_default().push(body.at_ms);
    }
    let mut times: Vec<u64> = starts
        .iter()
        .filter(|start| start.after_kill)
        .filter_map(|start| {
            let same_pid = starts.iter().filter(|other| other.pid == start.pid && other.at_ms > start.at_ms);
            let until = same_pid.map(|other| other.at_ms).min().unwrap_or(u64::MAX);
            let its_own = bodies_of.get(&start.pid)?.iter().filter(|at_ms| (start.at_ms..until).contains(at_ms));
            its_own.min().map(|first| first - start.at_ms)
        })
        .collect();
    times.sort_unstable();
    times
}

/// Reads the tables of the ledger in `file`, which may be alive.
///
/// # Errors
/// The file is missing, or is no ledger.
pub async fn read_tables(file: &Path) -> Result<Tables, sqlx::Error> {
    let mut ledger = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(file).read_only(true)).await?;
    // One transaction, so that all tables are of one moment.
    let mut moment = ledger.begin().await?;
    let effects = sqlx::query("SELECT key, kind, order_id, amount FROM effects ORDER BY seq").fetch_all(&mut *moment).await?;
    let bodies = sqlx::query("SELECT step, order_id, pid, at_ms FROM bodies").fetch_all(&mut *moment).await?;
    let starts = sqlx::query("SELECT pid, at_ms, after_kill FROM starts ORDER BY at_ms").fetch_all(&mut *moment).await?;
    let refused: i64 = sqlx::query_scalar(ledger::COUNT_REFUSED).fetch_one(&mut *moment).await?;
    let kills: i64 = sqlx::query_scalar("SELECT count(*) FROM kills").fetch_one(&mut *moment).await?;
    moment.rollback().await?;
    ledger.close().await?;
    Ok(Tables {
        effects: effects.iter().map(effect_of).collect::<Result<_, _>>()?,
        refused: refused.unsigned_abs(),
        bodies: bodies.iter().map(body_of).collect::<Result<_, _>>()?,
        starts: starts.iter().map(start_of).collect::<Result<_, _>>()?,
        kills: kills.unsigned_abs(),
    })
}

fn effect_of(row: &SqliteRow) -> Result<Effect, sqlx::Error> {
    let (kind, amount) = (ledger::kind_of(row.try_get("kind")?)?, ledger::amount_of(row.try_get("amount")?)?);
    Ok(Effect { key: row.try_get("key")?, kind, order: row.try_get("order_id")?, amount })
}

fn body_of(row: &SqliteRow) -> Result<Body, sqlx::Error> {
    let at_ms: i64 = row.try_get("at_ms")?;
    let (step, order, pid) = (row.try_get("step")?, row.try_get("order_id")?, row.try_get("pid")?);
    Ok(Body { step, order, pid, at_ms: at_ms.unsigned_abs() })
}

fn start_of(row: &SqliteRow) -> Result<Started, sqlx::Error> {
    let at_ms: i64 = row.try_get("at_ms")?;
    Ok(Started { pid: row.try_get("pid")?, at_ms: at_ms.unsigned_abs(), after_kill: row.try_get("after_kill")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(key: &str, kind: Kind, order: u32, amount: &str) -> Effect {
        let amount = Decimal::from_str_exact(amount).expect("the test writes a decimal");
        Effect { key: key.into(), kind, order, amount: (kind == Kind::Charge).then_some(amount) }
    }

    fn body(step: &str, order: u32, pid: u32, at_ms: u64) -> Body {
        Body { step: step.into(), order, pid, at_ms }
    }

    fn start(pid: u32, at_ms: u64, after_kill: bool) -> Started {
        Started { pid, at_ms, after_kill }
    }

    /// Everything was done for these orders, once each.
    fn done(orders: &[u32]) -> Tables {
        let effects = orders
            .iter()
            .flat_map(|order| Kind::ALL.map(|kind| effect(&format!("{order}-{}", kind.word()), kind, *order, "10.05")));
        Tables { effects: effects.collect(), ..Tables::default() }
    }

    fn count(tables: &Tables, asked: &[u32], succeeded: &[u32]) -> Figures {
        Figures::count(tables, &asked.iter().copied().collect(), &succeeded.iter().copied().collect())
    }

    #[test]
    fn the_line_of_a_good_job_reads_as_documented() {
        let mut tables = done(&[1, 2]);
        tables.refused = 3;
        tables.kills = 2;
        tables.bodies =
            vec![body("price", 1, 7, 10), body("price", 2, 8, 125), body("price", 1, 8, 130), body("charge", 1, 9, 240)];
        tables.starts = vec![start(7, 1, false), start(8, 100, true), start(9, 200, true)];
        let figures = count(&tables, &[1, 2], &[1, 2]);
        assert!(figures.are_good());
        assert_eq!(
            figures.to_string(),
            "orders=2 charged=2 total=20.10 doubled=0 lost=0 refused=3 rerun_bodies=1 kills=2 resume_ms_p50=25 resume_ms_max=40"
        );
    }

    #[test]
    fn two_keys_for_one_charge_are_doubled_and_charged_once_in_the_total() {
        let mut tables = done(&[1, 2]);
        tables.effects.push(effect("another key", Kind::Charge, 1, "10.05"));
        tables.effects.push(effect("a third key", Kind::Charge, 1, "10.05"));
        tables.effects.push(effect("another key for the notice", Kind::Notify, 2, "0"));
        let figures = count(&tables, &[1, 2], &[1, 2]);
        assert_eq!((figures.doubled, figures.charged, figures.total.to_string()), (3, 2, "20.10".to_owned()));
        assert!(!figures.are_good());
    }

    #[test]
    fn whatever_an_order_lacks_makes_it_lost() {
        for lacking in Kind::ALL {
            let mut tables = done(&[1, 2]);
            tables.effects.retain(|effect| effect.order != 2 || effect.kind != lacking);
            let figures = count(&tables, &[1, 2], &[1, 2]);
            assert_eq!(figures.lost, 1, "without {lacking:?}");
            assert!(!figures.are_good());
        }
        assert_eq!(count(&done(&[1, 2]), &[1, 2], &[1]).lost, 1, "without an outcome");
        assert_eq!(count(&done(&[1]), &[1, 2, 3], &[1]).lost, 2, "never begun");
    }

    #[test]
    fn orders_that_were_not_asked_for_count_neither_as_charged_nor_as_lost() {
        let figures = count(&done(&[1, 2, 3]), &[1], &[1]);
        assert_eq!((figures.orders, figures.charged, figures.lost, figures.total.to_string()), (1, 1, 0, "10.05".to_owned()));
    }

    #[test]
    fn a_job_of_which_nothing_is_done_has_zero_figures() {
        assert_eq!(
            count(&Tables::default(), &[1, 2], &[]).to_string(),
            "orders=2 charged=0 total=0.00 doubled=0 lost=2 refused=0 rerun_bodies=0 kills=0 resume_ms_p50=0 resume_ms_max=0"
        );
    }

    #[test]
    fn the_time_to_resume_is_that_of_starts_after_a_kill_only() {
        let bodies = [body("a", 1, 7, 1_000), body("a", 2, 8, 5_030), body("a", 3, 8, 5_010), body("a", 4, 9, 9_100)];
        let starts = [start(7, 0, false), start(8, 5_000, true), start(9, 9_000, true), start(10, 9_500, true)];
        assert_eq!(resume_times(&starts, &bodies), [10, 100]);
    }

    #[test]
    fn a_process_id_that_came_back_keeps_its_lives_apart() {
        let bodies = [body("a", 1, 7, 1_020), body("a", 2, 7, 5_030)];
        assert_eq!(resume_times(&[start(7, 1_000, true), start(7, 5_000, true)], &bodies), [20, 30]);
        assert!(resume_times(&[start(7, 900, true), start(7, 1_010, false)], &bodies).is_empty());
    }

    #[test]
    fn the_median_of_an_even_number_is_the_lower_of_the_two_in_the_middle() {
        let mut tables = Tables::default();
        for (pid, ms) in [(1, 40), (2, 10), (3, 30), (4, 20)] {
            tables.starts.push(start(pid, 0, true));
            tables.bodies.push(body("a", pid, pid, ms));
        }
        let figures = count(&tables, &[], &[]);
        assert_eq!((figures.resume_ms_p50, figures.resume_ms_max), (20, 40));
    }
}

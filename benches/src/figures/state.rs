//! W6, W6log, W6table: one change of a large state, and what is written of it.
//!
//! Invariant: the state is filled and folded, and nothing is written of that any more, when the first change begins. Otherwise the fold of
//! what filled it, which is as large as the state, would fall among the changes that are measured.

use super::{Stage, Taken};
use crate::{Result, meter::Meter};
use lobster_core::{Ctx, Field, Lobster, Log, Member, State, StepCtx, Table, step, task};
use serde::{Deserialize, Serialize};
use std::{
    hint::black_box,
    sync::{Arc, LazyLock, Mutex},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// What the state is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Fields of [`FIELD`] bytes.
    Fields,
    /// Items of a log.
    Log,
    /// Entries of a table.
    Table,
}

/// What is told of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Microseconds of a step.
    Time,
    /// Bytes of records of a step, folds included.
    Bytes,
}

/// Fields of a [`Wide`].
pub const FIELDS: usize = 100;
/// Bytes of each.
pub const FIELD: usize = 10_000;
const ITEMS: u32 = 1_000_000;
const ENTRIES: u32 = 100_000;
/// Changes of a round.
const CHANGES: u32 = 500;
/// Items or entries of one filling step.
const CHUNK: u32 = 50_000;
/// So long nothing is written when everything is.
const QUIET: Duration = Duration::from_millis(200);

/// A value of so many bytes of JSON.
pub fn text(n: u32, bytes: usize) -> String {
    let number = n.to_string();
    // Padding by the formatter goes character by character, and would be most of what is measured.
    let mut text = vec![b'0'; (bytes - 2).max(number.len())];
    let at = text.len() - number.len();
    text[at..].copy_from_slice(number.as_bytes());
    String::from_utf8(text).expect("digits are UTF-8")
}

/// Many fields: the struct that a derive would write for `field_0` to `field_99`.
pub struct Wide(Vec<Field<String>>);

static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| (0..FIELDS).map(|n| &*format!("field_{n}").leak()).collect());

impl Default for Wide {
    fn default() -> Self {
        Self((0..FIELDS).map(|_| Field::default()).collect())
    }
}

impl State for Wide {
    const NAME: &'static str = "Wide";
    fn members(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn Member)) {
        for (name, field) in NAMES.iter().zip(&mut self.0) {
            visit(name, field);
        }
    }
}

#[derive(State, Default)]
struct Long {
    items: Log<String>,
}

#[derive(State, Default)]
struct Full {
    entries: Table<u32, String>,
}

/// Fills fields up to this one.
#[step]
pub async fn fill_fields(_ctx: &StepCtx, #[state] wide: &mut Wide) -> lobster_core::Result<()> {
    for (n, field) in (0..).zip(&mut wide.0) {
        field.set(text(n, FIELD));
    }
    Ok(())
}

#[step]
async fn fill_log(_ctx: &StepCtx, #[state] long: &mut Long, from: u32, to: u32) -> lobster_core::Result<()> {
    long.items.extend((from..to).map(|n| text(n, 20)));
    Ok(())
}

#[step]
async fn fill_table(_ctx: &StepCtx, #[state] full: &mut Full, from: u32, to: u32) -> lobster_core::Result<()> {
    for n in from..to {
        full.entries.insert(n, text(n, 20));
    }
    Ok(())
}

#[step]
async fn change_field(_ctx: &StepCtx, #[state] wide: &mut Wide, n: u32) -> lobster_core::Result<()> {
    wide.0[n as usize % FIELDS].set(text(1_000 + n, FIELD));
    Ok(())
}

#[step]
async fn append(_ctx: &StepCtx, #[state] long: &mut Long, n: u32) -> lobster_core::Result<()> {
    long.items.push(text(n, 20));
    Ok(())
}

/// Keys far from each other.
#[step]
async fn change_entry(_ctx: &StepCtx, #[state] full: &mut Full, n: u32, of: u32) -> lobster_core::Result<()> {
    full.entries.insert(n.wrapping_mul(7_919) % of, text(1_000_000 + n, 20));
    Ok(())
}

#[step(durable)]
async fn all_is_synced(_ctx: &StepCtx) -> lobster_core::Result<()> {
    Ok(())
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Plan {
    kind: Kind,
    size: u32,
    changes: u32,
}

/// The meter of the run that is measured, and what its body saw.
static SEEN: Mutex<(Option<Arc<Meter>>, Option<Seen>)> = Mutex::new((None, None));

/// Rings when the state is filled, and when what filled it is folded.
static FILLED: Notify = Notify::const_new();
static FOLDED: Notify = Notify::const_new();

#[derive(Clone, Copy)]
struct Seen {
    took: Duration,
    written_before: u64,
    syncs: u64,
}

#[task]
async fn changing(ctx: Ctx, plan: Plan) -> lobster_core::Result<()> {
    let Plan { kind, size, changes } = plan;
    let meter = SEEN.lock().expect("no code that can panic runs under this lock").0.clone().ok_or("nobody measures")?;
    for from in (0..size).step_by(CHUNK as usize) {
        let to = size.min(from + CHUNK);
        match kind {
            Kind::Fields => fill_fields(&ctx).await?,
            Kind::Log => fill_log(&ctx, from, to).await?,
            Kind::Table => fill_table(&ctx, from, to).await?,
        }
    }
    // One before those that count: whoever takes the state next lets go of what the step that filled it kept, in case it failed.
    change(&ctx, plan, changes).await?;
    all_is_synced(&ctx).await?;
    FILLED.notify_one();
    FOLDED.notified().await;
    let written_before = quiet(&meter).await;
    let (mark, began) = (meter.mark(), Instant::now());
    for n in 0..changes {
        change(&ctx, plan, n).await?;
    }
    let took = began.elapsed();
    all_is_synced(&ctx).await?;
    let seen = Seen { took, written_before, syncs: mark.until(meter.mark()).syncs };
    SEEN.lock().expect("no code that can panic runs under this lock").1 = Some(seen);
    Ok(())
}

async fn change(ctx: &Ctx, plan: Plan, n: u32) -> lobster_core::Result<()> {
    match plan.kind {
        Kind::Fields => change_field(ctx, n).await?,
        Kind::Log => append(ctx, n).await?,
        Kind::Table => change_entry(ctx, n, plan.size).await?,
    }
    Ok(())
}

/// Waits until nothing more is written; returns how much was.
async fn quiet(meter: &Meter) -> u64 {
    loop {
        let written = meter.written();
        tokio::time::sleep(QUIET).await;
        if meter.written() == written {
            return written;
        }
    }
}

struct Change {
    us: f64,
    bytes: f64,
    syncs: u64,
}

/// Changes of a state of this size, on a fresh store.
async fn changes(stage: &Stage<'_>, kind: Kind, size: u32) -> Result<Change> {
    let changes = stage.options.scaled(CHANGES);
    let (tiers, meter) = stage.site.store().await?;
    *SEEN.lock().expect("no code that can panic runs under this lock") = (Some(meter.clone()), None);
    let lobster = Lobster::open("").tiers(tiers).task(changing).start().await?;
    let run = lobster.submit(changing, Plan { kind, size, changes }).await?;
    tokio::select! {
        () = FILLED.notified() => {}
        outcome = run.outcome() => return Err(format!("it ended before its state was filled: {outcome:?}").into()),
    }
    lobster.fold(run.id()).await?;
    FOLDED.notify_one();
    run.outcome().await?;
    let written = quiet(&meter).await;
    lobster.shutdown(Duration::from_secs(5)).await;
    let seen = SEEN.lock().expect("no code that can panic runs under this lock").1.ok_or("the body saw nothing")?;
    Ok(Change {
        us: seen.took.as_secs_f64() * 1e6 / f64::from(changes),
        bytes: (written - seen.written_before) as f64 / f64::from(changes),
        syncs: seen.syncs,
    })
}

/// Of logs and tables beside the same of a tenth of the size; of fields beside encoding one, or beside writing all of them.
pub async fn round(stage: &Stage<'_>, kind: Kind, told: Told) -> Result<Taken> {
    let size = match kind {
        Kind::Fields => 1,
        Kind::Log => stage.options.scaled(ITEMS),
        Kind::Table => stage.options.scaled(ENTRIES),
    };
    let value = |change: &Change| match told {
        Told::Time => change.us,
        Told::Bytes => change.bytes,
    };
    let beside = match (kind, told) {
        (Kind::Fields, Told::Time) => encoding_us(),
        (Kind::Fields, Told::Bytes) => (FIELDS * FIELD) as f64,
        (Kind::Log | Kind::Table, _) => value(&changes(stage, kind, (size / 10).max(1)).await?),
    };
    let change = changes(stage, kind, size).await?;
    Ok(Taken { value: value(&change), syncs: change.syncs, beside: Some(beside) })
}

/// Microseconds to encode a field.
fn encoding_us() -> f64 {
    const TIMES: u32 = 1_000;
    let field = text(1, FIELD);
    let began = Instant::now();
    for _ in 0..TIMES {
        black_box(serde_json::to_vec(black_box(&field)).map(|bytes| bytes.len()).unwrap_or(0));
    }
    began.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES)
}

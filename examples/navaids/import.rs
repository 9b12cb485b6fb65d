//! The task: one import, page by page, whose state grows with every page. Each round of [`page()`] takes the next rows and leaves
//! in the state what is new; only that is recorded.

use std::sync::{Arc, OnceLock};

use lobster_core::{Base, Ctx, Field, Flow, Log, State, StepCtx, Table, step, task};
use lobster_examples::navaids::rows::{Navaid, PAGE};
use lobster_examples::navaids::tally::{Fact, Tally};
use lobster_examples::working;
use serde::{Deserialize, Serialize};

/// What is imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub file: String,
    pub rows: usize,
}

/// How far an import is, and what it has found.
#[derive(State, Default)]
pub struct Import {
    pub source: Base<Source>,
    /// Rows taken.
    pub cursor: Field<usize>,
    pub accepted: Log<Navaid>,
    /// Rows by country.
    pub countries: Table<String, u64>,
}

/// What a working process has besides its state: the rows, and where it says what happens.
pub struct World {
    pub rows: Vec<Navaid>,
    pub tally: Arc<Tally>,
    /// After so many pages a kill is due before the next.
    pub hold: Option<u64>,
}

static WORLD: OnceLock<World> = OnceLock::new();

/// Sets the world of all steps of this process; the first one stays.
pub fn live_in(world: World) {
    let _first_stays = WORLD.set(world);
}

fn world() -> &'static World {
    WORLD.get().expect("the worker sets the world before it starts the engine")
}

#[task(name = "navaids.import")]
pub async fn import(ctx: Ctx, source: Source) -> anyhow::Result<usize> {
    open(&ctx, &source).await?;
    Ok(ctx.repeat(page).await?)
}

#[step]
async fn open(_ctx: &StepCtx, #[state] import: &mut Import, source: &Source) -> anyhow::Result<()> {
    Ok(import.source.set(source.clone())?)
}

/// The next page; done when there is none.
#[step(durable)]
async fn page(_ctx: &StepCtx, #[state] import: &mut Import) -> anyhow::Result<Flow<usize>> {
    let World { rows, tally, hold } = world();
    let page = import.cursor.div_ceil(PAGE) as u64;
    working::finished(page);
    if hold.is_some_and(|hold| page > hold) {
        std::future::pending::<()>().await;
    }
    if *import.cursor >= import.source.rows {
        return Ok(Flow::Done(*import.cursor));
    }
    tally.add(&Fact::Page(page))?;
    for row in rows.iter().skip(*import.cursor).take(PAGE) {
        *import.countries.entry(row.iso_country.clone()).or_default() += 1;
        import.accepted.push(row.clone());
        import.cursor += 1;
    }
    Ok(Flow::Again)
}

//! W3, W3b: submits, by tasks at once and in bulk. Nothing executes them meanwhile.
//!
//! Invariant: the window closes when the last submit is acknowledged to its caller.

use super::Stage;
use crate::{Result, work};
use lobster_core::{Key, Lobster};
use tokio::task::JoinSet;

/// How runs are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One by one, by several tasks at once.
    Single,
    /// All in one call.
    All,
}

const TASKS: u32 = 16;
const EACH: u32 = 250;
const BULK: u32 = 10_000;

/// Runs per second, and synced statements.
pub async fn round(stage: &Stage<'_>, kind: Kind) -> Result<(f64, u64)> {
    let (tiers, meter) = stage.site.store().await?;
    let client = Lobster::open("").tiers(tiers).connect().await?;
    let key = |task: u32, n: u32| format!("run-{task}-{n}");
    let began = meter.mark();
    let runs = match kind {
        Kind::Single => {
            let each = stage.options.scaled(EACH);
            let mut tasks = JoinSet::new();
            for task in 0..TASKS {
                let client = client.clone();
                tasks.spawn(async move {
                    for n in 0..each {
                        client.submit(work::plain, n).key(key(task, n)).await?;
                    }
                    Ok::<(), lobster_core::Error>(())
                });
            }
            while let Some(done) = tasks.join_next().await {
                done??;
            }
            TASKS * each
        }
        Kind::All => {
            let runs = stage.options.scaled(BULK);
            client.submit_all(work::plain, (0..runs).map(|n| (Key::from(key(0, n)), n))).await?;
            runs
        }
    };
    let window = began.until(meter.mark());
    Ok((f64::from(runs) / window.took.as_secs_f64(), window.syncs))
}

//! A base is written once, so its value is only read.

use lobster_core::{Base, Field, Log, Result, State, StepCtx, step};

#[derive(State, Default)]
struct Import {
    source: Base<String>,
    accepted: Log<String>,
    cursor: Field<u64>,
}

#[step]
async fn page(_ctx: &StepCtx, #[state] import: &mut Import) -> Result<()> {
    import.source.push('x');
    *import.source = String::new();
    import.accepted[0].push('x');
    *import.cursor = 1;
    Ok(())
}

fn main() {}

//! What is no state is shown where it stands.

use lobster_core::{Result, StepCtx, step};

#[derive(Default)]
struct Import {
    cursor: u64,
}

#[step]
async fn page(_ctx: &StepCtx, #[state] import: &mut Import) -> Result<u64> {
    import.cursor += 1;
    Ok(import.cursor)
}

#[step]
async fn any<T: Default + Send + 'static>(_ctx: &StepCtx, #[state(name = "any")] any: &mut T) -> Result<()> {
    *any = T::default();
    Ok(())
}

fn main() {}

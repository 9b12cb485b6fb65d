//! State: what steps change besides their results. Only what changed is recorded, with the result of the step that changed it.
//!
//! Invariant: a change is recorded with its step's record or not at all, and costs what was changed, not what there is.

mod base;
pub(crate) mod content;
mod field;
pub(crate) mod loan;
mod log;
pub(crate) mod member;
pub(crate) mod migrate;
pub(crate) mod plan;
mod scratch;
mod table;

pub use base::{AlreadySet, Base};
pub use field::Field;
pub use loan::{Lease, Leases, Named, StateType, Wanted};
pub use log::Log;
pub use member::Member;
pub use migrate::{Members, Migration};
pub use scratch::Scratch;
pub use table::{Entry, Table};

/// A run's state: a struct whose members know what changed of them. Written by `#[derive(State)]`.
///
/// Steps take it as `#[state] s: &mut S`. What a step changes is recorded with its result, or not at all: a failed attempt, a panic
/// and a dropped future leave the state as it was. Bodies never see it. A run begins with `S::default()`; several states live side by
/// side under their names.
///
/// ```
/// use lobster_core::{Base, Ctx, Field, Lobster, Log, Result, State, StepCtx, Table, step, task};
///
/// #[derive(State, Default)]
/// struct Import {
///     source: Base<String>,         // written once
///     cursor: Field<u64>,           // a delta when it changed
///     accepted: Log<String>,        // a delta holds only the new items
///     totals: Table<String, u64>,   // a delta holds only the changed keys
/// }
///
/// #[step]
/// async fn next(_ctx: &StepCtx, #[state] import: &mut Import, word: &str) -> Result<u64> {
///     import.cursor += 1;
///     import.accepted.push(word.to_owned());
///     *import.totals.entry(word.to_owned()).or_default() += 1;
///     Ok(*import.cursor)
/// }
///
/// #[task]
/// async fn words(ctx: Ctx, all: Vec<String>) -> Result<u64> {
///     let mut count = 0;
///     for word in &all {
///         count = next(&ctx, word).await?;
///     }
///     Ok(count)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let lobster = Lobster::open("memory:").task(words).start().await?;
/// let run = lobster.submit(words, vec!["sea".to_owned(), "sand".to_owned(), "sea".to_owned()]).await?;
/// assert_eq!(run.outcome().await?, 3);
/// let import: Import = lobster.state(run.id(), Import::NAME).await?.expect("a step changed it");
/// assert_eq!(import.totals.get("sea"), Some(&2));
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a state",
    label = "not a state",
    note = "a state is a struct with `#[derive(State, Default)]` whose members are `Base`, `Field`, `Log`, `Table` or `Scratch`"
)]
pub trait State: Default + Send + 'static {
    /// Its name in a run, unless a step says another: `#[state(name = "..")]`. The derive takes the name of the struct.
    const NAME: &'static str;
    /// Version of its schema, from 1. A recorded state of a lower version is migrated, one of a higher version is left untouched.
    const VERSION: u32 = 1;
    /// How older versions become this one.
    const MIGRATIONS: &'static [Migration] = &[];
    /// Shows every member under its name, which is recorded: a member with another name is another member.
    fn members(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn Member));
    /// Fills every empty [`Scratch`]. Called before a step gets the state.
    fn rebuild(&mut self) {}
}

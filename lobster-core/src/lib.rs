//! Resumable, idempotent task steps as a library: work that survives crashes, deploys, lost hosts and stalled processes.
//!
//! A service marks its work with [`macro@task`] and [`macro@step`], submits runs by key and waits for outcomes. There is no
//! daemon: the processes of the service are all there is.
//!
//! ```
//! use lobster_core::{Ctx, Lobster, Result, StepCtx, step, task};
//!
//! #[step]
//! async fn price(_ctx: &StepCtx, item: &str) -> Result<u64> {
//!     Ok(item.len() as u64 * 100)
//! }
//!
//! #[step(irreversible, in_doubt = retry)]
//! async fn charge(ctx: &StepCtx, cents: u64) -> Result<String> {
//!     // Hand `ctx.idempotency_key()` to the payment service: it executes a key once.
//!     Ok(format!("charged {cents} under {}", ctx.idempotency_key()))
//! }
//!
//! #[task]
//! async fn checkout(ctx: Ctx, item: String) -> Result<String> {
//!     let cents = price(&ctx, &item).await?;
//!     Ok(charge(&ctx, cents).await?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let lobster = Lobster::open("memory:").task(checkout).start().await?;
//! let run = lobster.submit(checkout, "lobster".to_owned()).key("order-42").await?; // same key, same run
//! assert!(run.outcome().await?.starts_with("charged 700"));
//! # Ok(())
//! # }
//! ```
//!
//! What each kind of step promises, and what happens when the fate of an irreversible call is unknown, is told by the documentation
//! of [`macro@step`]. A `transactional` step writes to tables of the application in the very transaction that records it.
//!
//! The store is named by a URL: `sqlite://shop.db` for the processes of one machine (feature `sqlite`, on by default), `postgres://..` for those
//! of any number of hosts (feature `postgres`), `memory:` for tests. Tasks and steps are the same on each:
//!
//! ```no_run
//! # use lobster_core::{Ctx, Lobster, Result, Settings, task};
//! # #[task] async fn greet(_ctx: Ctx, name: String) -> Result<String> { Ok(format!("hello {name}")) }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let url = std::env::var("LOBSTER_STORE").unwrap_or("postgres://worker@db.example.com/shop?lobster_connections=20".into());
//! let lobster = Lobster::open(&url).task(greet).settings(Settings::fast()).start().await?;
//! # Ok(())
//! # }
//! ```

mod builder;
mod call;
mod check;
mod client;
mod codec;
mod committer;
mod conduct;
mod crash;
mod ctx;
mod drive;
mod engine;
mod error;
pub mod expand;
mod host;
mod image;
mod irreversible;
mod keeper;
mod lease;
mod live;
mod name;
mod outcomes;
mod path;
mod registry;
mod settings;
mod settle;
mod spec;
mod state;
mod step_key;
mod submit_in;
mod transactional;
mod view;
mod watch;
mod worker;

pub use builder::Builder;
pub use check::{Finding, FindingKind, Report};
pub use client::{Client, Handle, Query, Submit};
pub use ctx::{Ctx, Flow, StepCtx};
pub use engine::{Drained, Lobster};
pub use error::{BoxError, Error, ErrorKind, Marked, Result, RunFailed, StepErrorExt, StepFailed, StepFailedKind};
pub use host::{BoxFuture, Host, OsHost};
pub use irreversible::Fate;
#[cfg(feature = "macros")]
#[doc = include_str!("../docs/state.md")]
pub use lobster_macros::State;
#[cfg(feature = "macros")]
#[doc = include_str!("../docs/step.md")]
pub use lobster_macros::step;
#[cfg(feature = "macros")]
#[doc = include_str!("../docs/task.md")]
pub use lobster_macros::task;
pub use lobster_store as store;
pub use lobster_store::contract::{RunId, RunState, RunSummary, Tx, Wall};
#[cfg(feature = "postgres")]
pub use lobster_store::postgres::PgTx;
#[cfg(feature = "sqlite")]
pub use lobster_store::sqlite::SqliteTx;
pub use name::Key;
pub use registry::{Task, TaskFn, TaskOptions, TaskRun};
pub use settings::{CommitSettings, LeaseSettings, RetentionSettings, RunSettings, Settings, SnapshotSettings, StateSettings};
pub use state::{AlreadySet, Base, Entry, Field, Log, Member, Members, Migration, Scratch, State, Table};
pub use step_future::Step;
pub use submit_in::SubmitIn;
pub use view::{MemberView, Reason, RunView, StateView, StepState, StepView};

mod step_future;

/// Passes a named crash point: for bodies of crash tests (`P7`, `P14`, `P19`). Armed by `LOBSTER_CRASH`.
#[cfg(feature = "crash-points")]
pub fn crash_point(name: &str) {
    crash::point(name);
}

/// Compiles and runs the examples of the documents that are not part of this crate's own documentation.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/guides/first-run.md")]
    struct FirstRun;
    #[doc = include_str!("../../docs/guides/idempotency.md")]
    struct Idempotency;
    #[doc = include_str!("../../docs/guides/state.md")]
    struct State;
    #[doc = include_str!("../../docs/guides/changing-state.md")]
    struct ChangingState;
    #[doc = include_str!("../../docs/guides/fleet.md")]
    struct Fleet;
}

//! Deterministic simulation: the real engine over the memory tier, in a world where everything comes from one seed.
//!
//! Rule defended: whatever is killed, stopped, lost or late, no invariant of the engine breaks, and once faults end every run
//! ends. See [`run`].
//!
//! A seed is drawn into a swarm (which faults, how strong), a workload, and streams of chance for each part of the world. Chaos
//! comes first, then everything is healed; then checkers read the history. `LOBSTER_SEED=s` prints one seed in full,
//! `LOBSTER_SEEDS=n` says how many are run.

mod book;
mod check;
mod clients;
mod history;
mod host;
mod locks;
mod nemesis;
mod node;
mod outside;
mod plan;
mod rng;
mod sim;
mod store;
mod swarm;
mod tasks;
mod trace;
mod world;

pub use sim::{Report, aim, places, run};
pub use trace::show_tracing;

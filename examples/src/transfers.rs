//! The parts of the `transfers` example that are not the engine: its options, and the tables of the bank that it keeps beside lobster's.
//! None of them knows lobster; `transfers/` has what does.

pub mod bank;
pub mod options;

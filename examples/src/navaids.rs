//! The parts of the `navaids` example that are not the engine: the rows, and the tally of what really happened. None of them knows
//! lobster; `navaids/` has what does.

pub mod options;
pub mod rows;
pub mod tally;

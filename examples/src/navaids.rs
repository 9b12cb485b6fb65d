//! The parts of the `navaids` example that are not the engine: the rows, the tally of what really happened, and the supervisor
//! that kills and restarts the working process. None of them knows lobster; `navaids/` has what does.

pub mod options;
pub mod rows;
pub mod supervise;
pub mod tally;

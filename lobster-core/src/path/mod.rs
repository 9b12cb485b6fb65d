//! The corridor: submit -> claim -> restore -> (step -> commit -> flush)* -> finish. One file a station.
//!
//! Invariant: stations do not import each other; `worker` and the calls of a body put them in order.

pub(crate) mod claim;
pub(crate) mod commit;
pub(crate) mod finish;
pub(crate) mod flush;
pub(crate) mod fold;
pub(crate) mod restore;
pub(crate) mod step;
pub(crate) mod submit;

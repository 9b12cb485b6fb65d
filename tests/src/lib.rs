//! What several tests of the engine share.
//!
//! Invariant: helpers wait on signals, never on the clock.

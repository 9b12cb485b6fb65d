//! A run begins with the default of a state.

use lobster_core::{Field, State};

#[derive(State)]
struct Import {
    cursor: Field<u64>,
}

fn main() {}

//! There is one migration from each version below, and it is a function of the members.

use lobster_core::{BoxError, Field, Members, State};

fn up(_: &mut Members) -> Result<(), BoxError> {
    Ok(())
}

fn other(_: &mut Field<u64>) -> Result<(), BoxError> {
    Ok(())
}

#[derive(State, Default)]
#[state(version = 2)]
struct None {
    a: Field<u64>,
}

#[derive(State, Default)]
#[state(version = 7, migrate(2 = up, 4 = up, 4 = up))]
struct Gaps {
    a: Field<u64>,
}

#[derive(State, Default)]
#[state(version = 2, migrate(0 = up, 1 = up))]
struct Zero {
    a: Field<u64>,
}

#[derive(State, Default)]
#[state(version = 2, migrate(1 = up, 2 = up, 3 = up))]
struct Above {
    a: Field<u64>,
}

#[derive(State, Default)]
#[state(migrate(1 = up))]
struct WithoutVersion {
    a: Field<u64>,
}

#[derive(State, Default)]
#[state(version = 2, migrate(up))]
struct WithoutFrom {
    a: Field<u64>,
}

#[derive(State, Default)]
#[state(version = 2, migrate(1 = other))]
struct Another {
    a: Field<u64>,
}

fn main() {}

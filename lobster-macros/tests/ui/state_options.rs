//! Options of a state and of its members, each at its token.

use lobster_core::{BoxError, Field, Members, Scratch, State};

fn up(_: &mut Members) -> Result<(), BoxError> {
    Ok(())
}

#[derive(State, Default)]
#[state(nam = "import", table = "x", version = 0)]
struct Unknown {
    a: Field<u64>,
}

#[derive(State, Default)]
#[state(name = "", version = "2", migrate)]
struct Values {
    a: Field<u64>,
}

#[derive(State, Default)]
#[state]
struct Empty {
    #[state = "b"]
    a: Field<u64>,
}

#[derive(State, Default)]
#[state(name = "one")]
#[state(version = 2, migrate(1 = up))]
struct Twice {
    #[state(rename = "b", rename = "c")]
    a: Field<u64>,
}

#[derive(State, Default)]
struct Members1 {
    #[state(renam = "b")]
    a: Field<u64>,
    #[state(rename = "c")]
    b: Field<u64>,
    c: Field<u64>,
    #[state(rename = "a")]
    d: Field<u64>,
    #[state(rename = "")]
    e: Field<u64>,
    #[state(rename = "f", rebuild = make)]
    f: Scratch<u64>,
    #[state(rebuild = "make")]
    g: Scratch<u64>,
}

fn make(_: &Members1) -> u64 {
    1
}

fn main() {}

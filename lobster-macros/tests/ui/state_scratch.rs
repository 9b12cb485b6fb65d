//! Only scratch is made anew: by a function of the state, or by its default.

use lobster_core::{Field, Scratch, State};

struct Parser;

#[derive(State, Default)]
struct Recorded {
    #[state(rebuild = zero)]
    cursor: Field<u64>,
}

fn zero(_: &Recorded) -> u64 {
    0
}

#[derive(State, Default)]
struct WithoutDefault {
    parser: Scratch<Parser>,
}

#[derive(State, Default)]
struct Wrong {
    #[state(rebuild = of_nothing)]
    parser: Scratch<Parser>,
    #[state(rebuild = of_another)]
    other: Scratch<Parser>,
    #[state(rebuild = zero_of)]
    number: Scratch<Parser>,
}

fn of_nothing() -> Parser {
    Parser
}

fn of_another(_: &Recorded) -> Parser {
    Parser
}

fn zero_of(_: &Wrong) -> u64 {
    0
}

fn main() {}

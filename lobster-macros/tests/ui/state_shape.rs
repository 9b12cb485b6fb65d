//! A state is a struct with named fields that owns what it holds.

use lobster_core::{Field, State};

#[derive(State, Default)]
struct Unit;

#[derive(State, Default)]
struct Tuple(Field<u64>, Field<u32>);

#[derive(State)]
enum Either {
    One,
    Other { cursor: Field<u64> },
}

#[derive(State)]
union Bits {
    number: u64,
}

#[derive(State, Default)]
struct Borrows<'a> {
    text: Field<&'a str>,
}

fn main() {}

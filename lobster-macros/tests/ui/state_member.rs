//! A field that is no member is shown at its type, with what it can be wrapped in.

use std::rc::Rc;

use lobster_core::{Field, Log, Scratch, State};

#[derive(Default)]
struct Order;

#[derive(State, Default)]
struct Import {
    cursor: u64,
    names: std::collections::BTreeMap<String, u64>,
    good: Field<u64>,
}

#[derive(State, Default)]
struct Orders {
    accepted: Log<Order>,
}

#[derive(State, Default)]
struct Tied {
    parser: Scratch<Rc<u32>>,
}

fn main() {}

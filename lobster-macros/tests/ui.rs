//! The rule: a mistake is shown once, at the token that has to change, with what is allowed there; nothing follows from it.
//!
//! The expected messages are those of Rust 1.95, with which the repository is developed: another compiler may say them otherwise.

#[test]
fn mistakes_are_shown_where_they_are() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

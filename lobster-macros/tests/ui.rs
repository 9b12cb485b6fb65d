//! The rule: a mistake is shown once, at the token that has to change, with what is allowed there; nothing follows from it.
//!
//! The expected messages are those of the toolchain that the repository pins.

#[test]
fn mistakes_are_shown_where_they_are() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

//! The cases, by subject, and the list that makes tests of them.
//!
//! Invariant: a case that is not in the list does not exist; a test of this crate compares the two.

#![allow(missing_docs, reason = "a case's name says what it shows; nobody calls it but the macro below")]

pub mod append;
pub mod submit;

/// Makes one `#[test]` per case of the suite. The argument makes a fresh [`Harness`](crate::conformance::Harness) for each
/// case; it may `.await`.
#[macro_export]
macro_rules! conformance {
    ($harness:expr) => {
        $crate::conformance_tests! { $harness;
            append {
                a_displaced_holder_appends_nothing
            }
            submit {
                a_bulk_submit_creates_every_run
                a_run_without_a_key_is_always_new
                a_second_submit_changes_nothing
                a_submitted_run_is_created_and_can_be_read
                an_empty_submit_is_answered_by_nothing
                keys_are_compared_byte_by_byte
                submits_are_answered_in_their_order
                the_key_of_an_ended_run_still_names_it
                the_same_id_offered_again_is_existing
                the_same_key_finds_the_same_run
                the_same_key_from_another_version_of_the_task_is_the_same
                the_same_key_of_another_task_is_not_the_same
                the_same_key_with_another_input_is_not_the_same
                two_runs_of_one_key_in_one_call_are_one_run
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($harness:expr; $($subject:ident { $($case:ident)* })*) => {$($(
        #[test]
        fn $case() {
            $crate::conformance::run(async { $harness }, $crate::conformance::$subject::$case);
        }
    )*)*};
}

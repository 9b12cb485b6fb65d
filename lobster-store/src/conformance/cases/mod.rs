//! The cases, by subject, and the list that makes tests of them.
//!
//! Invariant: a case that is not in the list does not exist; a test of this crate compares the two.

#![allow(missing_docs, reason = "a case's name says what it shows; nobody calls it but the macro below")]

pub mod append;
pub mod business;
pub mod bytes;
pub mod cancel;
pub mod catalog;
pub mod claim;
pub mod deaths;
pub mod durable;
pub mod fold;
pub mod hints;
pub mod members;
pub mod races;
pub mod restore;
pub mod submit;
pub mod sweep;
pub mod then;
pub mod verdict;

/// Makes one `#[test]` per case of the suite. The first argument makes a fresh [`Harness`](crate::conformance::Harness) for each
/// case; it may `.await`.
///
/// What happens to a store may be impossible to a tier: then it says so, and the cases that need it are left out:
/// `conformance!(OnFile::fresh(); without crash_store)`. There are `crash_store`, `kill` and `advance`. A harness
/// that cannot do what it was not said to be without fails the cases that need it. The tests are named by what they need:
/// `always::..`, `crash_store::..`, and so on.
#[macro_export]
macro_rules! conformance {
    ($harness:expr $(; without $($ability:ident)+)?) => {
        $crate::conformance_tests! { $harness; [$($($ability)+)?]
            always {
                append {
                    a_displaced_holder_appends_nothing
                    a_failed_owner_whose_run_nobody_took_goes_on_appending
                    a_full_batch_is_answered_in_its_order
                    a_refused_offer_does_not_stop_the_others
                    a_result_is_recorded_after_a_cancel
                    a_row_offered_again_is_there_already
                    a_run_that_does_not_exist_is_a_lost_fence
                    a_run_that_is_not_running_takes_no_rows
                    a_stranger_with_the_right_epoch_appends_nothing
                    an_answer_tells_of_a_cancel_and_of_a_wake
                    an_append_moves_tail_and_mark
                    an_empty_batch_is_answered_by_nothing
                    an_intent_is_refused_after_a_cancel
                    an_offer_without_rows_shows_the_row
                    an_older_epoch_of_the_same_owner_appends_nothing
                    progress_counts_attempts_and_deaths_anew
                    progress_that_was_refused_counts_for_nothing
                    rows_must_follow_the_tail_without_a_gap
                    two_rows_of_one_run_are_both_applied
                    two_rows_of_one_run_are_both_refused_after_a_gap
                    what_precedes_a_refused_intent_is_applied
                }
                business {
                    a_key_is_compared_inside_of_a_transaction_as_outside
                    a_refused_hold_begins_nothing
                    a_row_of_work_is_recorded
                    a_run_is_submitted_in_no_transaction_but_one_of_the_store
                    a_run_is_there_with_the_commit_that_it_was_submitted_in
                    a_run_that_was_submitted_in_what_is_undone_never_was
                    nothing_is_offered_through_a_hold_of_an_older_epoch
                    work_that_wants_nothing_kept_records_nothing
                }
                bytes {
                    a_checksum_with_its_highest_bit_set_is_kept
                    a_megabyte_of_input_row_and_outcome_is_kept
                    digests_come_back_as_they_were
                    empty_bodies_are_kept
                    hostile_keys_come_back_as_they_were
                    hostile_names_and_tasks_of_nodes_come_back_as_they_were
                    hostile_reasons_come_back_as_they_were
                    hostile_tags_come_back_as_they_were
                    hostile_task_names_are_claimed_by_their_name
                    names_at_their_limit_are_kept
                }
                cancel {
                    a_cancel_asks_the_holder_of_a_running_run
                    a_cancel_ends_a_held_run
                    a_cancel_ends_a_ready_run
                    a_cancel_ends_a_run_that_is_not_due
                    a_cancel_ends_an_evicted_run
                    a_cancel_of_an_ended_run_changes_nothing
                    a_cancel_of_an_orphan_is_told_to_its_next_holder
                    a_cancel_of_nothing_finds_nothing
                    a_run_that_was_let_go_after_it_was_asked_ends_at_once
                    a_second_cancel_finds_the_first
                }
                catalog {
                    a_key_is_found
                    a_list_by_state
                    a_list_by_tags_wants_all_of_them
                    a_list_by_task
                    a_list_is_read_page_by_page
                    a_list_shows_each_row_as_a_read_does
                    a_read_of_nothing_is_none
                    a_read_shows_the_recording_while_the_run_goes_on
                    an_unknown_key_is_not_found
                    filters_add_up
                    lists_are_in_the_order_of_ids
                    no_outcomes_are_told_to_who_asks_for_none
                    outcomes_are_told_in_the_order_asked
                }
                claim {
                    a_claim_gets_only_the_tasks_it_asks_for
                    a_claim_grants_a_ready_run
                    a_claim_takes_no_more_than_its_limit
                    a_failed_incarnation_gets_nothing
                    a_grant_tells_of_a_cancel_asked_for_before
                    a_run_is_not_granted_before_its_due_time
                    a_run_of_a_failed_owner_is_granted_to_another
                    a_run_of_a_newer_version_is_not_granted_to_an_older_one
                    a_run_of_an_owner_that_left_is_granted_to_another
                    a_running_run_is_not_granted_again
                    an_incarnation_that_left_gets_nothing
                    an_incarnation_that_never_joined_gets_nothing
                    each_claim_raises_the_epoch_and_counts_an_attempt
                    grants_of_one_claim_come_with_the_oldest_due_time_first
                    held_and_ended_runs_are_not_granted
                    orphans_and_ready_runs_share_the_limit
                    orphans_pass_the_same_filters
                    runs_of_one_due_time_are_granted_in_the_order_of_their_ids
                    the_oldest_due_time_is_granted_first
                    versions_are_compared_task_by_task
                }
                deaths {
                    a_death_counts_against_the_run_being_polled
                    a_death_is_counted_once
                    a_farewell_is_no_death
                    a_note_about_a_slot_that_does_not_exist_is_ignored
                    a_run_of_somebody_else_is_not_blamed
                    a_run_that_keeps_killing_its_process_is_executed_alone
                    a_run_that_made_progress_is_not_blamed
                    every_slot_has_its_own_note
                }
                durable {
                    a_relaxed_row_is_visible_to_every_process
                }
                fold {
                    a_fold_and_a_take_over_see_each_other
                    a_fold_and_an_append_leave_both
                    a_fold_and_the_row_it_builds_on_see_each_other
                    a_fold_beyond_the_tail_is_behind
                    a_fold_by_a_displaced_holder_is_fenced
                    a_fold_by_a_stranger_is_fenced
                    a_fold_changes_nothing_else
                    a_fold_from_a_snapshot_that_is_not_the_stored_one_is_behind
                    a_fold_makes_its_snapshot_current
                    a_fold_may_have_hundreds_of_parts
                    a_fold_of_a_run_that_does_not_exist_is_fenced
                    a_fold_of_a_run_that_is_not_running_is_fenced
                    a_fold_offered_again_is_there_already
                    a_fold_removes_the_changes_it_covers_and_no_others
                    a_fold_under_an_older_epoch_is_fenced
                    a_read_shows_the_snapshot_and_the_changes
                    a_refused_row_leaves_no_changes
                    a_row_may_have_deltas_and_changes
                    a_row_of_changes_alone_is_a_row_like_any_other
                    a_row_with_both_halves_loses_only_its_changes
                    a_run_is_folded_after_a_cancel_was_asked_for
                    a_sweep_removes_everything_of_a_folded_run
                    changes_of_a_full_batch_are_kept_apart
                    dropped_parts_go_and_kept_ones_stay
                    each_run_is_restored_with_its_own_snapshot
                    folds_follow_one_another
                    many_folds_from_one_snapshot_leave_one
                    parts_are_read_in_the_order_asked
                    parts_of_several_megabytes_are_kept
                }
                hints {
                    a_hint_is_counted
                    a_hint_reaches_another_process
                    a_hint_wakes_whoever_waits
                    nobody_is_woken_without_a_hint
                    what_may_concern_others_gives_a_hint
                }
                members {
                    a_clone_is_stopped
                    a_failed_node_does_not_leave
                    a_living_process_is_not_revoked_as_dead
                    a_name_is_free_after_a_farewell
                    a_name_is_free_when_whoever_was_revoked_is_released
                    a_name_that_a_living_process_has_is_refused
                    a_new_incarnation_is_nobodys_heir
                    a_node_that_joined_is_seen_by_all
                    a_node_that_left_is_left
                    a_node_without_a_name_gets_one_of_its_own
                    a_renewal_after_a_lapse_is_good
                    a_renewal_is_good
                    a_revoked_incarnation_never_renews
                    a_second_revoke_finds_the_first
                    an_incarnation_that_never_joined_renews_nothing
                    nobody_can_prove_the_death_of_a_stranger
                }
                races {
                    a_cancel_and_a_finish_leave_one_end
                    a_cancel_and_an_intent_see_each_other
                    a_revoke_and_a_renewal_see_each_other
                    a_take_over_and_an_append_see_each_other
                    epochs_only_grow_while_nodes_take_runs_from_one_another
                    many_claims_grant_each_run_once
                    many_submits_of_one_key_create_one_run
                    many_verdicts_on_one_intent_leave_one
                    one_row_offered_by_many_tasks_is_stored_once
                }
                restore {
                    a_displaced_holder_restores_nothing
                    a_fresh_run_restores_an_empty_recording
                    a_grant_of_somebody_else_restores_nothing
                    a_recording_holds_all_rows_in_order_under_their_epochs
                    a_restore_reads_what_was_appended_since_the_claim
                    a_run_that_does_not_exist_restores_nothing
                    a_run_that_is_not_running_restores_nothing
                    an_empty_restore_is_answered_by_nothing
                    an_older_epoch_of_the_same_owner_restores_nothing
                    restores_are_answered_one_by_one_in_their_order
                    verdicts_come_with_the_recording
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
                sweep {
                    a_sweep_removes_every_kind_of_end
                    a_sweep_removes_no_more_than_its_limit
                    a_sweep_removes_nodes_that_are_over_and_named_by_no_run
                    a_sweep_removes_what_ended_before
                    a_sweep_spares_what_has_not_ended
                    a_swept_node_never_comes_back
                    a_swept_run_leaves_nothing_behind
                    the_key_of_a_swept_run_is_free
                }
                then {
                    a_finish_offered_again_changes_nothing
                    a_finished_run_has_ended
                    a_held_run_waits_for_a_person
                    a_hold_is_refused_after_a_cancel
                    a_hold_is_refused_after_a_wake
                    a_hold_with_rows_follows_the_tail
                    a_hold_without_rows_asks_only_for_the_fence
                    a_released_orphan_is_ready_at_once
                    a_released_run_is_ready_at_once
                    a_run_may_be_finished_after_a_cancel
                    an_attempt_that_made_progress_is_not_given_back_twice
                    an_eviction_is_refused_after_a_cancel
                    an_eviction_is_refused_after_a_wake
                    eviction_and_release_give_the_attempt_back
                    nothing_becomes_of_a_run_whose_intent_was_refused
                    nothing_becomes_of_a_run_whose_rows_were_refused
                }
                verdict {
                    a_cancel_before_the_claim_needs_attention
                    a_cancelled_and_a_woken_run_need_attention
                    a_run_nobody_wants_anything_from_needs_no_attention
                    a_verdict_delays_nothing
                    a_verdict_does_not_release_a_run_that_is_held_as_forked
                    a_verdict_does_not_take_a_run_from_its_holder
                    a_verdict_makes_a_held_run_ready
                    a_verdict_makes_an_evicted_run_due
                    a_verdict_on_a_run_that_went_on_is_refused
                    a_verdict_on_an_ended_run_is_too_late
                    a_verdict_on_nothing_finds_nothing
                    a_verdict_wakes_a_running_run
                    a_wake_before_the_claim_needs_no_attention
                    each_intent_has_a_verdict_of_its_own
                    the_first_verdict_on_an_intent_stays
                }
            }
            crash_store {
                durable {
                    a_cancel_survives_the_store
                    a_claim_survives_the_store
                    a_join_survives_the_store
                    a_lost_release_leaves_the_run_with_its_holder
                    a_node_whose_renewals_were_lost_goes_on_renewing
                    a_revoke_and_a_farewell_survive_the_store
                    a_sweep_survives_the_store
                    a_synced_batch_that_applies_nothing_still_syncs_the_runs_it_locked
                    a_synced_row_survives_the_store
                    a_synced_row_takes_the_relaxed_ones_before_it_along
                    a_verdict_survives_the_store
                    after_a_crash_the_tail_says_what_is_left_and_its_holder_goes_on
                    an_outcome_that_was_told_is_synced
                    lost_progress_is_counted_as_none
                    relaxed_and_synced_batches_of_several_runs_mix
                    what_a_submit_acknowledged_survives_the_store
                }
                fold {
                    a_crash_takes_a_fold_back_whole_or_not_at_all
                    a_fold_is_never_left_without_the_rows_it_covers
                    a_synced_append_takes_the_folds_before_it_along
                }
            }
            kill {
                deaths {
                    a_proved_death_counts_in_the_same_way
                }
                durable {
                    a_relaxed_row_survives_its_process
                }
                fold {
                    a_fold_survives_its_process
                }
                members {
                    a_dead_process_is_revoked_at_once
                    a_name_is_free_after_a_death
                    whoever_takes_the_slot_of_a_dead_process_lives
                }
            }
            advance {
                catalog {
                    a_list_since_a_moment
                }
                claim {
                    a_run_is_granted_once_its_due_time_has_come
                }
                members {
                    a_beat_in_time_saves_its_node
                    a_silent_node_is_revoked_with_both_keys
                    the_age_of_a_beat_is_counted_from_its_sending
                }
                then {
                    an_evicted_run_is_ready_at_its_due_time
                }
            }
        }
    };
}

/// Without the sections of abilities that stand in the brackets.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($harness:expr; $without:tt $($ability:ident $subjects:tt)*) => {$(
        $crate::conformance_section! { $ability $without $harness; $subjects }
    )*};
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_section {
    (crash_store [crash_store $($more:ident)*] $harness:expr; $subjects:tt) => {};
    (kill [kill $($more:ident)*] $harness:expr; $subjects:tt) => {};
    (advance [advance $($more:ident)*] $harness:expr; $subjects:tt) => {};
    ($ability:ident [$other:ident $($more:ident)*] $harness:expr; $subjects:tt) => {
        $crate::conformance_section! { $ability [$($more)*] $harness; $subjects }
    };
    ($ability:ident [] $harness:expr; { $($subject:ident { $($case:ident)* })* }) => {
        mod $ability {
            #[allow(unused_imports, reason = "what the harness is made of")]
            use super::*;

            $($(
                #[test]
                fn $case() {
                    let harness = async { ::std::sync::Arc::new($harness) as ::std::sync::Arc<dyn $crate::conformance::Harness> };
                    $crate::conformance::run(Box::pin(harness), |world| Box::pin($crate::conformance::$subject::$case(world)));
                }
            )*)*
        }
    };
}

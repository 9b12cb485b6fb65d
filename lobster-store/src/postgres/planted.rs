//! Planted bugs of the statements, to prove that the tests on a real server would see them.
//!
//! Invariant: without `--cfg lobster_planted` a text stays as it is.

use crate::planted;
use std::borrow::Cow;

/// The text, with the chosen bug.
pub(super) fn spoilt(text: &str) -> Cow<'_, str> {
    let swap = |from: &str, to: &str| Cow::Owned(text.replace(from, to));
    if planted!("sql_tail_not_compared") {
        return swap("m.mine AND o.tail = b.head - 1 AS chained", "m.mine AS chained");
    }
    if planted!("sql_fence_of_the_snapshot") {
        let locked = "(SELECT l.id FROM @runs l, how WHERE l.id = ANY($4::uuid[]) FOR NO KEY UPDATE OF l SKIP LOCKED)";
        return swap(
            "FROM @runs r, how\n    WHERE r.id = ANY($4::uuid[]) FOR NO KEY UPDATE OF r SKIP LOCKED",
            &format!("FROM @runs r JOIN {locked} l ON l.id = r.id"),
        );
    }
    if planted!("sql_claim_and_recording_in_one_snapshot") {
        let seen = |column: &str| format!("(SELECT s.{column} FROM @runs s WHERE s.id = r.id)");
        return swap("RETURNING r.due, r.id, r.epoch, r.tail,", &format!("RETURNING r.due, r.id, r.epoch, {},", seen("tail")));
    }
    if planted!("sql_mark_not_moved") {
        return swap("WHEN s.count THEN s.last_mark ELSE s.intent_mark END", "ELSE r.mark END");
    }
    if planted!("sql_busy_for_ever") {
        return swap("FOR NO KEY UPDATE OF r ),", "FOR NO KEY UPDATE OF r SKIP LOCKED),");
    }
    if planted!("sql_synced_is_relaxed") {
        return swap(
            "set_config('synchronous_commit', $1, true)",
            "set_config('synchronous_commit', left($1, 0) || 'off', true)",
        );
    }
    if planted!("sql_cancel_not_read") {
        return swap("WHEN o.cancel THEN b.before_intent ELSE", "ELSE");
    }
    if planted!("sql_fold_locks_nothing") {
        return swap("FROM @runs WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED", "FROM @runs WHERE id = $1");
    }
    Cow::Borrowed(text)
}

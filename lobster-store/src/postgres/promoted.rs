//! A standby that was promoted may lack the newest: that is noted, and looked for by those who live, before anybody is given a run.
//!
//! Invariant: what a living process knows to be stored of a run, and the server lacks, is known to the server before the next claim.
//!
//! No row of the new primary tells what it lacks. A new timeline tells that it may lack something, and each process knows epoch and synced
//! tail of what it executes. So whoever first renews on a timeline that is not noted notes it; from then on each process vouches at every
//! renewal; and who has watched it for the longest TTL, by its own boot clock, says that it is settled. No clock of a server is asked.
//!
//! What nobody vouches for may have been executed by a process that died with the old primary. Each run says on which timeline it was
//! submitted, claimed or vouched for last; who claims one of an earlier timeline is told that it is in doubt ([`Grant::doubt`]).
//!
//! [`Grant::doubt`]: crate::contract::Grant::doubt

use super::{
    Postgres,
    failure::Stage,
    newest::timeline,
    pool::Pool,
    sql::{Args, get, get_run},
    times::SERVER_MS,
};
use crate::contract::{Boot, FORKED, Lacking, Result, Vouched, limits::EPOCH_LEAP};
use sqlx::postgres::PgRow;
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A timeline that nobody has noted is one that a standby has begun. It does not wait for a standby, which may not be there yet.
fn note() -> String {
    format!(
        "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', 'local', true), set_config('lock_timeout', '1s', true))
INSERT INTO @timelines (system, number, settled, noted, trusted) SELECT $1, {}, false, {SERVER_MS}, false FROM how
ON CONFLICT DO NOTHING",
        timeline!()
    )
}

const SETTLE: &str = "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', 'local', true), set_config('lock_timeout', '1s', true))
UPDATE @timelines t SET settled = true FROM how WHERE t.system = $1 AND t.number = $2 AND NOT t.settled";

/// What a renewal reads of that: the timeline, and whether it is settled; `NULL`: it is not even noted. `$4` is the system.
pub(super) const TIMELINE: &str =
    concat!(timeline!(), ", (SELECT t.settled FROM @timelines t WHERE t.system = $4 AND t.number = ", timeline!(), ")");

/// In their place where the server does not say which timeline it writes.
pub(super) const UNTOLD: &str = "0::int8, true";

/// A run that was never claimed, and is due so long after a promotion was noted, was not claimed on the old primary either, whatever
/// time it was there. One that was foretold is not noted.
const FAR: &str = "3600000";

/// The timeline on which runs are claimed, in a common table `here` of one row; without a row nobody is given a run. `$6` is the system.
/// `trusts`: what the server has is all that happened.
pub(super) fn here(told: bool, trusts: bool) -> String {
    match told {
        true => format!(
            "here AS MATERIALIZED (SELECT t.system, t.number, t.noted, {trusts} AS trusts FROM @timelines t
    WHERE t.system = $6 AND t.number = {} AND t.settled)",
            timeline!()
        ),
        false => {
            "here AS MATERIALIZED (SELECT 0::int8 AS system, 0::int8 AS number, 0::int8 AS noted, true AS trusts)".to_owned()
        }
    }
}

/// What a claim says of a run `r`, beside `here`: 0 is the timeline of a server that does not say. Nothing is lost if each promotion since
/// was one to trust. Tokens do not fall: the new epoch is above all that may have been given out on any of those timelines.
pub(super) fn marked() -> String {
    let steps = "abs(here.number - r.timeline)";
    let trusted = "(SELECT count(*) FROM @timelines t WHERE t.system = here.system AND t.trusted AND t.number > r.timeline
        AND t.number <= here.number)";
    let lost = format!(
        "r.timeline NOT IN (0, here.number) AND NOT here.trusts AND (r.epoch > 0 OR here.noted = 0 OR r.due < here.noted + {FAR})
        AND {trusted} < {steps}"
    );
    format!(
        "epoch = r.epoch + CASE WHEN {lost} THEN {EPOCH_LEAP} * {steps} ELSE 1 END, doubt = CASE WHEN {lost} THEN r.epoch ELSE r.doubt END,
    timeline = here.number"
    )
}

/// Runs of which the server knows an older claim than their holder, fewer rows, or no end, and whether they were taken from whom it takes
/// for their owner: not from whoever has locked them. Tokens do not fall: they get the holder's epoch. A cancel that was asked for is
/// what becomes of them; it is carried out by whoever claims them. Those that lack nothing, and are executed by who says so, are of this
/// `timeline` from now on.
fn vouch(timeline: &str) -> String {
    let lacks = format!(
        "r.id = ANY($1::uuid[]) AND r.state IN (0, 1, 2) AND (r.epoch < a.epoch OR (r.epoch = a.epoch AND (r.tail < a.tail OR a.ended)))
    AND NOT (r.state = 2 AND r.epoch = a.epoch AND starts_with(r.reason, '{FORKED}')) AND NOT (r.state = 0 AND r.epoch = a.epoch AND r.cancel)"
    );
    format!(
        "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', 'local', true)),
here AS MATERIALIZED (SELECT {timeline} AS number),
asked AS MATERIALIZED (SELECT a.id, a.epoch, a.tail, a.ended, a.held
    FROM how, unnest($1::uuid[], $2::int8[], $3::int8[], $4::bool[], $6::uuid[]) AS a(id, epoch, tail, ended, held)),
lacking AS MATERIALIZED (SELECT r.id FROM asked a JOIN @runs r ON r.id = a.id WHERE {lacks}),
own AS MATERIALIZED (SELECT r.id, a.epoch, r.cancel FROM asked a JOIN @runs r ON r.id = a.id WHERE {lacks}
    ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED),
taken AS (UPDATE @runs r SET owner = NULL, epoch = own.epoch, state = CASE WHEN own.cancel THEN 0 ELSE 2 END,
    due = CASE WHEN own.cancel THEN LEAST(r.due, {SERVER_MS}) ELSE r.due END, reason = CASE WHEN own.cancel THEN '' ELSE $5 END
    FROM own WHERE r.id = own.id AND r.id = ANY($1::uuid[]) RETURNING r.id),
whole AS MATERIALIZED (SELECT r.id FROM asked a JOIN @runs r ON r.id = a.id, here WHERE r.id = ANY($1::uuid[]) AND NOT a.ended
    AND r.owner = a.held AND r.state = 1 AND r.epoch = a.epoch AND r.tail >= a.tail AND r.timeline <> here.number
    ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED),
marked AS (UPDATE @runs r SET timeline = here.number FROM whole, here WHERE r.id = whole.id AND r.id = ANY($1::uuid[]))
SELECT l.id, EXISTS (SELECT 1 FROM taken t WHERE t.id = l.id) FROM lacking l"
    )
}

/// Why they are held.
fn reason() -> String {
    format!(
        "{FORKED}the server that was promoted lacks what the process that executed this run was told is stored: it may have made calls that \
         nothing tells of"
    )
}

/// What one process has seen of the server's timelines.
#[derive(Debug, Default)]
pub(super) struct Promoted {
    seen: Mutex<Option<Seen>>,
    /// How often there was a reason to look for what the server lacks.
    history: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    number: i64,
    settled: bool,
    /// When this process first saw it.
    since: Boot,
    /// The longest TTL of those who live, this process among them.
    longest: Duration,
}

impl Promoted {
    pub(super) fn history(&self) -> u64 {
        self.history.load(Ordering::SeqCst)
    }

    /// A renewal has found this timeline. Is that news? Until it is settled, each renewal is a reason to vouch: an answer of the old server
    /// may still have been on its way.
    fn look(&self, number: i64, settled: bool, longest: Duration, now: Boot) -> bool {
        let mut place = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // One that was settled and is not any more is another one of the same number: two standbys of one server were promoted.
        let before = place.filter(|seen| seen.number == number && seen.settled <= settled);
        let moved = before.is_none() && place.is_some();
        let since = before.map_or(now, |seen| seen.since);
        *place = Some(Seen { number, settled, since, longest });
        if moved || !settled {
            self.history.fetch_add(1, Ordering::SeqCst);
        }
        moved || (before.is_none() && !settled)
    }

    /// The timeline that everybody who lives has had the time to vouch on.
    fn ripe(&self, now: Boot) -> Option<i64> {
        let seen = (*self.seen.lock().unwrap_or_else(PoisonError::into_inner))?;
        (!seen.settled && now.since(seen.since) >= seen.longest).then_some(seen.number)
    }
}

impl Postgres {
    /// The timeline of the server, as an expression.
    pub(super) fn timeline(&self) -> &'static str {
        if self.newest.told().is_some() { timeline!() } else { "0::int8" }
    }

    /// Notes the timeline of the server where all see it.
    pub(super) async fn note_timeline(&self, pool: &Pool) -> Result<()> {
        if let Some((system, _)) = self.newest.told() {
            pool.query(Stage::Write, &self.text(&note()), || Args::default().with(system).done()).await?;
        }
        Ok(())
    }

    /// What a renewal has read, from this column on. `None`: there is not one node left to say so.
    pub(super) async fn look_at_timeline(&self, found: Option<(&PgRow, usize)>, longest: Duration) -> Result<()> {
        let (number, settled) = match found {
            Some((row, at)) => (get(row, at)?, get::<Option<bool>>(row, at + 1)?),
            None => (self.newest.told().map_or(0, |(_, number)| number), Some(false)),
        };
        if number == 0 {
            return Ok(());
        }
        if settled.is_none()
            && let Err(error) = self.note_timeline(&self.lease.pool()).await
        {
            tracing::warn!(%error, "the timeline of the server could not be noted yet: nobody is given a run before");
        }
        let settled = settled.unwrap_or(false);
        if self.promoted.look(number, settled, longest, self.clock.boot()) {
            tracing::warn!(
                timeline = number,
                settled,
                "a standby was promoted: each node looks what it lacks, and runs are claimed when that is settled"
            );
        }
        Ok(())
    }

    pub(super) async fn vouch_for(&self, vouched: &[Vouched]) -> Result<Vec<Lacking>> {
        // Where no other work of this process keeps it waiting.
        let pool = self.lease.pool();
        let mut lacking = Vec::new();
        if !vouched.is_empty() {
            let reason = reason();
            let args = || {
                let args = Args::default().with(vouched.iter().map(|of| of.run.0).collect::<Vec<_>>());
                let args = args.with(vouched.iter().map(|of| of.epoch.cast_signed()).collect::<Vec<_>>());
                let args = args.with(vouched.iter().map(|of| of.tail.cast_signed()).collect::<Vec<_>>());
                let args = args.with(vouched.iter().map(|of| of.ended).collect::<Vec<_>>()).with(reason.as_str());
                args.with(vouched.iter().map(|of| of.held.map(|node| node.0)).collect::<Vec<_>>()).done()
            };
            let rows = pool.query(Stage::Write, &self.text(&vouch(self.timeline())), args).await?;
            let read = |row| Ok(Lacking { run: get_run(row, 0)?, taken: get(row, 1)? });
            lacking = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
        }
        let all = lacking.iter().all(|of| of.taken);
        if let (true, Some(number), Some((system, _))) = (all, self.promoted.ripe(self.clock.boot()), self.newest.told()) {
            match pool.query(Stage::Write, &self.text(SETTLE), || Args::default().with(system).with(number).done()).await {
                Ok(_) => self.stir(),
                Err(error) => tracing::warn!(%error, "the timeline of the server could not be settled yet: tried again"),
            }
        }
        if !lacking.is_empty() {
            self.stir();
        }
        Ok(lacking)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_is_settled_by_who_has_watched_it_for_the_longest_lease() {
        let promoted = Promoted::default();
        let (at, ttl) = (|seconds| Boot(Duration::from_secs(seconds)), Duration::from_secs(10));
        assert!(!promoted.look(1, true, ttl, at(1)), "the first, and nothing is new about it");
        assert_eq!((promoted.history(), promoted.ripe(at(100))), (0, None));

        assert!(promoted.look(2, false, ttl, at(101)));
        assert!(!promoted.look(2, false, ttl, at(104)), "no news, and a reason to vouch all the same");
        assert_eq!((promoted.history(), promoted.ripe(at(110)), promoted.ripe(at(111))), (2, None, Some(2)));
        assert!(!promoted.look(2, false, 2 * ttl, at(111)), "somebody with a longer lease lives");
        assert_eq!((promoted.ripe(at(120)), promoted.ripe(at(121))), (None, Some(2)));
        assert!(!promoted.look(2, true, ttl, at(122)));
        assert_eq!((promoted.history(), promoted.ripe(at(200))), (3, None));

        assert!(
            promoted.look(3, true, ttl, at(201)),
            "others were faster: what it lacks of this process's is looked for all the same"
        );
        assert!(promoted.look(4, false, ttl, at(202)));
        assert_eq!((promoted.ripe(at(211)), promoted.ripe(at(212))), (None, Some(4)), "each is watched anew");
        assert!(!promoted.look(4, true, ttl, at(300)));
        assert!(promoted.look(4, false, ttl, at(400)), "another one of this number");
        assert_eq!((promoted.ripe(at(409)), promoted.ripe(at(410))), (None, Some(4)));
    }
}

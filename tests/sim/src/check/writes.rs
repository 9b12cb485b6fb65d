//! What transactional steps write: it is there if and only if their success is recorded, and what a body saw stays.
//!
//! Invariant: judged by the application's own numbers, which the engine does not know.

use super::{Events, Verdict};
use crate::{history::Event, plan::Kind};
use std::collections::{BTreeMap, BTreeSet};

/// Each recorded success has left its write, once; nothing else has left anything. What a body saw succeed is recorded at every look from
/// then on, so also behind each crash of the store.
pub(super) fn as_recorded(events: Events<'_>) -> Verdict {
    let mut shown: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
    for (at, event) in events {
        match event {
            Event::Delivered { run, kind: Kind::Transact, token, ok: true, .. } => {
                _ = shown.entry(*run).or_default().insert(*token)
            }
            Event::Audited { run, recorded, left } => {
                let recorded: BTreeMap<_, _> = recorded.iter().copied().collect();
                for (step, times, token) in left {
                    let must = recorded.get(step).map_or((0, 0), |token| (1, i64::try_from(*token).unwrap_or(i64::MAX)));
                    if (*times, *token) != must {
                        return Err(format!(
                            "{at:?}: step {step} of run {run} wrote {times} times, last {token}; its record says {must:?}"
                        ));
                    }
                }
                let tokens: BTreeSet<u64> = recorded.into_values().collect();
                if let Some(gone) = shown.get(run).and_then(|shown| shown.difference(&tokens).next()) {
                    return Err(format!("{at:?}: run {run} was shown {gone} of a transaction, which is not recorded"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// No work begins after the self-fence.
pub(super) fn within_the_lease(events: Events<'_>) -> Verdict {
    let late = events.iter().find(|(_, event)| matches!(event, Event::Wrote { leased: false, .. }));
    late.map_or(Ok(()), |(at, event)| Err(format!("{at:?}: work began after the self-fence: {event:?}")))
}

#[cfg(test)]
mod tests {
    use super::{super::bad::*, *};

    #[test]
    fn a_write_without_its_record_a_second_one_and_a_lost_one_are_seen() {
        let audited = |recorded: &[(u128, u64)], left: &[(u128, i64, i64)]| Event::Audited {
            run: run(),
            recorded: recorded.iter().map(|(number, token)| (step(*number), *token)).collect(),
            left: left.iter().map(|(number, times, token)| (step(*number), *times, *token)).collect(),
        };
        let judge = |event| as_recorded(&at(vec![event]));
        assert!(judge(audited(&[(1, 5)], &[(1, 1, 5), (2, 0, 0)])).is_ok());
        assert!(judge(audited(&[], &[(1, 1, 5)])).is_err(), "no record");
        assert!(judge(audited(&[(1, 5)], &[(1, 2, 5)])).is_err(), "twice");
        assert!(judge(audited(&[(1, 5)], &[(1, 1, 4)])).is_err(), "of another execution");
        assert!(judge(audited(&[(1, 5)], &[(1, 0, 0)])).is_err(), "no write");
        let shown = delivered(1, 1, Kind::Transact, 5);
        assert!(as_recorded(&at(vec![shown.clone(), audited(&[(1, 5)], &[(1, 1, 5)])])).is_ok());
        assert!(as_recorded(&at(vec![shown, audited(&[], &[(1, 0, 0)])])).is_err(), "it was shown");
    }

    #[test]
    fn work_behind_the_lease_is_seen() {
        let wrote = |leased| at(vec![Event::Wrote { node: 1, run: run(), epoch: 1, leased, step: step(1), token: 5 }]);
        assert!(within_the_lease(&wrote(true)).is_ok());
        assert!(within_the_lease(&wrote(false)).is_err());
    }
}

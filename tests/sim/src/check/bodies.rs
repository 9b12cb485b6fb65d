//! Bodies: frozen when they must be, and shown their results one by one.
//!
//! Invariant: a body is one execution in one process; its polls are counted there.

use super::{Events, Verdict};
use crate::history::Event;
use std::collections::{BTreeMap, BTreeSet};

/// A body whose holder was told to stop is never polled again.
pub(super) fn stop(events: Events<'_>) -> Verdict {
    let mut stopped = BTreeSet::new();
    for (at, event) in events {
        match event {
            Event::Stopped { node, run, epoch } => _ = stopped.insert((*node, *run, *epoch)),
            Event::Polled { body, node, run, epoch, poll } if stopped.contains(&(*node, *run, *epoch)) => {
                return Err(format!("{at:?}: poll {poll} of body {body} of run {run} on node {node}, which was told to stop"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// At most one result per poll, and results in the order of the recording.
pub(super) fn one_by_one(events: Events<'_>) -> Verdict {
    let mut last = BTreeMap::new();
    let mut seen: BTreeMap<_, Vec<(u32, u64)>> = BTreeMap::new();
    for (at, event) in events {
        match event {
            Event::Delivered { body, run, poll, token, .. } => {
                if last.insert(*body, *poll) == Some(*poll) {
                    return Err(format!("{at:?}: poll {poll} of body {body} of run {run} was shown two results"));
                }
                seen.entry(*run).or_default().push((*body, *token));
            }
            Event::Final { run, results, .. } => {
                let place: BTreeMap<u64, u64> = results.iter().map(|(seq, _, token, _)| (*token, *seq)).collect();
                // What earlier bodies were shown may be lost with them: only the last one's order is the recording's.
                let shown = seen.get(run).map_or(&[][..], Vec::as_slice);
                let last = shown.iter().map(|(body, _)| *body).max();
                let seqs: Vec<u64> = shown
                    .iter()
                    .filter(|(body, _)| Some(*body) == last)
                    // Failures of the way there and back carry no token, and cannot be told apart.
                    .filter_map(|(_, token)| place.get(token).copied().filter(|_| *token != 0))
                    .collect();
                if let Some(pair) = seqs.windows(2).find(|pair| pair[0] > pair[1]) {
                    return Err(format!("the last body of run {run} was shown seq {} after seq {}", pair[1], pair[0]));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::bad::*, *};
    use crate::plan::Kind;

    #[test]
    fn a_poll_after_the_stop_is_seen() {
        let stopped = Event::Stopped { node: 1, run: run(), epoch: 1 };
        assert!(stop(&at(vec![polled(1, 1, 1), stopped.clone(), polled(2, 2, 1)])).is_ok());
        assert!(stop(&at(vec![stopped, polled(1, 1, 2)])).is_err());
    }

    #[test]
    fn two_results_in_one_poll_or_out_of_order_are_seen() {
        let shown = |second, results| {
            at(vec![delivered(1, 1, Kind::Ordinary, 5), delivered(1, second, Kind::Ordinary, 6), succeeded(results, &[])])
        };
        assert!(one_by_one(&shown(2, &[(1, 1, 5), (2, 2, 6)])).is_ok());
        assert!(one_by_one(&shown(1, &[(1, 1, 5), (2, 2, 6)])).is_err());
        assert!(one_by_one(&shown(2, &[(1, 2, 6), (2, 1, 5)])).is_err());
        let shown = |token| {
            at(vec![
                delivered(1, 1, Kind::Ordinary, token),
                delivered(1, 2, Kind::Ordinary, 6),
                succeeded(&[(1, 1, token), (2, 2, 6), (3, 3, token)], &[]),
            ])
        };
        assert!(one_by_one(&shown(5)).is_err() && one_by_one(&shown(0)).is_ok());
    }
}

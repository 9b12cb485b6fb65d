//! States: what is recorded of them is what the recorded results say, and what executions found is what was recorded before.
//!
//! Invariant: judged seq by seq, on rows that the store took.

use super::{Events, Verdict};
use crate::{
    book::{Books, Page},
    history::{Entry, Event, Step},
};
use lobster_core::{RunId, store::contract::Folded};
use std::collections::BTreeMap;

/// What an execution did.
struct Taken<'e> {
    run: RunId,
    round: Option<u32>,
    pages: &'e [(String, Page, Page)],
    gave: bool,
}

impl Taken<'_> {
    fn page(&self, book: &str) -> Option<&(String, Page, Page)> {
        self.pages.iter().find(|(name, ..)| name == book)
    }
}

type All<'e> = BTreeMap<u64, Taken<'e>>;

/// What the rows of a run up to a seq add up to.
#[derive(Clone, Default)]
struct Sum {
    /// By book, the execution that changed it last.
    last: BTreeMap<String, u64>,
    rounds: BTreeMap<Step, (u64, u32)>,
}

impl Sum {
    /// Takes in the entries of one seq.
    fn add(&mut self, entries: &[(u64, Entry)], taken: &All<'_>) -> Verdict {
        let changes = || {
            entries.iter().filter_map(|(_, entry)| match entry {
                Entry::Change { book, token } => Some((book, *token)),
                _ => None,
            })
        };
        let mut by = None;
        for (_, entry) in entries {
            match entry {
                Entry::Result { step, token, ok } => {
                    by = Some((*token, *ok));
                    self.rounds.remove(step);
                }
                Entry::Round { step, done, failed: 0 } => {
                    let before = self.rounds.insert(*step, (*done, 0)).unwrap_or_default().0;
                    if *done != before + 1 {
                        return Err(format!("round {done} of step {step} after {before}"));
                    }
                    let token = changes().next().map_or(0, |(_, token)| token);
                    if taken.get(&token).is_some_and(|taken| taken.round.map(u64::from) != Some(*done)) {
                        return Err(format!("round {done} of step {step} is recorded with execution {token} of another round"));
                    }
                    by = Some((token, true));
                }
                Entry::Round { step, done, failed } => {
                    let before = self.rounds.insert(*step, (*done, *failed)).unwrap_or_default();
                    if *done != before.0 || *failed <= before.1 {
                        return Err(format!("attempt {failed} after {done} rounds of step {step}, behind {before:?}"));
                    }
                }
                Entry::Attempt { step } if self.rounds.contains_key(step) => {
                    return Err(format!("a failed round of step {step} is kept beside the steps"));
                }
                Entry::Attempt { .. } | Entry::Change { .. } => {}
            }
        }
        let expected = by.and_then(|(token, ok)| taken.get(&token).filter(|_| ok)).map_or(0, |taken| taken.pages.len());
        if changes().count() != expected {
            return Err(format!("{} changes beside {by:?}, which made {expected}", changes().count()));
        }
        for (book, token) in changes() {
            let did = taken.get(&token).filter(|did| did.gave && by == Some((token, true)));
            let Some((_, before, after)) = did.and_then(|did| did.page(book)) else {
                return Err(format!("book {book} was changed by execution {token}, recorded is {by:?}"));
            };
            let page = self.page(book, taken);
            if *before != page {
                return Err(format!("execution {token} made {after:?} of {before:?}, book {book} was {page:?}"));
            }
            self.last.insert(book.clone(), token);
        }
        Ok(())
    }

    fn page(&self, book: &str, taken: &All<'_>) -> Page {
        let last = self.last.get(book).and_then(|token| taken.get(token)?.page(book));
        last.map(|(_, _, after)| after.clone()).unwrap_or_default()
    }

    fn is(&self, books: &Books, taken: &All<'_>) -> Verdict {
        for book in self.last.keys().chain(books.pages.keys()) {
            let (must, found) = (self.page(book, taken), books.pages.get(book).cloned().unwrap_or_default());
            if must != found {
                return Err(format!("book {book} is recorded as {found:?}, its results make {must:?}"));
            }
        }
        if self.rounds != books.rounds {
            return Err(format!("rounds are recorded as {:?}, there were {:?}", books.rounds, self.rounds));
        }
        Ok(())
    }
}

/// Sums of a run, by seq.
#[derive(Default)]
struct Run(Vec<(u64, Sum)>);

impl Run {
    fn cut(&mut self, to: u64) {
        while self.0.last().is_some_and(|(seq, _)| *seq > to) {
            self.0.pop();
        }
    }
    fn sum(&self) -> Sum {
        self.0.last().map(|(_, sum)| sum.clone()).unwrap_or_default()
    }
}

/// The recorded states are those that the recorded results make, at each look into the store; nothing of an undone attempt is there.
pub(super) fn add_up(events: Events<'_>) -> Verdict {
    let mut taken = All::new();
    let mut runs: BTreeMap<RunId, Run> = BTreeMap::new();
    for (at, event) in events {
        let fail = |run: &RunId, why: String| Err(format!("{at:?}: run {run}: {why}"));
        match event {
            Event::Misread { run, message } => return fail(run, message.clone()),
            Event::Took { run, token, round, pages, .. } => {
                for (book, before, _) in pages {
                    found(*run, book, before, &taken).or_else(|why| fail(run, format!("execution {token}: {why}")))?;
                }
                taken.insert(*token, Taken { run: *run, round: *round, pages, gave: false });
            }
            Event::Gave { token, .. } => {
                if let Some(taken) = taken.get_mut(token) {
                    taken.gave = true;
                }
            }
            Event::Recorded { run, entries, .. } => {
                let rows = runs.entry(*run).or_default();
                for entries in entries.chunk_by(|(a, _), (b, _)| a == b) {
                    let seq = entries[0].0;
                    rows.cut(seq - 1);
                    let mut sum = rows.sum();
                    sum.add(entries, &taken).or_else(|why| fail(run, format!("seq {seq}: {why}")))?;
                    rows.0.push((seq, sum));
                }
            }
            Event::Read { run, tail, read } => {
                let rows = runs.entry(*run).or_default();
                rows.cut(*tail);
                match read {
                    Err(why) => return fail(run, format!("tail {tail}: {why}")),
                    Ok(books) => rows.sum().is(books, &taken).or_else(|why| fail(run, format!("tail {tail}: {why}")))?,
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whoever finds a book finds it as an execution left it that ended well, or empty.
fn found(run: RunId, book: &str, before: &Page, taken: &All<'_>) -> Verdict {
    let Some(last) = before.all.last() else {
        return if *before == Page::default() {
            Ok(())
        } else {
            Err(format!("found {before:?} before anybody changed book {book}"))
        };
    };
    match taken.get(last).filter(|last| last.run == run && last.gave).and_then(|last| last.page(book)) {
        Some((_, _, after)) if after == before => Ok(()),
        other => Err(format!("found {before:?} in book {book}, left was {other:?}")),
    }
}

/// Behind a durable round that is over, no holder begins an earlier one.
pub(super) fn durable_rounds(events: Events<'_>) -> Verdict {
    let mut furthest: BTreeMap<(RunId, Step), (u32, u64)> = BTreeMap::new();
    for (at, event) in events {
        let Event::Took { run, step, epoch, round: Some(round), durable: true, .. } = event else { continue };
        let (furthest, since) = furthest.entry((*run, *step)).or_insert((*round, *epoch));
        if round > furthest {
            (*furthest, *since) = (*round, *epoch);
        } else if round < furthest && epoch >= since {
            return Err(format!(
                "{at:?}: run {run} does round {round} of step {step} in epoch {epoch}, after {furthest} in {since}"
            ));
        }
    }
    Ok(())
}

/// A fold of an older epoch never applies, nor one of a run that ended.
pub(super) fn folds(events: Events<'_>) -> Verdict {
    let mut epochs: BTreeMap<RunId, u64> = BTreeMap::new();
    for (at, event) in events {
        match event {
            Event::Claimed { run, epoch, .. } => _ = epochs.insert(*run, *epoch),
            Event::Ended { run, .. } => _ = epochs.insert(*run, u64::MAX),
            Event::Folded { run, epoch, folded: Folded::Done, .. } if epochs.get(run) != Some(epoch) => {
                return Err(format!("{at:?}: a fold of epoch {epoch} applied to run {run}, which is in {:?}", epochs.get(run)));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::bad::*, *};

    fn page(tokens: &[u64]) -> Page {
        Page { all: tokens.to_vec(), count: tokens.len() as u64, ..Page::default() }
    }
    fn took(token: u64, round: Option<u32>, before: &[u64]) -> Event {
        took_in(1, token, round, before)
    }
    fn took_in(epoch: u64, token: u64, round: Option<u32>, before: &[u64]) -> Event {
        let pages = vec![("a".into(), page(before), page(&[before, &[token]].concat()))];
        Event::Took { run: run(), epoch, step: step(1), token, round, durable: true, pages }
    }
    fn gave(token: u64) -> Event {
        Event::Gave { run: run(), token }
    }
    fn change(seq: u64, token: u64) -> (u64, Entry) {
        (seq, Entry::Change { book: "a".into(), token })
    }
    fn result(seq: u64, token: u64, ok: bool) -> (u64, Entry) {
        (seq, Entry::Result { step: step(u128::from(token)), token, ok })
    }
    fn round(seq: u64, done: u64, failed: u32) -> (u64, Entry) {
        (seq, Entry::Round { step: step(1), done, failed })
    }
    fn recorded(entries: Vec<(u64, Entry)>) -> Event {
        let to = entries.last().map_or(0, |(seq, _)| *seq);
        Event::Recorded { run: run(), to, entries }
    }
    fn read(tail: u64, tokens: &[u64], rounds: Option<(u64, u32)>) -> Event {
        let pages = BTreeMap::from([("a".into(), page(tokens))]);
        let rounds = rounds.map(|rounds| (step(1), rounds)).into_iter().collect();
        Event::Read { run: run(), tail, read: Ok(Books { pages, rounds, folded: 0 }) }
    }
    fn judge(events: Vec<Event>) -> Verdict {
        add_up(&at(events))
    }

    #[test]
    fn states_that_do_not_follow_from_results_are_seen() {
        let two = || vec![took(5, None, &[]), gave(5), took(6, None, &[5]), gave(6)];
        let rows = || recorded(vec![change(1, 5), result(1, 5, true), change(2, 6), result(2, 6, true)]);
        assert!(judge([two(), vec![rows(), read(2, &[5, 6], None), read(1, &[5], None)]].concat()).is_ok());
        assert!(judge([two(), vec![rows(), read(2, &[5], None)]].concat()).is_err(), "lost");
        assert!(judge([two(), vec![rows(), read(1, &[5, 6], None)]].concat()).is_err(), "more than its rows");
        assert!(judge([two(), vec![recorded(vec![change(1, 6), result(1, 6, true)])]].concat()).is_err(), "out of order");
        assert!(judge([two(), vec![recorded(vec![change(1, 5)])]].concat()).is_err(), "without a result");
        assert!(judge([two(), vec![recorded(vec![result(1, 5, true)])]].concat()).is_err(), "without its change");
        assert!(judge([two(), vec![recorded(vec![change(1, 5), result(1, 5, false)])]].concat()).is_err(), "of a failure");
        assert!(judge(vec![took(5, None, &[]), recorded(vec![change(1, 5), result(1, 5, true)])]).is_err(), "it had not ended");
        assert!(judge(vec![Event::Read { run: run(), tail: 0, read: Err("damaged".into()) }]).is_err());
        assert!(judge(vec![Event::Misread { run: run(), message: String::new() }]).is_err());
    }

    #[test]
    fn whoever_finds_what_was_undone_is_seen() {
        assert!(judge(vec![took(5, None, &[]), took(6, None, &[])]).is_ok());
        assert!(judge(vec![took(5, None, &[]), took(6, None, &[5])]).is_err());
        assert!(judge(vec![took(5, None, &[]), gave(5), took(6, None, &[4, 5])]).is_err());
    }

    #[test]
    fn rounds_that_are_lost_or_counted_twice_are_seen() {
        let rounds = || vec![took(5, Some(1), &[]), gave(5), took(6, Some(2), &[5]), gave(6)];
        let one = || vec![change(1, 5), round(1, 1, 0)];
        assert!(
            judge([rounds(), vec![recorded(one()), recorded(vec![round(2, 1, 1)]), read(2, &[5], Some((1, 1)))]].concat())
                .is_ok()
        );
        assert!(judge([rounds(), vec![recorded(one()), read(1, &[5], None)]].concat()).is_err(), "its number is not there");
        assert!(
            judge([rounds(), vec![recorded(one()), recorded(vec![change(2, 6), round(2, 1, 0)])]].concat()).is_err(),
            "twice"
        );
        assert!(judge([rounds(), vec![recorded(one()), recorded(vec![round(2, 2, 1)])]].concat()).is_err(), "of another round");
        let kept = recorded(vec![(2, Entry::Attempt { step: step(1) })]);
        assert!(judge([rounds(), vec![recorded(one()), kept]].concat()).is_err(), "a failed round that stays");
        assert!(durable_rounds(&at(rounds())).is_ok());
        assert!(durable_rounds(&at([rounds(), vec![took_in(2, 7, Some(1), &[])]].concat())).is_err());
        assert!(durable_rounds(&at(vec![took_in(2, 7, Some(2), &[]), took(5, Some(1), &[])])).is_ok(), "a displaced holder");
    }

    #[test]
    fn a_fold_of_a_displaced_holder_is_seen() {
        let folded = |epoch, folded| Event::Folded { run: run(), epoch, seq: 1, folded };
        assert!(folds(&at(vec![claimed(1, &[]), folded(1, Folded::Done)])).is_ok());
        assert!(folds(&at(vec![claimed(1, &[]), claimed(2, &[]), folded(1, Folded::Fenced)])).is_ok());
        assert!(folds(&at(vec![claimed(1, &[]), claimed(2, &[]), folded(1, Folded::Done)])).is_err());
    }
}

//! A recording folded into memory: what the body is to see again, and what is known of each step.
//!
//! Invariant: pure; a recording that does not add up becomes a named error, never a shorter image.

use lobster_store::contract::{
    Failed, Mark, Recording, RunId, Seq,
    record::{self, Attempt, Came, Fact, Fate, Input, Intent, Kind, Payload, StepName, Window},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// What a body is shown, in seq order.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub step: Arc<StepName>,
    pub came: Came,
}

/// What is known of one step without a seen result, or with a key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Its result, and the seq of it.
    pub result: Option<(Seq, Came)>,
    /// The last intent without a result, and the seq of it.
    pub intent: Option<(Seq, Intent)>,
    /// The last failed attempt, and the seq of it.
    pub attempt: Option<(Seq, Attempt)>,
    /// The windows that successors fixed for the last intent, one a boot.
    pub windows: Vec<Window>,
    /// The body dropped its call.
    pub detached: bool,
    /// The body asked for it again, by key, and was shown its result.
    pub attached: bool,
    /// Somebody's word on the last intent.
    pub verdict: Option<Fate>,
    /// In this life: its result was shown.
    pub shown: bool,
    /// In this life: its call was dropped (again).
    pub dropped_again: bool,
}

impl Known {
    /// Is it unknown whether the last call happened? The intent, if the process died in it or it ended in doubt.
    pub fn in_doubt(&self) -> Option<&(Seq, Intent)> {
        let intent = self.intent.as_ref()?;
        match &self.attempt {
            _ if self.result.is_some() => None,
            Some((seq, attempt)) if *seq > intent.0 && !attempt.in_doubt => None,
            _ => Some(intent),
        }
    }
    /// Did nobody see how the last call ended? Its process died in it, or took an intent back that an earlier call had left in doubt.
    pub fn unseen(&self) -> bool {
        let Some((intent, _)) = &self.intent else { return false };
        let after = self.attempt.as_ref().filter(|(attempt, _)| attempt > intent);
        self.result.is_none() && after.is_none_or(|(_, attempt)| attempt.failure.is_none())
    }
}

/// A recording in memory.
#[derive(Debug, Default)]
pub(crate) struct Image {
    pub tail: Seq,
    pub mark: Mark,
    pub input: Payload,
    /// What the body has yet to be shown again.
    pub replay: VecDeque<(Seq, Shown)>,
    /// Steps with something to know beyond their place in `replay`.
    pub known: BTreeMap<Arc<StepName>, Known>,
}

/// Folds a recording, checking every record of it in order.
///
/// # Errors
/// [`Failed::Corrupt`], naming run, seq and record.
pub(crate) fn fold(run: RunId, recording: &Recording) -> Result<Image, Failed> {
    let corrupt = |seq, why: String| Failed::Corrupt { run, seq, record: "delta", why };
    let input = recording.input.open::<Input>(Kind::Input, run)?.payload.unwrap_or_default();
    let mut image = Image { tail: recording.tail, mark: recording.mark, input, ..Image::default() };
    let (mut seq, mut mark, mut epoch) = (0, 0, 0);
    for row in &recording.rows {
        if row.from != seq + 1 {
            return Err(corrupt(seq + 1, format!("missing: the next row begins at {}", row.from)));
        }
        if row.epoch < epoch {
            return Err(corrupt(row.from, format!("epoch {} after epoch {epoch}", row.epoch)));
        }
        for fact in record::open_row(run, row.epoch, row.from, row.to, &row.body, row.crc)? {
            seq += 1;
            image.take(seq, fact).map_err(|why| corrupt(seq, why))?;
        }
        (mark, epoch) = (row.crc, row.epoch);
    }
    if seq != recording.tail || mark != recording.mark {
        return Err(corrupt(seq, format!("the last row does not fit the run's tail {}", recording.tail)));
    }
    for verdict in &recording.verdicts {
        let fate: Fate = verdict.fate.open(Kind::Verdict, run)?;
        // A verdict on an intent that was resolved or armed again meanwhile speaks of nothing.
        let meant = |known: &&mut Known| known.in_doubt().is_some_and(|(seq, _)| *seq == verdict.intent);
        if let Some(known) = image.known.values_mut().find(meant) {
            known.verdict = Some(fate);
        }
    }
    // A result that nobody was shown live must not be shown on the way back either.
    let known = std::mem::take(&mut image.known);
    image.replay.retain(|(seq, shown)| {
        known.get(&shown.step).is_none_or(|known| !known.detached || known.result.as_ref().is_none_or(|(at, _)| at != seq))
    });
    image.known = known;
    Ok(image)
}

impl Image {
    fn take(&mut self, seq: Seq, fact: Fact) -> Result<(), String> {
        let named = |step: Option<StepName>| step.map(Arc::new).ok_or_else(|| "a fact about no step".to_owned());
        match fact {
            Fact::Result(result) => {
                let step = named(result.step)?;
                let came = result.came.ok_or("a result without a value")?;
                let known = self.known.entry(step.clone()).or_default();
                if known.result.is_some() {
                    return Err(format!("a second result of {}", crate::name::display(&step)));
                }
                known.result = Some((seq, came.clone()));
                self.replay.push_back((seq, Shown { step, came }));
            }
            Fact::Attempt(attempt) => {
                let step = named(attempt.step.clone())?;
                self.known.entry(step).or_default().attempt = Some((seq, attempt));
            }
            Fact::Intent(intent) => {
                let known = self.known.entry(named(intent.step.clone())?).or_default();
                if known.result.is_some() {
                    return Err("an intent after the result".into());
                }
                known.intent = Some((seq, intent));
                known.windows.clear();
            }
            Fact::Window(window) => {
                let known = self.known.entry(named(window.step.clone())?).or_default();
                if known.intent.as_ref().is_some_and(|(seq, _)| *seq == window.intent) {
                    known.windows.push(window);
                }
            }
            Fact::Detached(step) => self.known.entry(Arc::new(step)).or_default().detached = true,
            Fact::Attached(step) => {
                let step = Arc::new(step);
                let known = self.known.entry(step.clone()).or_default();
                known.attached = true;
                let (_, came) = known.result.clone().ok_or("attached to a call without a result")?;
                self.replay.push_back((seq, Shown { step, came }));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(attempt: Option<Attempt>) -> Known {
        let intent = Intent { attempt: 5, ..Intent::default() };
        Known { intent: Some((9, intent)), attempt: attempt.map(|attempt| (10, attempt)), ..Known::default() }
    }

    #[test]
    fn an_intent_taken_back_is_no_failure_that_somebody_saw() {
        let back = Attempt { number: 5, in_doubt: true, ..Attempt::default() };
        assert!(known(None).unseen());
        assert!(known(Some(back.clone())).unseen(), "five deaths and an intent taken back do not exhaust the attempts");
        assert!(!known(Some(Attempt { failure: Some(record::Failure::default()), ..back })).unseen());
    }

    #[test]
    fn what_did_not_happen_is_not_in_doubt() {
        assert!(known(None).in_doubt().is_some());
        assert!(known(Some(Attempt { in_doubt: true, ..Attempt::default() })).in_doubt().is_some());
        assert!(known(Some(Attempt { in_doubt: false, ..Attempt::default() })).in_doubt().is_none());
    }
}

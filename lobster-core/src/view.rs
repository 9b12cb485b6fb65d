//! What people see of a run: its steps, and the one reason why it does not go on.
//!
//! Invariant: observations may be ahead of what is durable; they say where.

use crate::{
    error::{Error, StepFailed},
    image::{self, LOST},
    name,
    state::content::Content,
};
use lobster_store::contract::{
    NodeState, Peer, RunId, RunState, RunSummary, Seq, Stored, Wall, limits,
    record::{self, Came, Codec, Ending, Fact, Intent, Kind, Outcome, StepName},
};
use std::{collections::BTreeMap, fmt};
use uuid::Uuid;

/// A run, as shown by [`Client::show`](crate::Client::show).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunView {
    /// Its row.
    pub summary: RunSummary,
    /// Its steps, in the order in which they were first recorded.
    pub steps: Vec<StepView>,
    /// Its states, by name.
    pub states: Vec<StateView>,
    /// Seq up to which changes of state are folded into a snapshot; `None`: they never were.
    pub snapshot: Option<Seq>,
    /// How it ended: the value as text, or the failure; `None` while it has not ended.
    pub outcome: Option<Result<String, String>>,
    /// Last seq known to be synced.
    pub synced: Seq,
}

/// A step, as shown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepView {
    /// Public id, the one to [`resolve`](crate::Client::resolve) by.
    pub id: Uuid,
    /// `scope/name#occurrence` or `scope/name[key]`.
    pub name: String,
    /// Where it is.
    pub state: StepState,
    /// Attempts made.
    pub attempts: u32,
    /// When the process that recorded it began its first attempt, and when the last one ended, if it has a result.
    pub times: Option<(Wall, Wall)>,
    /// Seq of its last record.
    pub seq: Seq,
    /// Is that record known to be synced?
    pub synced: bool,
}

/// A state, as shown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StateView {
    /// Its name.
    pub name: String,
    /// Version of its schema, as recorded.
    pub version: u32,
    /// Its members that have content, by name.
    pub members: Vec<MemberView>,
}

/// A member of a state, as shown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemberView {
    /// Its name.
    pub name: String,
    /// Values, items or entries.
    pub count: usize,
    /// Encoded bytes.
    pub bytes: usize,
    /// A value as text, or the last item; at most 200 bytes of it.
    pub sample: String,
}

/// Where a step is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StepState {
    /// It has this value (as text; JSON).
    Done(String),
    /// It failed for good.
    Failed(StepFailed),
    /// An attempt failed; the next is due then.
    Retrying {
        /// The last error.
        error: String,
        /// When.
        due: Wall,
    },
    /// It is repeated, and so many rounds are done.
    Repeating(u64),
    /// Its call was about to be made, and nothing more is recorded: it is under way, or in doubt if its process is gone.
    Intended,
    /// Its call may have happened.
    InDoubt(String),
}

/// The one reason why a run does not go on at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It is free: a node with a free slot will claim it.
    Queued,
    /// No live node has its task in its version or a later one.
    NoNode {
        /// The task.
        task: String,
        /// The version.
        version: u32,
    },
    /// It waits until then.
    Until {
        /// When (milliseconds since 1970, UTC).
        due: Wall,
        /// For what.
        why: String,
    },
    /// It is held for a person.
    Held(String),
    /// Its owner is not a live node any more: it will be taken over.
    OwnerGone,
    /// It killed its process before: it waits until a node executes nothing else.
    Alone {
        /// How often.
        deaths: u32,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Queued => f.write_str("queued for a free slot"),
            Reason::NoNode { task, version } => write!(f, "no live node has task `{task}` in version {version} or later"),
            Reason::Until { due, why } => write!(f, "waits until {} ms: {why}", due.0),
            Reason::Held(why) => write!(f, "held: {why}"),
            Reason::OwnerGone => f.write_str("its owner is gone; it will be taken over"),
            Reason::Alone { deaths } => write!(f, "its process died {deaths} times in it; it waits to be executed alone"),
        }
    }
}

/// Why a run does not go on.
pub(crate) fn why(run: &RunSummary, peers: &[Peer], now: Wall) -> Option<Reason> {
    let active = |peer: &&Peer| peer.state == NodeState::Active;
    match run.state {
        RunState::Succeeded | RunState::Failed | RunState::Cancelled | RunState::Quarantined => None,
        RunState::Held => Some(Reason::Held(run.reason.clone())),
        RunState::Running => {
            let owner = peers.iter().filter(active).find(|peer| Some(peer.incarnation) == run.owner);
            owner.is_none().then_some(Reason::OwnerGone)
        }
        RunState::Ready if run.due > now => Some(Reason::Until { due: run.due, why: run.reason.clone() }),
        RunState::Ready => {
            let can =
                |peer: &Peer| peer.tasks.iter().any(|known| known.task == run.task.task && known.version >= run.task.version);
            if !peers.iter().filter(active).any(can) {
                return Some(Reason::NoNode { task: run.task.task.clone(), version: run.task.version });
            }
            Some(if run.deaths >= limits::DEATHS_ALONE { Reason::Alone { deaths: run.deaths } } else { Reason::Queued })
        }
    }
}

/// Builds the view of a stored run.
pub(crate) fn run_view(stored: &Stored, synced: Seq) -> Result<RunView, Error> {
    let run = stored.summary.id;
    let mut steps = Steps { run, synced, order: Vec::new(), by_name: BTreeMap::new() };
    let image = image::fold(run, &stored.recording)?;
    for (seq, fact) in image::facts(run, &stored.recording)? {
        steps.take(seq, fact);
    }
    for (step, done) in &image.rounds {
        let attempt = image.known.get(step).and_then(|known| known.attempt.as_deref());
        steps.round(step, *done, attempt.map(|(_, attempt)| attempt.clone()), image.tail);
    }
    let outcome = match &stored.ended {
        None => None,
        Some(ended) => Some(match ended.outcome.open::<Outcome>(Kind::Outcome, run)?.ending {
            Some(Ending::Value(payload)) => Ok(text(&payload)),
            Some(Ending::Failure(failure)) => Err(StepFailed::from_record(failure).to_string()),
            Some(Ending::Cancelled(reason) | Ending::Quarantined(reason)) => Err(reason),
            None => Err("an outcome of a kind this code does not know".into()),
        }),
    };
    let states = image.states.iter().map(|(name, content)| StateView {
        name: name.clone(),
        version: content.version,
        members: content.members.iter().map(|(name, content)| member_view(name, content)).collect(),
    });
    Ok(RunView {
        summary: stored.summary.clone(),
        steps: steps.order,
        states: states.collect(),
        snapshot: stored.recording.snapshot.as_ref().map(|snapshot| snapshot.seq),
        outcome,
        synced,
    })
}

struct Steps {
    run: RunId,
    synced: Seq,
    order: Vec<StepView>,
    by_name: BTreeMap<StepName, usize>,
}

impl Steps {
    fn take(&mut self, seq: Seq, fact: Fact) {
        let (step, state, attempts, times) = match fact {
            Fact::Result(result) => {
                let state = match result.came {
                    Some(Came::Value(payload)) => StepState::Done(text(&payload)),
                    Some(Came::Failure(failure)) => StepState::Failed(StepFailed::from_record(failure)),
                    None => return,
                };
                (result.step, state, result.attempts, Some((Wall(result.began_ms), Wall(result.ended_ms))))
            }
            Fact::Attempt(attempt) => {
                let error = attempt.failure.map(|failure| failure.message).unwrap_or_default();
                let state = match attempt.in_doubt {
                    true => StepState::InDoubt(error),
                    false => StepState::Retrying { error, due: Wall(attempt.due_ms) },
                };
                (attempt.step, state, attempt.number, None)
            }
            Fact::Intent(Intent { step, attempt, lost: 1.., .. }) => (step, StepState::InDoubt(LOST.to_owned()), attempt, None),
            Fact::Intent(intent) => (intent.step, StepState::Intended, intent.attempt, None),
            Fact::Window(_) | Fact::Detached(_) | Fact::Attached(_) => return,
        };
        if let Some(step) = step {
            self.put(step, state, attempts, times, seq);
        }
    }

    fn round(&mut self, step: &StepName, done: u64, attempt: Option<record::Attempt>, seq: Seq) {
        let (state, attempts) = match attempt {
            None => (StepState::Repeating(done), 0),
            Some(attempt) => {
                let error = attempt.failure.map(|failure| failure.message).unwrap_or_default();
                (StepState::Retrying { error, due: Wall(attempt.due_ms) }, attempt.number)
            }
        };
        self.put(step.clone(), state, attempts, None, seq);
    }

    fn put(&mut self, step: StepName, state: StepState, attempts: u32, times: Option<(Wall, Wall)>, seq: Seq) {
        let view = StepView {
            id: name::step_id(self.run, &step),
            name: name::display(&step),
            state,
            attempts,
            times,
            seq,
            synced: seq <= self.synced,
        };
        match self.by_name.get(&step) {
            Some(index) => self.order[*index] = view,
            None => {
                self.by_name.insert(step, self.order.len());
                self.order.push(view);
            }
        }
    }
}

fn member_view(name: &str, content: &Content) -> MemberView {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let sample = match content {
        Content::Value(value) => shown(value),
        Content::Items(items) => items.last().map(|item| shown(item)).unwrap_or_default(),
        Content::Entries(entries) => {
            entries.last_key_value().map(|(key, value)| format!("{}: {}", shown(key), shown(value))).unwrap_or_default()
        }
    };
    MemberView { name: name.to_owned(), count: content.count(), bytes: content.bytes(), sample }
}

fn text(payload: &record::Payload) -> String {
    match Codec::try_from(payload.codec) {
        Ok(Codec::Json) => String::from_utf8_lossy(&payload.data).into_owned(),
        _ => format!("{} bytes of codec {}", payload.data.len(), payload.codec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lobster_store::contract::{Incarnation, TaskVersion};
    use std::time::Duration;

    #[test]
    fn a_run_that_does_not_go_on_has_one_reason() {
        let task = |version| TaskVersion { task: "checkout".into(), version };
        let node = |number, state, version| Peer {
            incarnation: Incarnation(Uuid::from_u128(number)),
            name: "till".into(),
            state,
            tasks: vec![task(version)],
            beat: 0,
            age: None,
            ttl: Duration::from_secs(15),
        };
        let peers = [node(1, NodeState::Active, 2), node(2, NodeState::Left, 9), node(3, NodeState::Failed, 9)];
        let run = |state, version| RunSummary {
            id: RunId(Uuid::from_u128(7)),
            key: None,
            digest: Default::default(),
            task: task(version),
            tags: Vec::new(),
            state,
            reason: "why".into(),
            owner: None,
            epoch: 1,
            tail: 0,
            attempts: 0,
            deaths: 0,
            cancel: false,
            submitted: Wall(0),
            due: Wall(100),
            ended: None,
        };
        let owned = |number| RunSummary { owner: Some(Incarnation(Uuid::from_u128(number))), ..run(RunState::Running, 1) };
        let until = Reason::Until { due: Wall(100), why: "why".into() };
        let suspect = RunSummary { deaths: limits::DEATHS_ALONE, ..run(RunState::Ready, 2) };
        let table = [
            (run(RunState::Ready, 2), 99, Some(until)),
            (run(RunState::Ready, 2), 100, Some(Reason::Queued)),
            (RunSummary { deaths: limits::DEATHS_ALONE - 1, ..suspect.clone() }, 100, Some(Reason::Queued)),
            (suspect, 100, Some(Reason::Alone { deaths: limits::DEATHS_ALONE })),
            // Only living nodes count.
            (run(RunState::Ready, 3), 100, Some(Reason::NoNode { task: "checkout".into(), version: 3 })),
            (run(RunState::Held, 3), 0, Some(Reason::Held("why".into()))),
            (owned(1), 0, None),
            (owned(2), 0, Some(Reason::OwnerGone)),
            (owned(3), 0, Some(Reason::OwnerGone)),
            (owned(4), 0, Some(Reason::OwnerGone)),
            (run(RunState::Succeeded, 3), 100, None),
            (run(RunState::Failed, 3), 100, None),
            (run(RunState::Cancelled, 3), 100, None),
            (run(RunState::Quarantined, 3), 100, None),
        ];
        for (run, now, reason) in table {
            assert_eq!(why(&run, &peers, Wall(now)), reason, "{run:?} at {now}");
        }
    }
}

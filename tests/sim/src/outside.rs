//! The outside world: the oracle that the engine does not own. It knows what really happened.
//!
//! Invariant: a request takes effect at most D after its call began, as `max_duration` asserts; a `retry` step's remote executes
//! a key once, the remotes of other steps execute whatever reaches them unless the key is closed.

use crate::{
    history::{Event, Step},
    node::Node,
    plan::Kind,
    rng::Rng,
    swarm::{Call, MAX_DURATION, Moment},
    world::{World, sleep},
};
use lobster_core::RunId;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, MutexGuard},
    time::Duration,
};
use tokio::sync::oneshot;

/// What the world knows.
#[derive(Debug)]
pub(crate) struct Outside {
    pub rng: Rng,
    /// What became of keys: the token of the first execution, or a refusal.
    fates: BTreeMap<String, Option<u64>>,
    /// First execution of a step, whatever its key.
    effects: BTreeMap<Step, u64>,
    /// Last key that a call of a step came with.
    keys: BTreeMap<Step, String>,
    closed: BTreeSet<String>,
    /// Whose call of its plan a step is.
    labels: BTreeMap<Step, u32>,
}

impl Outside {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed, "outside", 0),
            fates: BTreeMap::new(),
            effects: BTreeMap::new(),
            keys: BTreeMap::new(),
            closed: BTreeSet::new(),
            labels: BTreeMap::new(),
        }
    }
    /// The effect of a step, if it has one by now.
    pub fn effect(&self, step: Step) -> Option<u64> {
        self.effects.get(&step).copied()
    }
    /// The last key seen of a step, unless it is closed.
    pub fn open_key(&self, step: Step) -> Option<String> {
        self.keys.get(&step).filter(|key| !self.closed.contains(*key)).cloned()
    }
}

/// A call, as it reaches the world.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub run: RunId,
    pub step: Step,
    pub kind: Kind,
    pub label: u32,
    pub key: String,
    /// When its call began.
    pub began: Duration,
}

/// What the caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Done(u64),
    /// Refused for good; it has no effect.
    Declined,
    /// It had no effect; it may be asked again.
    Undone,
    /// The connection broke.
    Broken,
}

/// How the world treats one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Fine,
    Declines,
    Undone,
    /// Breaks before it took effect.
    Before,
    /// Breaks after it took effect.
    After,
    /// Breaks at once, takes effect later.
    Behind,
    /// Never answers.
    Mute,
}

impl World {
    pub fn outside(&self) -> MutexGuard<'_, Outside> {
        self.outside.lock().expect("nothing panics under this lock")
    }

    /// Sends a request and waits for the reply. The request is on its way even if the caller is dropped.
    #[allow(clippy::disallowed_methods, reason = "the world's own tasks belong to no node")]
    pub async fn send(self: &Arc<Self>, node: &Arc<Node>, request: Request) -> Reply {
        let (mood, there, back) = self.mood();
        self.note(format_args!("node {} sends {} {mood:?} {there:?} {back:?}", node.serial, request.key));
        {
            let mut outside = self.outside();
            outside.keys.insert(request.step, request.key.clone());
            outside.labels.insert(request.step, request.label);
        }
        let (tell, told) = oneshot::channel();
        let (world, node) = (self.clone(), node.clone());
        tokio::spawn(async move {
            world.pass(&node, Call::Outside, Moment::Sent);
            if mood == Mood::Behind {
                // The caller may hear of the broken connection before its request arrives.
                let _ = tell.send(Reply::Broken);
                sleep(there).await;
                world.arrive(&request);
                return;
            }
            sleep(there).await;
            let reply = match mood {
                Mood::Fine | Mood::Mute | Mood::Behind => world.arrive(&request),
                Mood::After => {
                    world.arrive(&request);
                    Reply::Broken
                }
                Mood::Before => Reply::Broken,
                Mood::Undone => match world.outside().fates.get(&request.key) {
                    // It cannot say that nothing happened if something did.
                    Some(Some(token)) if request.kind == Kind::Retry => Reply::Done(*token),
                    _ => Reply::Undone,
                },
                Mood::Declines => world.decline(&request),
            };
            world.pass(&node, Call::Outside, Moment::Applied);
            if mood == Mood::Mute {
                return std::future::pending().await;
            }
            sleep(back).await;
            let _ = tell.send(reply);
            world.pass(&node, Call::Outside, Moment::Answered);
        });
        match told.await {
            Ok(reply) => reply,
            Err(_) => std::future::pending().await,
        }
    }

    fn mood(&self) -> (Mood, Duration, Duration) {
        let healed = self.healed();
        let mut outside = self.outside();
        let rng = &mut outside.rng;
        let (mut there, mut back) = (rng.ms(0, 5), rng.ms(0, 5));
        if healed {
            return (Mood::Fine, there, back);
        }
        let limit = MAX_DURATION.as_millis() as u64;
        if rng.chance(self.swarm.outside_slow) {
            there += rng.ms(0, limit);
        }
        if rng.chance(self.swarm.outside_slow) {
            back += rng.ms(0, limit);
        }
        let moods = [Mood::Declines, Mood::Undone, Mood::Before, Mood::After, Mood::Behind, Mood::Mute];
        let mood = if rng.chance(self.swarm.outside_errors) { rng.pick(&moods) } else { Mood::Fine };
        (mood, there, back)
    }

    /// A request arrives.
    fn arrive(self: &Arc<Self>, request: &Request) -> Reply {
        if self.now() > request.began + MAX_DURATION {
            // What D promises: it never takes effect any more.
            return Reply::Broken;
        }
        let token = {
            let mut outside = self.outside();
            if outside.closed.contains(&request.key) {
                return Reply::Declined;
            }
            match outside.fates.get(&request.key) {
                Some(Some(token)) if request.kind == Kind::Retry => return Reply::Done(*token),
                Some(None) if request.kind == Kind::Retry => return Reply::Declined,
                _ => {}
            }
            let token = self.token();
            outside.fates.insert(request.key.clone(), Some(token));
            outside.effects.entry(request.step).or_insert(token);
            token
        };
        self.log(Event::Executed { run: request.run, step: request.step, key: request.key.clone(), token });
        Reply::Done(token)
    }

    fn decline(&self, request: &Request) -> Reply {
        let mut outside = self.outside();
        match outside.fates.get(&request.key) {
            Some(Some(token)) if request.kind == Kind::Retry => Reply::Done(*token),
            _ => {
                outside.fates.entry(request.key.clone()).or_insert(None);
                Reply::Declined
            }
        }
    }

    /// What was seen of a key so far.
    pub fn seen(&self, key: &str) -> Option<u64> {
        self.outside().fates.get(key).copied().flatten()
    }

    /// Label of a step whose call was seen.
    pub fn label(&self, step: Step) -> u32 {
        self.outside().labels.get(&step).copied().unwrap_or(0)
    }

    /// Closes a key, if nothing came under it: whatever comes later is refused. Says whether it is closed.
    pub fn close(&self, step: Step, key: &str) -> bool {
        {
            let mut outside = self.outside();
            if outside.fates.get(key).copied().flatten().is_some() {
                return false;
            }
            outside.closed.insert(key.to_owned());
        }
        self.log(Event::Closed { step, key: key.to_owned() });
        true
    }
}

//! A call of a step, from the moment it is made until its result was shown: the part that every kind of step shares.
//!
//! Invariant: the occurrence is taken when the call is made; a result is shown only in the call's turn.

use crate::{
    ctx::{Ctx, Home, StepCtx},
    error::StepFailed,
    image::Known,
    live::{CallState, Completed, Inner, Interrupt, Live, Named, Open},
    name,
    path::commit,
    spec::{Spec, StepKind},
    state::loan::{Fate as Became, Found, Loans},
};
use lobster_store::{
    contract::{
        Epoch, Wall,
        record::{Attempt, Came, Changed, Fact, Fate, Intent, Round, StepName, Which, Window},
    },
    planted,
};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

/// What this thread is polling: tells a step called inside a step, and one called outside of its body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polling {
    Nothing,
    /// The body of the run at this address.
    Body(*const Live),
    /// A step of some run.
    Step,
}

thread_local! {
    static POLLING: Cell<Polling> = const { Cell::new(Polling::Nothing) };
}

/// Says for its lifetime what this thread is polling.
pub(crate) struct PollingGuard(Polling);

impl PollingGuard {
    pub fn set(polling: Polling) -> Self {
        Self(POLLING.replace(polling))
    }
}

impl Drop for PollingGuard {
    fn drop(&mut self) {
        POLLING.set(self.0);
    }
}

/// The rounds of one `ctx.repeat`: they share the name that the first of them takes.
#[derive(Default)]
pub(crate) struct Rounds {
    step: OnceLock<(&'static Spec, Arc<StepName>)>,
}

thread_local! {
    static REPEATING: RefCell<Option<Arc<Rounds>>> = const { RefCell::new(None) };
}

impl Rounds {
    /// Runs `round`; the first step that it calls is the next round.
    pub fn next<T>(self: &Arc<Self>, round: impl FnOnce() -> T) -> T {
        struct Restore(Option<Arc<Rounds>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                REPEATING.set(self.0.take());
            }
        }
        let _restore = Restore(REPEATING.replace(Some(self.clone())));
        round()
    }
}

/// An open call. Owned, and `Send`; dropping it tells the run.
pub struct Call {
    pub(crate) spec: &'static Spec,
    pub(crate) cx: StepCtx,
    id: u64,
    /// It is one of the rounds of a repeated step.
    round: bool,
    refused: Option<StepFailed>,
}

/// How a call begins.
pub(crate) enum Begin {
    /// Its result is recorded.
    Recorded(Came),
    /// It cannot be made.
    Refused(StepFailed),
    /// Run it, from here.
    Run(Start),
    /// It was dropped in an earlier life before it was resolved: conduct it, and let the body wait until it drops it again.
    Resolve(Start),
}

/// What is known of a step that has no result yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Start {
    /// Attempts made so far.
    pub attempts: u32,
    /// Generation of its key.
    pub generation: u32,
    /// The next attempt is not due before.
    pub due: Option<Wall>,
    /// A call may have happened.
    pub doubt: Option<Doubt>,
    /// Of the last intent.
    pub epoch: Option<Epoch>,
}

/// An intent whose call may have happened.
#[derive(Debug, Clone)]
pub(crate) struct Doubt {
    /// Seq of the last intent.
    pub seq: u64,
    pub intent: Intent,
    /// Its windows, by boot.
    pub windows: Vec<Window>,
    /// The process died in it: nobody saw how it ended.
    pub died: bool,
    pub verdict: Option<Fate>,
    /// Probes since that could not tell.
    pub probes: u32,
}

/// Takes a call's occurrence and opens it. Everything that can be refused is refused when it is first polled.
pub fn call(ctx: &Ctx, spec: &'static Spec, key: Option<crate::step_key::Key>) -> Call {
    let refused = key.as_ref().and_then(|key| {
        let complaint = name::complaint(&key.0)?;
        Some(StepFailed::refused("InvalidName", format!("the key of step `{}` {complaint}", spec.name), spec.name))
    });
    let rounds = REPEATING.take();
    let round = rounds.is_some();
    let refused = match (&refused, rounds.as_ref().and_then(|rounds| rounds.step.get())) {
        (None, Some((first, step))) if !std::ptr::eq(*first, spec) => {
            let message = format!("a round of the repeated step {} calls `{}`: repeat one step", name::display(step), spec.name);
            Some(StepFailed::refused("NotRepeated", message, spec.name))
        }
        (None, _) if round && matches!(spec.kind, StepKind::Irreversible | StepKind::Transactional) => {
            let message = format!("`{}` runs on a task of its own: repeat an ordinary or durable step", spec.name);
            Some(StepFailed::refused("NotRepeated", message, spec.name))
        }
        _ => refused,
    };
    let named = |step: &Arc<StepName>| {
        if let Some(rounds) = &rounds {
            rounds.step.get_or_init(|| (spec, step.clone()));
        }
    };
    let again = rounds.as_ref().and_then(|rounds| Some(rounds.step.get()?.1.clone()));
    match &ctx.home {
        Home::Detached(detached) => {
            let step = again.unwrap_or_else(|| {
                let which = key.map_or_else(
                    || {
                        let mut all = detached.occurrences.lock().expect("no code that can panic runs under this lock");
                        let next = all.entry(spec.name).or_default();
                        *next += 1;
                        Which::Occurrence(*next - 1)
                    },
                    |key| Which::Key(key.0),
                );
                Arc::new(StepName { scope: ctx.scope.to_string(), name: spec.name.into(), which: Some(which) })
            });
            named(&step);
            Call { spec, cx: StepCtx::new(ctx.home.clone(), step, 0, 1, false), id: 0, round, refused }
        }
        Home::Live(live) => {
            let mut inner = live.lock();
            let later = again.is_some();
            let (step, refused) = match again {
                Some(step) => (step, refused),
                None => inner.name(live, ctx, spec, key, refused),
            };
            named(&step);
            let generation = inner.known.get(&step).map_or(0, |known| start_of(known).generation);
            let id = inner.next_call;
            inner.next_call += 1;
            if refused.is_none() {
                let unkeyed = !later && matches!(step.which, Some(Which::Occurrence(_)));
                let open = Open {
                    step: step.clone(),
                    unkeyed: unkeyed.then(|| (ctx.scope.clone(), spec.name)),
                    state: CallState::Called,
                    waker: None,
                    durable: spec.kind == StepKind::Durable,
                    transactional: spec.kind == StepKind::Transactional,
                    loans: Loans::default(),
                    passing: false,
                    since: None,
                };
                inner.calls.insert(id, open);
            }
            drop(inner);
            Call { spec, cx: StepCtx::new(ctx.home.clone(), step, generation, 1, false), id, round, refused }
        }
    }
}

impl Inner {
    /// Names a call, or says why it cannot be made.
    fn name(
        &mut self,
        live: &Live,
        ctx: &Ctx,
        spec: &'static Spec,
        key: Option<crate::step_key::Key>,
        refused: Option<StepFailed>,
    ) -> (Arc<StepName>, Option<StepFailed>) {
        // Calls that were open before this poll: what woke it may come before or after them on a resume. Those of this very poll
        // follow from it.
        let polled = self.calls.values().filter(|open| open.since.is_some_and(|poll| poll < self.polls)).count();
        let same = |open: &Open| open.unkeyed.as_ref().is_some_and(|(scope, name)| *name == spec.name && *scope == ctx.scope);
        let same_polled = key.is_none() && self.calls.values().any(|open| same(open) && !matches!(open.state, CallState::Called));
        let foreign = POLLING.get() == Polling::Body(live) && self.polls > 1 && !self.shown;
        let named =
            self.names.entry((ctx.scope.clone(), spec.name)).or_insert_with(|| Named { site: spec.site, ..Named::default() });
        let keyed = key.is_some();
        let which = key.map_or_else(
            || {
                named.next += 1;
                Which::Occurrence(named.next - 1)
            },
            |key| Which::Key(key.0),
        );
        let step = Arc::new(StepName { scope: ctx.scope.to_string(), name: spec.name.into(), which: Some(which) });
        let shown = || name::display(&step);
        let refuse = |code: &str, message: String| Some(StepFailed::refused(code, message, &shown()));
        let refused = if refused.is_some() {
            refused
        } else if self.ambiguous.is_some() {
            self.ambiguous.clone()
        } else if named.site != spec.site {
            refuse(
                "SameName",
                format!("`{}` and `{}` are both named `{}`: give one of them `name = \"..\"`", named.site, spec.site, spec.name),
            )
        } else if !keyed && named.dropped {
            refuse(
                "EarlierCallDropped",
                format!("the first `{}` is still running: await it with `ctx.timeout`, or give it a `key`", spec.name),
            )
        } else if !keyed && foreign && polled > 0 {
            refuse(
                "AmbiguousStep",
                format!(
                    "`{}` was called after something outside of the engine (a timer, a channel) woke the body while another step was \
                     open; a resume may see another order: use `ctx.join`, `ctx.map`, `ctx.race` or `ctx.timeout`, or give it a `key`",
                    spec.name
                ),
            )
        } else if keyed {
            let open = self.calls.values().find(|open| open.step == step);
            let known = self.known.get(&step).filter(|known| known.shown);
            match (open, known.and_then(|known| known.result.as_ref())) {
                (Some(_), _) => refuse(
                    "DuplicateStepKey",
                    format!("{} is already open; give each call its own key, for example `key = (i, id)`", shown()),
                ),
                (None, Some((seq, came))) => refuse(
                    "DuplicateStepKey",
                    format!(
                        "{} has a result already (seq {seq}: {}); give each call its own key, for example `key = (i, id)`",
                        shown(),
                        show(came)
                    ),
                ),
                _ => None,
            }
        } else {
            None
        };
        if refused.is_none() && !keyed {
            named.open += 1;
            named.side_by_side |= same_polled;
        }
        (step, refused)
    }

    /// Closes a call: its result was shown, or it was dropped.
    fn close(&mut self, id: u64, seen: bool) -> Option<Open> {
        let mut open = self.calls.remove(&id)?;
        // Not recorded, so undone.
        for (name, held) in open.loans.0.drain(..) {
            self.states.give(&name, Some(held), Became::Undone);
        }
        self.ready.retain(|ready| *ready != id);
        self.landed.retain(|_, landed| *landed != id);
        if self.turn == Some(id) {
            self.turn = None;
        }
        if let Some(unkeyed) = &open.unkeyed
            && let Some(named) = self.names.get_mut(unkeyed)
        {
            if !seen && named.side_by_side && self.ambiguous.is_none() {
                let message = format!(
                    "blocks of the body called `{}` side by side, and one was dropped before it ended; a resume may mix them up: use \
                     `ctx.join`, `ctx.map`, `ctx.race` or `ctx.timeout`, or give the calls a `key`",
                    open.step.name
                );
                self.ambiguous = Some(StepFailed::refused("AmbiguousStep", message, &name::display(&open.step)));
            }
            named.open -= 1;
            named.side_by_side &= named.open > 0;
        }
        Some(open)
    }
}

/// What a restored step starts from.
pub(crate) fn start_of(known: &Known) -> Start {
    let mut start = Start::default();
    if let Some((_, intent)) = known.intent.as_deref() {
        start.attempts = intent.attempt;
        start.generation = intent.generation;
        start.epoch = Some(intent.epoch);
    }
    if let Some((seq, attempt)) = known.attempt.as_deref()
        && known.intent.as_deref().is_none_or(|(intent, _)| intent < seq)
    {
        start.attempts = attempt.number;
        start.generation = attempt.generation;
        start.due = Some(Wall(attempt.due_ms));
    }
    start.doubt = known.in_doubt().map(|(seq, intent)| Doubt {
        seq: *seq,
        intent: intent.clone(),
        windows: known.windows.clone(),
        died: known.unseen(),
        verdict: known.verdict.as_deref().cloned(),
        probes: known.attempt.as_deref().filter(|(attempt, _)| attempt > seq).map_or(0, |(_, attempt)| attempt.probes),
    });
    start
}

fn show(came: &Came) -> String {
    match came {
        Came::Value(payload) => String::from_utf8_lossy(&payload.data[..payload.data.len().min(200)]).into_owned(),
        Came::Failure(failure) => format!("failed: {}", failure.message),
    }
}

impl Call {
    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        match &self.cx.home {
            Home::Live(live) => Some(live),
            Home::Detached(_) => None,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Waits until the call may begin, or its recorded result is shown. After an interrupt it waits for ever.
    pub(crate) async fn begin(&self) -> Begin {
        match (&self.refused, self.live()) {
            (Some(refused), _) => Begin::Refused(refused.clone()),
            (None, None) => Begin::Run(Start::default()),
            (None, Some(live)) => poll_fn(|cx| self.poll_begin(live, cx)).await,
        }
    }

    fn poll_begin(&self, live: &Arc<Live>, cx: &mut Context<'_>) -> Poll<Begin> {
        if let Some(refused) = self.out_of_place(live) {
            return Poll::Ready(Begin::Refused(refused));
        }
        let mut inner = live.lock();
        if inner.interrupt.is_some() {
            return Poll::Pending;
        }
        if let Some(came) = inner.take_turn(self.id) {
            return Poll::Ready(Begin::Recorded(came));
        }
        if planted!("many_per_poll") {
            let step = inner.calls.get(&self.id).map(|open| open.step.clone());
            if let Some((_, shown)) = inner.replay.pop_front_if(|(_, shown)| Some(&shown.step) == step.as_ref()) {
                inner.close(self.id, true);
                return Poll::Ready(Begin::Recorded(shown.came));
            }
        }
        inner.begin(self.id, cx)
    }

    /// Steps are polled in the body of their task, and nowhere else.
    fn out_of_place(&self, live: &Arc<Live>) -> Option<StepFailed> {
        let (code, message) = match POLLING.get() {
            Polling::Body(body) if std::ptr::eq(body, &raw const **live) => return None,
            Polling::Step => ("StepInsideStep", "was called inside a step: call it in the body of the task"),
            _ => ("StepOutsideBody", "was polled outside of the body of its task: await it there"),
        };
        let shown = name::display(&self.cx.step);
        Some(StepFailed::refused(code, format!("step {shown} {message}"), &shown))
    }

    /// Is it one of the rounds of a repeated step?
    pub(crate) fn is_round(&self) -> bool {
        self.round
    }

    /// Hands in the result, and the states with it; waits for its turn.
    pub(crate) async fn complete(&self, completed: Completed, loans: Loans) {
        let mut completed = Some((Box::new(completed), loans));
        let Some(live) = self.live() else {
            for (name, held) in completed.take().into_iter().flat_map(|(_, loans)| loans.0) {
                self.cx.home.give(&name, Some(held), Became::Recorded);
            }
            return;
        };
        poll_fn(|cx| {
            let mut inner = live.lock();
            if let Some((completed, loans)) = completed.take()
                && let Some(open) = inner.calls.get_mut(&self.id)
            {
                (open.state, open.loans) = (CallState::Ready(completed), loans);
                inner.ready.push_back(self.id);
            }
            inner.poll_turn(self.id, cx)
        })
        .await;
    }

    /// Waits until no other step has these states, and takes them.
    pub(crate) async fn checkout(&self, names: &[String]) -> Vec<Found> {
        if names.is_empty() {
            return Vec::new();
        }
        match &self.cx.home {
            Home::Live(live) => poll_fn(|cx| live.lock().poll_states(self.id, names, cx)).await,
            Home::Detached(detached) => detached.checkout(names).await,
        }
    }

    /// Waits until an engine task has the result, and for its turn.
    pub(crate) async fn outcome(&self) -> Came {
        let Some(live) = self.live() else { return std::future::pending().await };
        poll_fn(|cx| live.lock().poll_turn(self.id, cx)).await
    }

    /// Records a failed attempt and waits for the next.
    pub(crate) async fn again(&self, attempt: Attempt, due: Wall, reason: String) {
        if let Some(live) = self.live() {
            {
                let mut inner = live.lock();
                if self.round {
                    // Under way from its first attempt on, so that its result takes the record of it away.
                    let done = *inner.rounds.entry(self.cx.step.clone()).or_default();
                    let round = Round { step: attempt.step.clone(), done, attempt: Some(attempt) };
                    commit::commit_with(live, &mut inner, None, vec![Changed::Round(round)], false);
                } else {
                    commit::commit(live, &mut inner, Fact::Attempt(attempt), false);
                }
            }
            self.backoff(due, reason).await;
        }
    }

    /// Waits until `due`, in a way that lets the run leave memory.
    pub(crate) async fn backoff(&self, due: Wall, reason: String) {
        let Some(live) = self.live() else { return };
        let mut waiting = Some(CallState::Backoff(due, reason));
        poll_fn(|cx| {
            let mut inner = live.lock();
            let interrupted = inner.interrupt.is_some();
            let Some(open) = inner.calls.get_mut(&self.id) else { return Poll::Pending };
            if let Some(waiting) = waiting.take() {
                open.state = waiting;
            }
            match open.state {
                CallState::Running if !interrupted => Poll::Ready(()),
                _ => {
                    open.wait(cx);
                    Poll::Pending
                }
            }
        })
        .await;
    }
}

impl Open {
    fn wait(&mut self, cx: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
    }
}

impl Inner {
    fn begin(&mut self, id: u64, cx: &Context<'_>) -> Poll<Begin> {
        let may_start = self.may_start();
        let Some(open) = self.calls.get_mut(&id) else { return Poll::Pending };
        open.since.get_or_insert(self.polls);
        let known = self.known.get(&open.step);
        let mut begin = None;
        open.state = match (&open.state, known) {
            (CallState::Called, Some(known)) if known.detached && !known.dropped_again => {
                // Dropped in an earlier life: it will be dropped again. What it started is settled meanwhile.
                let begun = known.intent.is_some() || open.transactional;
                let unresolved = known.result.is_none() && begun && !self.conducts.contains_key(&open.step);
                begin = unresolved.then(|| Begin::Resolve(start_of(known)));
                CallState::Detached
            }
            (CallState::Called | CallState::Unstarted, Some(known)) if known.detached => {
                match (self.conducts.get_mut(&open.step), &known.result) {
                    (Some(conducted), _) => {
                        conducted.call = Some(id);
                        CallState::Conducted
                    }
                    (None, Some(_)) if known.attached => CallState::Replay,
                    (None, Some((_, came))) if may_start => {
                        self.ready.push_back(id);
                        CallState::Attaching(came.clone())
                    }
                    // It was dropped before its intent was made, and its run left memory: there is nothing to attach to yet.
                    (None, None) if may_start => {
                        begin = Some(Begin::Run(start_of(known)));
                        CallState::Running
                    }
                    _ => CallState::Unstarted,
                }
            }
            (CallState::Called, Some(known)) if known.result.is_some() => CallState::Replay,
            (CallState::Called | CallState::Unstarted, known) if may_start => {
                begin = Some(Begin::Run(known.map(start_of).unwrap_or_default()));
                CallState::Running
            }
            (CallState::Called, _) => CallState::Unstarted,
            (state, _) => state.clone(),
        };
        match begin {
            Some(begin) => Poll::Ready(begin),
            None => {
                open.wait(cx);
                Poll::Pending
            }
        }
    }

    fn poll_states(&mut self, id: u64, names: &[String], cx: &Context<'_>) -> Poll<Vec<Found>> {
        if self.interrupt.is_some() {
            return Poll::Pending;
        }
        let may = self.may_take(id, names);
        let Some(open) = self.calls.get_mut(&id) else { return Poll::Pending };
        if may {
            open.state = CallState::Running;
            return Poll::Ready(self.states.take(names));
        }
        open.state = CallState::Queued(names.to_vec());
        open.wait(cx);
        Poll::Pending
    }

    /// Are these states free, and is no earlier call waiting for one of them?
    pub(crate) fn may_take(&self, id: u64, names: &[String]) -> bool {
        let earlier = |open: &Open| match &open.state {
            CallState::Queued(queued) => queued.iter().any(|name| names.contains(name)),
            _ => false,
        };
        self.states.free(names) && !self.calls.range(..id).any(|(_, open)| earlier(open))
    }

    fn poll_turn(&mut self, id: u64, cx: &Context<'_>) -> Poll<Came> {
        if self.interrupt.is_some() {
            return Poll::Pending;
        }
        match self.take_turn(id) {
            Some(came) => Poll::Ready(came),
            None => {
                if let Some(open) = self.calls.get_mut(&id) {
                    open.wait(cx);
                }
                Poll::Pending
            }
        }
    }

    /// Shows a call its result, if it has the turn.
    fn take_turn(&mut self, id: u64) -> Option<Came> {
        if self.turn != Some(id) {
            return None;
        }
        let open = self.close(id, true)?;
        self.shown = true;
        if let Some(known) = self.known.get_mut(&open.step) {
            known.shown = true;
        }
        match open.state {
            CallState::Landed(came) => Some(came),
            _ => unreachable!("only a landed call is given the turn"),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Home::Live(live) = &self.cx.home else { return };
        let mut inner = live.lock();
        let Some(open) = inner.close(self.id, false) else { return };
        // After an interrupt it is the engine that drops the body, not the body that dropped the call.
        if inner.interrupt.is_some() {
            return;
        }
        let step = open.step;
        if planted!("drop_forgotten") {
            inner.conducts.remove(&step);
            return;
        }
        let detached = matches!(self.spec.kind, StepKind::Irreversible | StepKind::Transactional);
        match open.state {
            // The rounds of a repeated step are nothing that the body sees.
            CallState::Landed(_) if open.passing => return,
            CallState::Conducted | CallState::Landed(_) => {
                if let Some(conducted) = inner.conducts.get_mut(&step) {
                    conducted.call = None;
                }
                let known = inner.known.entry(step.clone()).or_default();
                let before = std::mem::replace(&mut known.detached, true);
                known.dropped_again = true;
                if !before {
                    commit::commit(live, &mut inner, Fact::Detached((*step).clone()), false);
                }
            }
            CallState::Detached => inner.known.entry(step.clone()).or_default().dropped_again = true,
            CallState::Replay => {
                inner.replay.retain(|(_, shown)| shown.step != step);
                return;
            }
            CallState::Unstarted if inner.known.get(&step).is_some_and(|known| known.in_doubt().is_some()) => {
                // Asked for, in doubt, and dropped before anybody could see to it (the run is drained, or is still being shown its
                // recording): whoever has the run next settles it, and shows the body that it dropped the call.
                inner.known.entry(step.clone()).or_default().detached = true;
                commit::commit(live, &mut inner, Fact::Detached((*step).clone()), false);
                inner.unresolved = true;
                inner.interrupt = Some(Interrupt::Release);
                drop(inner);
                return live.ring();
            }
            _ => return,
        }
        if detached && let Some(unkeyed) = open.unkeyed {
            inner.names.entry(unkeyed).or_default().dropped = true;
        }
    }
}

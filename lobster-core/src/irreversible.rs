//! Irreversible steps: intent first, then the call on a task of the engine; and what happens when its fate is unknown.
//!
//! Invariant: no call is polled for the first time unless its intent is synced, younger than W, and of the lease that still holds.

use crate::{
    call::{Begin, Call, Doubt, Start},
    codec,
    conduct::{self, Interrupted, Theirs},
    ctx::{Home, StepCtx},
    error::{BoxError, StepFailed, tell},
    host::BoxFuture,
    image::LOST,
    lease::Generation,
    live::{Interrupt, Live},
    name,
    path::{
        commit::{commit, intend},
        step::{Next, Trouble, after, describe},
    },
    settle,
    spec::{InDoubt, OnExhausted, Spec},
};
use lobster_store::{
    contract::{
        Boot, Seq, Wall,
        record::{
            self, Attempt, Came, Fact, Failure, FailureKind, Fate as StoredFate, Happened, Intent, Payload, StepName, StepResult,
            Window,
        },
    },
    planted,
};
use serde::de::DeserializeOwned;
use std::{
    future::{pending, poll_fn},
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

/// What is known about a call whose fate was unknown.
///
/// Returned by probe functions (`in_doubt = probe(f)`) and handed to [`Client::resolve`](crate::Client::resolve).
///
/// ```
/// use lobster_core::{Fate, Result, StepCtx, step};
///
/// #[step(irreversible, in_doubt = probe(find))]
/// async fn wire(ctx: &StepCtx, cents: u64) -> Result<String> {
///     Ok(format!("{cents} cents wired under {}", ctx.idempotency_key()))
/// }
///
/// /// Asks the bank about the key, and closes it if it has not happened.
/// async fn find(ctx: &StepCtx, _cents: &u64) -> Result<Fate<String>> {
///     let booked: Option<String> = books(ctx.idempotency_key());
///     Ok(booked.map_or(Fate::Closed, Fate::Happened))
/// }
/// # fn books(_key: &str) -> Option<String> { None }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<V> {
    /// It happened, and this is its value. Final whenever it comes.
    Happened(V),
    /// It has not been seen so far. Counts only when asked after the end of the window (W + `max_duration`): until then a request
    /// may still be on its way.
    NotSeen,
    /// It did not happen and never will: the remote closed the key. Final at once; the next call uses another key.
    Closed,
    /// Nobody can tell now.
    Unknown,
}

impl<V> Fate<V> {
    /// The same fate of another value.
    pub fn map<W>(self, f: impl FnOnce(V) -> W) -> Fate<W> {
        match self {
            Fate::Happened(value) => Fate::Happened(f(value)),
            Fate::NotSeen => Fate::NotSeen,
            Fate::Closed => Fate::Closed,
            Fate::Unknown => Fate::Unknown,
        }
    }
}

/// One call, erased: its value encoded, or how it went wrong.
pub(crate) type Act = Box<dyn FnMut(StepCtx) -> BoxFuture<'static, Result<Payload, Trouble>> + Send>;
/// One question to the author's probe, erased.
pub(crate) type Ask = Box<dyn FnMut(StepCtx) -> BoxFuture<'static, Result<Fate<Payload>, BoxError>> + Send>;

/// Makes an irreversible call, or gives what is recorded.
pub(crate) async fn irreversible<V: DeserializeOwned>(call: Call, act: Act, ask: Option<Ask>) -> Result<V, StepFailed> {
    let came = match call.begin().await {
        Begin::Recorded(came) => came,
        Begin::Refused(failed) => return Err(failed),
        Begin::Run(start) => {
            let Some(live) = call.live().cloned() else { return unrecorded(&call, act, ask).await };
            launch::<V>(&live, &call, start, act, ask, true);
            call.outcome().await
        }
        Begin::Resolve(start) => {
            if let Some(live) = call.live().cloned() {
                launch::<V>(&live, &call, start, act, ask, false);
            }
            pending().await
        }
    };
    crate::path::step::read(&call, came).await
}

fn launch<V: DeserializeOwned>(live: &Arc<Live>, call: &Call, start: Start, act: Act, ask: Option<Ask>, attended: bool) {
    let step = conduct::begin(live, call, attended);
    let conductor = Conductor {
        live: live.clone(),
        spec: call.spec,
        step,
        act: Mutex::new(act),
        ask: ask.map(Mutex::new),
        misfit: |payload| codec::decode::<V>(payload).err().map(|error| error.to_string()),
        attempts: start.attempts,
        generation: start.generation,
        sticky: start.doubt.is_some(),
        longest: (0, 0),
        lost: u32::from(live.doubt.is_some_and(|epoch| start.epoch.is_none_or(|intent| intent <= epoch))),
        began: live.shared.host.wall(),
    };
    live.shared.host.spawn(Box::pin(conductor.run(start)));
}

/// Sees one irreversible step through, whatever happens to the body.
struct Conductor {
    live: Arc<Live>,
    spec: &'static Spec,
    step: Arc<StepName>,
    /// Behind locks only to be shared between threads; one task calls them.
    act: Mutex<Act>,
    ask: Option<Mutex<Ask>>,
    /// Why a stated value is none of this step's, if so.
    misfit: fn(&Payload) -> Option<String>,
    attempts: u32,
    generation: u32,
    /// An earlier attempt of this generation may have happened.
    sticky: bool,
    /// Window and duration of an intent whose place the next one takes, in nanoseconds.
    longest: (u64, u64),
    /// Not 0: the store may have lost an attempt of this generation, and its intent. What the next intent says of it.
    lost: u32,
    began: Wall,
}

/// An intent that is synced.
struct Armed {
    seq: Seq,
    intent: Intent,
    /// From here W counts.
    sent: Boot,
    /// The lapse-free stretch of the lease it was sent in.
    generation: Generation,
}

/// What one phase leads to.
enum Phase {
    Call,
    Doubt(Box<Doubt>),
    Done,
}

/// How a call ended.
enum Ended {
    Returned(Result<Payload, Trouble>),
    /// It was dropped at start + D.
    Overran,
}

impl Conductor {
    async fn run(mut self, start: Start) {
        let (live, step) = (self.live.clone(), self.step.clone());
        let whole = async {
            let ended = self.conduct(start).await;
            // Its slot may be another run's by now: what this does is noted nowhere.
            conduct::gone(&live, self);
            ended
        };
        conduct::run(&live, &step, whole).await;
    }

    async fn conduct(&mut self, start: Start) -> Result<(), Interrupted> {
        let mut phase = match start.doubt {
            // What is in doubt may have been made once more, by a call of which only a new intent tells.
            Some(doubt) if self.lost > 0 && doubt.verdict.is_none() && !self.is_exhausted(&doubt) => {
                self.longest = (doubt.intent.window_ns, doubt.intent.max_duration_ns);
                Phase::Call
            }
            Some(doubt) => Phase::Doubt(Box::new(doubt)),
            None => Phase::Call,
        };
        if let Some(due) = start.due {
            self.wait(due, format!("waits for attempt {} of {}", self.attempts + 1, name::display(&self.step))).await?;
        }
        loop {
            phase = match phase {
                Phase::Call => self.call().await?,
                Phase::Doubt(doubt) => self.in_doubt(*doubt).await?,
                Phase::Done => return Ok(()),
            };
        }
    }

    // ---- the call ---------------------------------------------------------------------------------------------------

    /// Intent, window, call, record. A transactional step of the run does not begin meanwhile.
    async fn call(&mut self) -> Result<Phase, Interrupted> {
        conduct::until_lease(&self.live, &self.step).await?;
        self.calling(true);
        let phase = self.call_and_record().await;
        self.calling(false);
        phase
    }

    fn calling(&self, calling: bool) {
        if let Some(conducted) = self.live.lock().conducts.get_mut(&self.step) {
            conducted.calling = calling;
        }
        self.live.ring();
    }

    async fn call_and_record(&mut self) -> Result<Phase, Interrupted> {
        let shared = self.live.shared.clone();
        let mut late: u32 = 0;
        let (seq, intent, ended) = loop {
            let armed = self.arm().await?;
            if self.lost > 0 && !planted!("lost_call_made_again") {
                let (seq, intent) = (armed.seq, armed.intent);
                let doubt = Doubt { seq, intent, windows: Vec::new(), died: true, verdict: None, probes: 0 };
                return Ok(Phase::Doubt(Box::new(doubt)));
            }
            shared.point("P13");
            match self.act(&armed).await {
                Some(ended) => break (armed.seq, armed.intent, ended),
                // Nothing was called, so nothing is in doubt.
                None if self.live.lock().interrupt.is_some() => {
                    self.take_back();
                    return Err(Interrupted);
                }
                None => {
                    late += 1;
                    self.too_late(late).await?;
                }
            }
        };
        shared.point("P15");
        self.attempts += 1;
        let number = self.attempts;
        let doubt = |died| Doubt { seq, intent: intent.clone(), windows: Vec::new(), died, verdict: None, probes: 0 };
        let told = match ended {
            Ended::Returned(Ok(payload)) => return Ok(self.record(&doubt(false), Came::Value(payload)).await),
            Ended::Returned(Err(trouble)) => {
                conduct::enter(&self.live, || describe(trouble)).unwrap_or_else(|panic| describe(Trouble::Panic(panic)))
            }
            Ended::Overran => {
                let message = format!("took longer than max_duration ({:?})", self.spec.max_duration());
                describe(Trouble::Error(message.into()))
            }
        };
        let failure = Failure { step: name::display(&self.step), attempts: number, ..told.failure };
        if told.fatal {
            // Nothing is in doubt: its author says so, or it returned a value, which only cannot be kept.
            let kind = if failure.kind == FailureKind::Unspecified as i32 { FailureKind::Fatal as i32 } else { failure.kind };
            return Ok(self.record(&doubt(false), Came::Failure(Failure { kind, ..failure })).await);
        }
        self.sticky |= !told.did_not_happen;
        self.generation += u32::from(planted!("attempt_changes_key"));
        let exhausted = number >= self.spec.retry.attempts;
        if exhausted && !self.sticky {
            let failure = Failure { kind: FailureKind::Exhausted as i32, ..failure };
            return Ok(self.record(&doubt(false), Came::Failure(failure)).await);
        }
        let delay = self.spec.retry.delay(number, shared.host.random()).max(told.retry_after.unwrap_or_default());
        let due = shared.host.wall().plus(delay);
        let reason = format!("{} failed {number} times, last: {}", name::display(&self.step), failure.message);
        let attempt = Attempt {
            step: Some((*self.step).clone()),
            number,
            failure: Some(failure.clone()),
            due_ms: due.0,
            in_doubt: self.sticky,
            generation: self.generation,
            probes: 0,
        };
        commit(&self.live, &mut self.live.lock(), Fact::Attempt(attempt), true);
        if !self.sticky {
            self.wait(due, reason).await?;
            return Ok(Phase::Call);
        }
        match self.spec.in_doubt {
            InDoubt::Retry if !exhausted => {
                self.wait(due, reason).await?;
                Ok(Phase::Call)
            }
            InDoubt::Probe if !exhausted => Ok(Phase::Doubt(Box::new(doubt(false)))),
            _ if exhausted && self.spec.on_exhausted == OnExhausted::Fail => {
                let failure = Failure { kind: FailureKind::Exhausted as i32, code: "InDoubt".into(), ..failure };
                Ok(self.record(&doubt(false), Came::Failure(failure)).await)
            }
            _ => self.hold(&failure.message),
        }
    }

    /// Records the intent and waits until it is synced.
    async fn arm(&mut self) -> Result<Armed, Interrupted> {
        let shared = self.live.shared.clone();
        conduct::until_lease(&self.live, &self.step).await?;
        let generation = shared.lease.generation();
        let sent = shared.host.boot();
        let member = shared.member();
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let intent = Intent {
            step: Some((*self.step).clone()),
            window_ns: nanos(shared.settings.lease.renew).max(self.longest.0),
            max_duration_ns: nanos(self.spec.max_duration()).max(self.longest.1),
            key: name::idempotency_key(self.live.run, &self.step, self.generation),
            generation: self.generation,
            epoch: self.live.epoch,
            boot_id: member.boot_id.clone(),
            sent_ns: sent.nanos(),
            attempt: self.attempts + u32::from(self.lost == 0),
            incarnation: self.live.incarnation.bytes().to_vec().into(),
            sent_ms: shared.host.wall().0,
            lost: self.lost,
        };
        if self.live.lock().then.is_some() {
            // The run is on its way out of memory: whatever comes of that interrupts it.
            self.live.interrupted().await;
        }
        let seq = {
            let mut inner = self.live.lock();
            if inner.interrupt.is_some() {
                return Err(Interrupted);
            }
            intend(&self.live, &mut inner, Fact::Intent(intent.clone()), self.not_made())
        };
        if !planted!("call_before_its_intent") && !self.live.synced(seq).await {
            self.take_back();
            return Err(Interrupted);
        }
        Ok(Armed { seq, intent, sent, generation })
    }

    /// The start was missed: armed again at once, and with pauses if the store stays too slow.
    async fn too_late(&self, late: u32) -> Result<(), Interrupted> {
        if late < 3 {
            return Ok(());
        }
        let shared = &self.live.shared;
        let window = shared.settings.lease.renew;
        let reason = format!("{}: the store is slower than the start window ({window:?})", name::display(&self.step));
        tracing::warn!(run = %self.live.run, %reason);
        self.take_back();
        self.wait(shared.host.wall().plus(window.saturating_mul(late.min(20))), reason).await
    }

    /// The fact that a call was not made: takes the place of its intent, or follows it.
    fn not_made(&self) -> Fact {
        Fact::Attempt(Attempt {
            step: Some((*self.step).clone()),
            number: self.attempts,
            failure: None,
            due_ms: 0,
            in_doubt: self.sticky || (self.lost > 0 && !planted!("lost_call_forgotten")),
            generation: self.generation,
            probes: 0,
        })
    }

    /// Says that the intent was not followed by a call, so that a successor does not find it in doubt.
    fn take_back(&self) {
        let mut inner = self.live.lock();
        if inner.interrupt != Some(Interrupt::Fenced) {
            commit(&self.live, &mut inner, self.not_made(), false);
        }
    }

    /// Polls the call until it ends or until D has passed since its first poll; `None`: it missed its start.
    ///
    /// What permits the first poll is checked right before it, and D before every other: a process that was stopped anywhere in
    /// between does not go on.
    async fn act(&mut self, armed: &Armed) -> Option<Ended> {
        let shared = self.live.shared.clone();
        let cx = StepCtx::new(Home::Live(self.live.clone()), self.step.clone(), self.generation, self.attempts + 1, self.sticky);
        let act = self.act.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut call = Theirs::new(&self.live, || act(cx));
        let (window, duration) = (shared.settings.lease.renew, self.spec.max_duration());
        let mut started: Option<(Boot, BoxFuture<'static, ()>)> = None;
        poll_fn(|cx| {
            let now = shared.host.boot();
            let alarm = match &mut started {
                Some((deadline, _)) if now >= *deadline => return Poll::Ready(Some(Ended::Overran)),
                Some((_, alarm)) => alarm,
                None => {
                    let leased = shared.lease.generation() == armed.generation && shared.lease.good(now);
                    let timely = (now.since(armed.sent) <= window || planted!("late_start"))
                        && (leased || planted!("lease_not_checked"))
                        && conduct::begins(&self.live, &self.step, now + duration);
                    if !timely {
                        return Poll::Ready(None);
                    }
                    &mut started.insert((now + duration, shared.host.sleep(duration))).1
                }
            };
            match call.poll(cx) {
                Poll::Ready(returned) => {
                    Poll::Ready(Some(Ended::Returned(returned.unwrap_or_else(|panic| Err(Trouble::Panic(panic))))))
                }
                Poll::Pending => alarm.as_mut().poll(cx).map(|()| Some(Ended::Overran)),
            }
        })
        .await
    }

    /// Records the result. If the run has moved meanwhile, states it as a verdict instead.
    async fn record(&self, doubt: &Doubt, came: Came) -> Phase {
        let shared = &self.live.shared;
        let result = StepResult {
            step: Some((*self.step).clone()),
            came: Some(came.clone()),
            attempts: self.attempts,
            began_ms: self.began.0,
            ended_ms: shared.host.wall().0,
            kind: record::StepKind::Irreversible as i32,
            generation: self.generation,
        };
        let seq = {
            let mut inner = self.live.lock();
            let seq = commit(&self.live, &mut inner, Fact::Result(result.clone()), true);
            conduct::land(&mut inner, &self.step, seq, came);
            seq
        };
        self.live.ring();
        // The body goes on at once; only a lost fence makes the result go another way.
        let (live, doubt) = (self.live.clone(), doubt.clone());
        shared.host.spawn(Box::pin(async move {
            let fenced = live
                .until(|inner| match inner.synced >= seq {
                    true => Some(false),
                    false => matches!(inner.interrupt, Some(Interrupt::Fenced)).then_some(true),
                })
                .await;
            if fenced {
                settle::settle(&live, &doubt, result).await;
            }
        }));
        Phase::Done
    }

    // ---- in doubt ---------------------------------------------------------------------------------------------------

    async fn in_doubt(&mut self, mut doubt: Doubt) -> Result<Phase, Interrupted> {
        (self.sticky, self.lost, self.longest) = (true, 0, (0, 0));
        if let Some(verdict) = doubt.verdict.take() {
            match verdict.happened {
                Some(Happened::Result(StepResult { came: Some(came), .. })) => {
                    if let Came::Value(value) = &came
                        && let Some(why) = conduct::enter(&self.live, || (self.misfit)(value)).unwrap_or_else(Some)
                    {
                        return self.refuse_verdict(doubt.intent, &why).await;
                    }
                    return Ok(self.record(&doubt, came).await);
                }
                Some(Happened::Closed(_)) => {
                    if !verdict.forced {
                        self.window(&mut doubt, "a person closed it").await?;
                    }
                    return Ok(self.closed(&doubt));
                }
                _ => return self.hold("the verdict on it cannot be read"),
            }
        }
        if self.is_exhausted(&doubt) {
            return self.hold("its attempts are exhausted");
        }
        match (self.spec.in_doubt, &mut self.ask) {
            (InDoubt::Retry, _) => Ok(Phase::Call),
            (InDoubt::Probe, Some(_)) => self.probe(doubt).await,
            (InDoubt::Probe | InDoubt::Hold, _) => self.hold(match (doubt.died, doubt.intent.lost) {
                (_, 1..) => LOST,
                (true, 0) => "the process ended between the call and its record",
                (false, 0) => "the call failed",
            }),
        }
    }

    /// Were its attempts exhausted before this holder came?
    fn is_exhausted(&self, doubt: &Doubt) -> bool {
        !doubt.died && doubt.probes == 0 && self.attempts >= self.spec.retry.attempts
    }

    /// Asks for another verdict: the intent is stated again as it was, so that the one that does not fit speaks of nothing any more.
    async fn refuse_verdict(&self, intent: Intent, why: &str) -> Result<Phase, Interrupted> {
        let why = format!("the value that was stated for it does not fit the step: {why}");
        let attempt = Attempt {
            step: Some((*self.step).clone()),
            number: self.attempts,
            failure: Some(Failure { message: why.clone(), ..Failure::default() }),
            due_ms: 0,
            in_doubt: true,
            generation: self.generation,
            probes: 0,
        };
        let seq = {
            let mut inner = self.live.lock();
            intend(&self.live, &mut inner, Fact::Intent(intent), Fact::Attempt(attempt.clone()));
            commit(&self.live, &mut inner, Fact::Attempt(attempt), true)
        };
        if !self.live.synced(seq).await {
            return Err(Interrupted);
        }
        self.hold(&why)
    }

    /// The remote closed the key: the next call has another. What may be lost may have come as far as that one, but no farther than that.
    fn closed(&mut self, doubt: &Doubt) -> Phase {
        self.generation += 1;
        self.attempts = 0;
        self.sticky = false;
        let old = self.live.doubt.is_some_and(|epoch| doubt.intent.epoch <= epoch);
        self.lost = if old || doubt.intent.lost == 1 { 2 } else { 0 };
        Phase::Call
    }

    async fn probe(&mut self, mut doubt: Doubt) -> Result<Phase, Interrupted> {
        let shared = self.live.shared.clone();
        let mut unknown = doubt.probes;
        loop {
            let asked = shared.host.boot();
            let why = match self.ask_once().await? {
                Ok(Fate::Happened(payload)) => return Ok(self.record(&doubt, Came::Value(payload)).await),
                Ok(Fate::Closed) => return Ok(self.closed(&doubt)),
                Ok(Fate::NotSeen) => {
                    if asked >= self.window_end(&mut doubt) || planted!("window_ignored") {
                        return Ok(Phase::Call);
                    }
                    self.window(&mut doubt, "its probe has not seen the call").await?;
                    continue;
                }
                Ok(Fate::Unknown) => "the probe cannot tell".to_owned(),
                Err(why) => why,
            };
            unknown += 1;
            if unknown >= self.spec.retry.attempts {
                return self.hold(&why);
            }
            let due = shared.host.wall().plus(self.spec.retry.delay(unknown, shared.host.random()));
            // Recorded, so that the count survives when the run leaves memory, or its process.
            let attempt = Attempt {
                step: Some((*self.step).clone()),
                number: self.attempts,
                failure: Some(Failure { message: why.clone(), ..Failure::default() }),
                due_ms: due.0,
                in_doubt: true,
                generation: self.generation,
                probes: unknown,
            };
            commit(&self.live, &mut self.live.lock(), Fact::Attempt(attempt), false);
            self.wait(due, format!("{} is in doubt: {why}", name::display(&self.step))).await?;
        }
    }

    /// Asks the author's probe once, within D, panics caught; gives up at an interrupt (a question has no effect).
    async fn ask_once(&mut self) -> Result<Result<Fate<Payload>, String>, Interrupted> {
        let shared = self.live.shared.clone();
        let cx = StepCtx::new(Home::Live(self.live.clone()), self.step.clone(), self.generation, self.attempts, true);
        let ask =
            self.ask.as_mut().expect("only steps with a probe are probed").get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut question = Theirs::new(&self.live, || ask(cx));
        let asking = poll_fn(|cx| {
            question.poll(cx).map(|answer| match answer {
                Ok(fate) => fate.map_err(|error| {
                    let told = conduct::enter(&self.live, || tell(error).failure.message);
                    format!("the probe failed: {}", told.unwrap_or_else(|panic| panic))
                }),
                Err(panic) => Err(format!("the probe {panic}")),
            })
        });
        tokio::select! {
            biased;
            _ = self.live.interrupted() => Err(Interrupted),
            fate = asking => Ok(fate),
            () = shared.host.sleep(self.spec.max_duration()) => Ok(Err(format!("the probe took longer than {:?}", self.spec.max_duration()))),
        }
    }

    /// End of the window of the last intent, on this host's clock: until then a request may still be on its way.
    fn window_end(&self, doubt: &mut Doubt) -> Boot {
        let shared = &self.live.shared;
        let (w, d) = (Duration::from_nanos(doubt.intent.window_ns), Duration::from_nanos(doubt.intent.max_duration_ns));
        let boot_id = &shared.member().boot_id;
        if doubt.intent.boot_id == *boot_id {
            return Boot::from_nanos(doubt.intent.sent_ns) + w + d;
        }
        // Each boot has its own, and finds it again however many others read the intent meanwhile.
        if let Some(window) = doubt.windows.iter().find(|window| window.boot_id == *boot_id)
            && !planted!("window_begins_anew")
        {
            return Boot::from_nanos(window.end_ns);
        }
        // Another boot's clock says nothing here: the window begins with its first reader, who records it.
        let end = shared.host.boot() + w + d;
        let window =
            Window { step: Some((*self.step).clone()), intent: doubt.seq, boot_id: boot_id.clone(), end_ns: end.nanos() };
        doubt.windows.push(window.clone());
        commit(&self.live, &mut self.live.lock(), Fact::Window(window), true);
        end
    }

    /// Waits for the end of the window.
    async fn window(&self, doubt: &mut Doubt, why: &str) -> Result<(), Interrupted> {
        let end = self.window_end(doubt);
        let host = &self.live.shared.host;
        let reason = format!("{} is in doubt: {why}; a request may still be on its way", name::display(&self.step));
        // The wall clock may jump; the window is measured on the other one.
        while let left = end.since(host.boot())
            && !left.is_zero()
        {
            self.wait(host.wall().plus(left + Duration::from_millis(1)), reason.clone()).await?;
        }
        Ok(())
    }

    // ---- waiting ----------------------------------------------------------------------------------------------------

    fn hold(&self, why: &str) -> Result<Phase, Interrupted> {
        let reason = format!("{} is in doubt: {why}; resolve it", name::display(&self.step));
        self.live.interrupt(Interrupt::Hold(reason));
        Err(Interrupted)
    }

    async fn wait(&self, due: Wall, reason: String) -> Result<(), Interrupted> {
        conduct::wait(&self.live, &self.step, due, reason).await
    }
}

/// A call in a unit test: attempts without delays, nothing recorded.
async fn unrecorded<V: DeserializeOwned>(call: &Call, mut act: Act, mut ask: Option<Ask>) -> Result<V, StepFailed> {
    let step = name::display(&call.cx.step);
    let (mut number, mut generation, mut doubt) = (0, 0, false);
    let cx = |number, generation, doubt| StepCtx::new(call.cx.home.clone(), call.cx.step.clone(), generation, number, doubt);
    loop {
        number += 1;
        let trouble = match act(cx(number, generation, doubt)).await {
            Ok(payload) => {
                return codec::decode(&payload)
                    .map_err(|error| StepFailed::new(FailureKind::Encoding, "", error.to_string(), &step));
            }
            Err(trouble) => trouble,
        };
        let happened_not = matches!(&trouble, Trouble::Error(error) if crate::error::marks_did_not_happen(&**error));
        match after(call.spec, &call.cx, number, trouble, 0) {
            Next::Failed(failure) => return Err(StepFailed::from_record(failure)),
            Next::Again(..) if happened_not || call.spec.in_doubt == InDoubt::Retry => doubt |= !happened_not,
            Next::Again(failure, _) => match &mut ask {
                None => return Err(StepFailed::from_record(Failure { code: "InDoubt".into(), ..failure })),
                Some(ask) => match ask(cx(number, generation, true)).await {
                    Ok(Fate::Happened(payload)) => {
                        return codec::decode(&payload)
                            .map_err(|error| StepFailed::new(FailureKind::Encoding, "", error.to_string(), &step));
                    }
                    Ok(Fate::Closed) => generation += 1,
                    Ok(Fate::NotSeen) => doubt = true,
                    Ok(Fate::Unknown) | Err(_) => {
                        return Err(StepFailed::from_record(Failure { code: "InDoubt".into(), ..failure }));
                    }
                },
            },
        }
    }
}

/// A stored verdict of a fate; `None` for a fate that says nothing.
pub(crate) fn verdict(fate: Fate<Came>, step: &StepName, generation: u32, at: Wall, forced: bool) -> Option<StoredFate> {
    let happened = match fate {
        Fate::Happened(came) => Happened::Result(StepResult {
            step: Some(step.clone()),
            came: Some(came),
            attempts: 0,
            began_ms: at.0,
            ended_ms: at.0,
            kind: record::StepKind::Irreversible as i32,
            generation,
        }),
        Fate::Closed => Happened::Closed(true),
        Fate::NotSeen | Fate::Unknown => return None,
    };
    Some(StoredFate { happened: Some(happened), forced })
}

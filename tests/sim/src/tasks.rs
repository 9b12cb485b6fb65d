//! The one task of the simulation: interprets a plan, with steps of every kind.
//!
//! Invariant: a step's body says who runs it before it does anything, and returns what no other execution returns.

use crate::{
    book::Book,
    history::Event,
    node::{Node, current},
    outside::{Reply, Request},
    plan::{Act, Kind, Op, Plan, Receipt, Sight},
    rng::Rng,
    store::{arm, token_of},
    swarm::{Call, Moment},
    world::sleep,
};
use lobster_core::{
    BoxError, BoxFuture, Ctx, Fate, Flow, Result, RunId, StepCtx, StepErrorExt, StepFailed, StepFailedKind, step,
    store::{contract::record::Intent, memory::MemoryTx},
    task,
};
use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

// ---- ordinary and durable steps -------------------------------------------------------------------------------------

#[step(retry(attempts = 4, first = 20ms, cap = 400ms))]
async fn work(ctx: &StepCtx, act: &Act) -> Result<Receipt> {
    execute(ctx, act).await
}

#[step(key = act.label, retry(attempts = 4, first = 20ms, cap = 400ms))]
async fn work_keyed(ctx: &StepCtx, act: &Act) -> Result<Receipt> {
    execute(ctx, act).await
}

#[step(durable, retry(attempts = 4, first = 20ms, cap = 400ms))]
async fn keep(ctx: &StepCtx, act: &Act) -> Result<Receipt> {
    execute(ctx, act).await
}

#[step(durable, key = act.label, retry(attempts = 4, first = 20ms, cap = 400ms))]
async fn keep_keyed(ctx: &StepCtx, act: &Act) -> Result<Receipt> {
    execute(ctx, act).await
}

async fn execute(ctx: &StepCtx, act: &Act) -> Result<Receipt> {
    let node = current();
    let (run, epoch, step) = (ctx.run_id(), ctx.fencing_token(), ctx.step_id());
    node.world.log(Event::Began { node: node.serial, run, epoch, step, kind: act.kind, attempt: ctx.attempt() });
    if act.ms > 0 {
        sleep(Duration::from_millis(act.ms)).await;
    }
    // Whatever else this poll would do dies with it.
    if node.dying() || node.world.poisons(run, epoch, act) {
        node.die();
        return std::future::pending().await;
    }
    let token = node.world.token();
    if ctx.attempt() > act.fails {
        if act.fatal {
            return Err(format!("for good/{token}")).fatal()?;
        }
        return Ok(Receipt { label: act.label, token });
    }
    if act.panics {
        // Unlike `panic!` it says nothing on standard error.
        std::panic::resume_unwind(Box::new(format!("again/{token}")));
    }
    Err(format!("again/{token}").into())
}

// ---- steps with states ----------------------------------------------------------------------------------------------

#[step(retry(attempts = 4, first = 20ms, cap = 400ms), timeout = 300ms)]
async fn note(ctx: &StepCtx, #[state(name = act.book(0))] book: &mut Book, act: &Act) -> Result<Receipt> {
    enter(ctx, act, &mut [book]).await
}

#[step(key = act.label, retry(attempts = 4, first = 20ms, cap = 400ms), timeout = 300ms)]
async fn note_keyed(ctx: &StepCtx, #[state(name = act.book(0))] book: &mut Book, act: &Act) -> Result<Receipt> {
    enter(ctx, act, &mut [book]).await
}

#[step(durable, retry(attempts = 4, first = 20ms, cap = 400ms), timeout = 300ms)]
async fn file(ctx: &StepCtx, #[state(name = act.book(0))] book: &mut Book, act: &Act) -> Result<Receipt> {
    enter(ctx, act, &mut [book]).await
}

#[step(durable, key = act.label, retry(attempts = 4, first = 20ms, cap = 400ms), timeout = 300ms)]
async fn file_keyed(ctx: &StepCtx, #[state(name = act.book(0))] book: &mut Book, act: &Act) -> Result<Receipt> {
    enter(ctx, act, &mut [book]).await
}

#[step(retry(attempts = 4, first = 20ms, cap = 400ms), timeout = 300ms)]
async fn note_both(
    ctx: &StepCtx,
    #[state(name = act.book(0))] left: &mut Book,
    #[state(name = act.book(1))] right: &mut Book,
    act: &Act,
) -> Result<Receipt> {
    enter(ctx, act, &mut [left, right]).await
}

#[step(key = act.label, retry(attempts = 4, first = 20ms, cap = 400ms), timeout = 300ms)]
async fn note_both_keyed(
    ctx: &StepCtx,
    #[state(name = act.book(0))] left: &mut Book,
    #[state(name = act.book(1))] right: &mut Book,
    act: &Act,
) -> Result<Receipt> {
    enter(ctx, act, &mut [left, right]).await
}

#[step(durable, retry(attempts = 4, first = 20ms, cap = 400ms), timeout = 300ms)]
async fn file_both(
    ctx: &StepCtx,
    #[state(name = act.book(0))] left: &mut Book,
    #[state(name = act.book(1))] right: &mut Book,
    act: &Act,
) -> Result<Receipt> {
    enter(ctx, act, &mut [left, right]).await
}

#[step(durable, key = act.label, retry(attempts = 4, first = 20ms, cap = 400ms), timeout = 300ms)]
async fn file_both_keyed(
    ctx: &StepCtx,
    #[state(name = act.book(0))] left: &mut Book,
    #[state(name = act.book(1))] right: &mut Book,
    act: &Act,
) -> Result<Receipt> {
    enter(ctx, act, &mut [left, right]).await
}

#[step(retry(attempts = 4, first = 20ms, cap = 400ms), timeout = 300ms)]
async fn turn(ctx: &StepCtx, #[state(name = act.book(0))] book: &mut Book, act: &Act) -> Result<Flow<Receipt>> {
    round(ctx, act, book).await
}

#[step(key = act.label, retry(attempts = 4, first = 20ms, cap = 400ms), timeout = 300ms)]
async fn turn_keyed(ctx: &StepCtx, #[state(name = act.book(0))] book: &mut Book, act: &Act) -> Result<Flow<Receipt>> {
    round(ctx, act, book).await
}

#[step(durable, retry(attempts = 4, first = 20ms, cap = 400ms), timeout = 300ms)]
async fn turn_durable(ctx: &StepCtx, #[state(name = act.book(0))] book: &mut Book, act: &Act) -> Result<Flow<Receipt>> {
    round(ctx, act, book).await
}

#[step(durable, key = act.label, retry(attempts = 4, first = 20ms, cap = 400ms), timeout = 300ms)]
async fn turn_durable_keyed(ctx: &StepCtx, #[state(name = act.book(0))] book: &mut Book, act: &Act) -> Result<Flow<Receipt>> {
    round(ctx, act, book).await
}

/// One round of a repeated step: the book says which.
async fn round(ctx: &StepCtx, act: &Act, book: &mut Book) -> Result<Flow<Receipt>> {
    let receipt = enter(ctx, act, &mut [book]).await?;
    Ok(if book.round(act.label) < act.rounds { Flow::Again } else { Flow::Done(receipt) })
}

/// Enters an execution into each of its books.
async fn enter(ctx: &StepCtx, act: &Act, books: &mut [&mut Book]) -> Result<Receipt> {
    let node = current();
    let world = &node.world;
    let (run, epoch, step, attempt) = (ctx.run_id(), ctx.fencing_token(), ctx.step_id(), ctx.attempt());
    world.log(Event::Began { node: node.serial, run, epoch, step, kind: act.kind, attempt });
    let token = world.token();
    let mut rng = Rng::new(world.seed, "book", token);
    let early = rng.chance(500);
    if act.ms > 0 && early {
        sleep(Duration::from_millis(act.ms)).await;
    }
    if node.dying() {
        return std::future::pending().await;
    }
    let round = (act.rounds > 0).then(|| books[0].round(act.label) + 1);
    let mut pages = Vec::new();
    for (index, book) in books.iter_mut().enumerate() {
        let (before, stale) = (book.page(), *book.mark != *book.count);
        let after = book.enter(&mut rng, token, round.map(|_| act.label));
        if stale || book.page() != after {
            let message = format!("step {step} found {before:?} (stale: {stale}) and left {:?}, not {after:?}", book.page());
            world.log(Event::Misread { run, message });
        }
        pages.push((act.book(index), before, after));
    }
    let durable = act.kind == Kind::Durable;
    world.log(Event::Took { run, epoch, step, token, round, durable, pages });
    if act.ms > 0 && !early {
        sleep(Duration::from_millis(act.ms)).await;
    }
    if node.dying() || world.poisons(run, epoch, act) {
        node.die();
        return std::future::pending().await;
    }
    if act.hangs {
        return std::future::pending().await;
    }
    // Some rounds fail; the last one may fail for good.
    let (unlucky, last) = (round.is_none_or(|round| round % 3 == 1), round.is_none_or(|round| round == act.rounds));
    if attempt > act.fails || !unlucky {
        if act.fatal && last {
            return Err(format!("for good/{token}")).fatal()?;
        }
        world.log(Event::Gave { run, token });
        return Ok(Receipt { label: act.label, token });
    }
    if act.stalls {
        return std::future::pending().await;
    }
    if act.panics {
        std::panic::resume_unwind(Box::new(format!("again/{token}")));
    }
    Err(format!("again/{token}").into())
}

// ---- irreversible steps ---------------------------------------------------------------------------------------------

#[step(irreversible, in_doubt = retry, max_duration = 1s, retry(attempts = 3, first = 20ms, cap = 400ms))]
async fn ship(ctx: &StepCtx, act: &Act) -> Result<Receipt> {
    effect(ctx, act).await
}

#[step(irreversible, in_doubt = retry, key = act.label, max_duration = 1s, retry(attempts = 3, first = 20ms, cap = 400ms))]
async fn ship_keyed(ctx: &StepCtx, act: &Act) -> Result<Receipt> {
    effect(ctx, act).await
}

#[step(irreversible, in_doubt = probe(asked), max_duration = 1s, retry(attempts = 3, first = 20ms, cap = 400ms))]
async fn charge(ctx: &StepCtx, act: &Act) -> Result<Receipt> {
    effect(ctx, act).await
}

#[step(irreversible, in_doubt = probe(asked), key = act.label, max_duration = 1s, retry(attempts = 3, first = 20ms, cap = 400ms))]
async fn charge_keyed(ctx: &StepCtx, act: &Act) -> Result<Receipt> {
    effect(ctx, act).await
}

#[step(irreversible, in_doubt = hold, max_duration = 1s, retry(attempts = 3, first = 20ms, cap = 400ms))]
async fn wire(ctx: &StepCtx, act: &Act) -> Result<Receipt> {
    effect(ctx, act).await
}

#[step(irreversible, in_doubt = hold, key = act.label, max_duration = 1s, retry(attempts = 3, first = 20ms, cap = 400ms))]
async fn wire_keyed(ctx: &StepCtx, act: &Act) -> Result<Receipt> {
    effect(ctx, act).await
}

async fn effect(ctx: &StepCtx, act: &Act) -> Result<Receipt> {
    let node = current();
    let world = &node.world;
    let request = Request {
        run: ctx.run_id(),
        step: ctx.step_id(),
        kind: act.kind,
        label: act.label,
        key: ctx.idempotency_key().to_owned(),
        began: world.now(),
    };
    called(&node, ctx, &request);
    if act.ms > 0 {
        // A node may be stopped between the beginning of a call and its request.
        sleep(Duration::from_millis(act.ms)).await;
    }
    if act.panics && !world.healed() && world.outside().rng.chance(world.swarm.outside_errors) {
        std::panic::resume_unwind(Box::new("before it was sent/0".to_owned()));
    }
    let (step, key) = (request.step, request.key.clone());
    match world.send(&node, request).await {
        Reply::Done(token) => Ok(Receipt { label: act.label, token }),
        Reply::Declined => Err(format!("declined/{}", world.token())).fatal()?,
        Reply::Undone => {
            world.log(Event::Undone { step, key });
            Err("nothing was done/0").did_not_happen()?
        }
        Reply::Broken => Err("the connection broke/0".into()),
    }
}

/// Says that a call began, and what stood in the store at that moment.
fn called(node: &Arc<Node>, ctx: &StepCtx, request: &Request) {
    let world = &node.world;
    let (run, step) = (request.run, request.step);
    let stored = world.memory.durable(run);
    let owner = stored.as_ref().map_or(0, |stored| stored.summary.epoch);
    let stale = |intent: &Intent| {
        let sent = Duration::from_nanos(intent.sent_ns + intent.window_ns);
        node.boot().0 > sent
    };
    let arm = stored.and_then(|stored| arm(run, &stored.recording, step, stale));
    world.log(Event::Called {
        node: node.serial,
        run,
        epoch: ctx.fencing_token(),
        owner,
        leased: node.lease_good(),
        step,
        kind: request.kind,
        key: request.key.clone(),
        arm,
    });
}

/// The probe of `charge`.
async fn asked(ctx: &StepCtx, act: &Act) -> Result<Fate<Receipt>> {
    let node = current();
    let world = &node.world;
    let key = ctx.idempotency_key();
    let (ms, mood) = {
        let (healed, blind) = (world.healed(), world.swarm.probe_blind);
        let rng = &mut world.outside().rng;
        (rng.within(0, 10), if !healed && rng.chance(blind) { rng.below(4) } else { 4 })
    };
    sleep(Duration::from_millis(ms)).await;
    let fate = match world.seen(key) {
        Some(token) if mood > 1 => Fate::Happened(Receipt { label: act.label, token }),
        _ => match mood {
            0 => Fate::Unknown,
            1 => return Err("the probe found no line".into()),
            2 if world.close(ctx.step_id(), key) => Fate::Closed,
            _ => Fate::NotSeen,
        },
    };
    world.note(format_args!("node {} asked for {key}: {fate:?}", node.serial));
    sleep(Duration::from_millis(ms)).await;
    Ok(fate)
}

// ---- transactional steps --------------------------------------------------------------------------------------------

#[step(transactional, max_duration = 300ms, retry(attempts = 4, first = 20ms, cap = 400ms))]
async fn book(ctx: &StepCtx, tx: &mut MemoryTx, act: &Act) -> Result<Receipt> {
    write(ctx, tx, act).await
}

#[step(transactional, key = act.label, max_duration = 300ms, retry(attempts = 4, first = 20ms, cap = 400ms))]
async fn book_keyed(ctx: &StepCtx, tx: &mut MemoryTx, act: &Act) -> Result<Receipt> {
    write(ctx, tx, act).await
}

/// Counts how often it was committed, and leaves its token.
async fn write(ctx: &StepCtx, tx: &mut MemoryTx, act: &Act) -> Result<Receipt> {
    let node = current();
    let world = &node.world;
    let (run, epoch, step, attempt) = (ctx.run_id(), ctx.fencing_token(), ctx.step_id(), ctx.attempt());
    world.log(Event::Began { node: node.serial, run, epoch, step, kind: act.kind, attempt });
    let token = world.token();
    world.log(Event::Wrote { node: node.serial, run, epoch, leased: node.lease_good(), step, token });
    world.writes(run, step);
    let times = format!("{step} times");
    tx.set(&times, tx.get(&times) + 1);
    tx.set(&format!("{step} token"), i64::try_from(token).unwrap_or(i64::MAX));
    world.pass_inside(&node, Call::Transact, Moment::Answered).await;
    if act.ms > 0 {
        sleep(Duration::from_millis(act.ms)).await;
    }
    if node.dying() || world.poisons(run, epoch, act) {
        node.die();
        return std::future::pending().await;
    }
    if attempt > act.fails {
        if act.fatal {
            return Err(format!("for good/{token}")).fatal()?;
        }
        return Ok(Receipt { label: act.label, token });
    }
    if act.stalls {
        return std::future::pending().await;
    }
    if act.panics {
        std::panic::resume_unwind(Box::new(format!("again/{token}")));
    }
    Err(format!("again/{token}").into())
}

// ---- the body -------------------------------------------------------------------------------------------------------

/// A body: one execution of a run's plan in one process.
struct Body {
    number: u32,
    run: RunId,
    polls: AtomicU64,
}

#[task]
pub(crate) async fn job(ctx: Ctx, plan: Plan) -> Result<Vec<Sight>> {
    let node = current();
    let run = ctx.run_id();
    let epoch = node.world.granted(node.serial, run);
    let body = Body { number: node.world.body(), run, polls: AtomicU64::new(0) };
    let mut block = pin!(block(&ctx, &body, &plan.ops));
    poll_fn(|cx| {
        let poll = body.polls.fetch_add(1, Ordering::Relaxed) + 1;
        node.world.log(Event::Polled { body: body.number, node: node.serial, run, epoch, poll });
        block.as_mut().poll(cx)
    })
    .await
}

/// Runs moves one after another.
fn block<'a>(ctx: &'a Ctx, body: &'a Body, ops: &'a [Op]) -> BoxFuture<'a, Result<Vec<Sight>>> {
    Box::pin(async move {
        let mut sights = Vec::new();
        for op in ops {
            match op {
                Op::Step { act, strict } => {
                    let sight = see(body, act, call(ctx, act).await)?;
                    sights.push(sight);
                    if *strict && !sight.ok {
                        return Err(format!("a strict step failed/{}", sight.token).into());
                    }
                }
                Op::Pause(ms) => sleep(Duration::from_millis(*ms)).await,
                Op::Blocks(blocks) => sights.extend(beside(ctx, body, blocks).await?),
                Op::Leave { act, other } => sights.push(leave(ctx, body, act, other).await?),
                Op::Race { act, ms, again } => sights.extend(race(ctx, body, act, *ms, *again).await?),
            }
        }
        Ok(sights)
    })
}

/// Runs blocks side by side, and gives what they saw in the order of the plan.
async fn beside(ctx: &Ctx, body: &Body, blocks: &[Vec<Op>]) -> Result<Vec<Sight>> {
    let mut all: Vec<_> = blocks.iter().map(|ops| block(ctx, body, ops)).collect();
    let ended = match &mut all[..] {
        [a, b] => <[_; 2]>::from(tokio::join!(a, b)).into(),
        [a, b, c] => <[_; 3]>::from(tokio::join!(a, b, c)).into(),
        [a, b, c, d] => <[_; 4]>::from(tokio::join!(a, b, c, d)).into(),
        _ => Vec::new(),
    };
    Ok(ended.into_iter().collect::<Result<Vec<_>>>()?.concat())
}

/// Drops a call when it takes too long.
async fn race(ctx: &Ctx, body: &Body, act: &Act, ms: u64, again: bool) -> Result<Option<Sight>> {
    let first = tokio::select! {
        biased;
        seen = call(ctx, act) => Some(seen),
        () = sleep(Duration::from_millis(ms)) => None,
    };
    match first {
        Some(seen) => see(body, act, seen).map(Some),
        None if again => see(body, act, call(ctx, act).await).map(Some),
        None => Ok(Some(Sight { label: act.label, token: 0, ok: false })),
    }
}

/// Drops a call that never ends, unless its attempts do, once another has ended.
async fn leave(ctx: &Ctx, body: &Body, act: &Act, other: &Act) -> Result<Sight> {
    let mut beside = pin!(call(ctx, other));
    let first = tokio::select! {
        biased;
        seen = call(ctx, act) => Err(seen),
        seen = &mut beside => Ok(seen),
    };
    match first {
        Ok(seen) => see(body, other, seen),
        Err(seen) => {
            see(body, act, seen)?;
            see(body, other, beside.await)
        }
    }
}

/// Calls a step with states.
async fn enter_of(ctx: &Ctx, act: &Act) -> Result<Receipt, StepFailed> {
    match (act.kind == Kind::Durable, act.keyed, act.rounds > 0, act.books.len() > 1) {
        (false, false, true, _) => ctx.repeat(|ctx| turn(ctx, act)).await,
        (false, true, true, _) => ctx.repeat(|ctx| turn_keyed(ctx, act)).await,
        (true, false, true, _) => ctx.repeat(|ctx| turn_durable(ctx, act)).await,
        (true, true, true, _) => ctx.repeat(|ctx| turn_durable_keyed(ctx, act)).await,
        (false, false, false, false) => note(ctx, act).await,
        (false, true, false, false) => note_keyed(ctx, act).await,
        (true, false, false, false) => file(ctx, act).await,
        (true, true, false, false) => file_keyed(ctx, act).await,
        (false, false, false, true) => note_both(ctx, act).await,
        (false, true, false, true) => note_both_keyed(ctx, act).await,
        (true, false, false, true) => file_both(ctx, act).await,
        (true, true, false, true) => file_both_keyed(ctx, act).await,
    }
}

async fn call(ctx: &Ctx, act: &Act) -> Result<Receipt, StepFailed> {
    if !act.books.is_empty() {
        return Box::pin(enter_of(ctx, act)).await;
    }
    match (act.kind, act.keyed) {
        (Kind::Ordinary, false) => work(ctx, act).await,
        (Kind::Ordinary, true) => work_keyed(ctx, act).await,
        (Kind::Durable, false) => keep(ctx, act).await,
        (Kind::Durable, true) => keep_keyed(ctx, act).await,
        (Kind::Retry, false) => ship(ctx, act).await,
        (Kind::Retry, true) => ship_keyed(ctx, act).await,
        (Kind::Probe, false) => charge(ctx, act).await,
        (Kind::Probe, true) => charge_keyed(ctx, act).await,
        (Kind::Hold, false) => wire(ctx, act).await,
        (Kind::Hold, true) => wire_keyed(ctx, act).await,
        (Kind::Transact, false) => book(ctx, act).await,
        (Kind::Transact, true) => book_keyed(ctx, act).await,
    }
}

/// Says what a body saw.
fn see(body: &Body, act: &Act, seen: Result<Receipt, StepFailed>) -> Result<Sight, BoxError> {
    let world = current().world.clone();
    let (label, token, ok) = match &seen {
        Ok(receipt) => (receipt.label, receipt.token, true),
        Err(failed) if failed.kind() == StepFailedKind::Refused => {
            world.log(Event::Refused { run: body.run, message: failed.to_string() });
            return Err(failed.clone().into());
        }
        Err(failed) => (act.label, token_of(failed.message()), false),
    };
    if label != act.label {
        world.log(Event::Mixed { run: body.run, asked: act.label, got: label });
    }
    let poll = body.polls.load(Ordering::Relaxed);
    world.log(Event::Delivered { body: body.number, run: body.run, poll, kind: act.kind, label, token, ok });
    Ok(Sight { label: act.label, token, ok })
}

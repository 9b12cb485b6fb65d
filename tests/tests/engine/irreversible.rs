//! What happened to an irreversible call: the second table of the documentation, row by row, in one process.

use lobster_core::{
    Ctx, ErrorKind, Fate, Reason, Result, RunFailed, RunId, RunState, StepCtx, StepErrorExt, StepFailedKind, StepState, step,
    task,
};
use lobster_tests::{Place, happen, happened, on_each, until};
use serde::{Deserialize, Serialize};

/// How the next calls of a world end.
#[derive(Clone, Serialize, Deserialize)]
struct Plan {
    world: String,
    ends: Vec<End>,
    /// What the probe answers, in turn; the last one for ever.
    probes: Vec<Answer>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum End {
    Ok,
    Fatal,
    DidNotHappen,
    Error,
    Panic,
    Never,
    Unserializable,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum Answer {
    Happened,
    NotSeen,
    Closed,
    Unknown,
}

async fn act(ctx: &StepCtx, plan: &Plan) -> Result<Loose> {
    let count = happen(&plan.world, "call");
    happen(&plan.world, format!("key {}", ctx.idempotency_key()));
    if ctx.in_doubt() {
        happen(&plan.world, "told in doubt");
    }
    match plan.ends.get(count as usize - 1).copied().unwrap_or(End::Ok) {
        End::Ok => Ok(Loose::Number(count)),
        End::Fatal => Err("declined").fatal()?,
        End::DidNotHappen => Err("not connected").did_not_happen()?,
        End::Error => Err("reset by peer")?,
        End::Panic => panic!("on purpose"),
        End::Never => std::future::pending().await,
        End::Unserializable => Ok(Loose::Odd),
    }
}

/// A number, or something that no codec takes.
#[derive(Debug, Clone, PartialEq)]
enum Loose {
    Number(u64),
    Odd,
}

impl Serialize for Loose {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Loose::Number(n) => n.serialize(serializer),
            Loose::Odd => Err(serde::ser::Error::custom("odd values have no encoding")),
        }
    }
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Loose::Number)
    }
}

#[step(irreversible, in_doubt = retry, max_duration = 200ms, retry(attempts = 3, first = 1ms))]
async fn retried(ctx: &StepCtx, plan: Plan) -> Result<Loose> {
    act(ctx, &plan).await
}

#[step(irreversible, in_doubt = probe(ask), max_duration = 200ms, retry(attempts = 3, first = 1ms))]
async fn probed(ctx: &StepCtx, plan: &Plan) -> Result<Loose> {
    act(ctx, plan).await
}

async fn ask(ctx: &StepCtx, plan: &Plan) -> Result<Fate<Loose>> {
    let count = happen(&plan.world, "probe") as usize;
    happen(&plan.world, format!("probed {}", ctx.idempotency_key()));
    Ok(match plan.probes.get(count - 1).or(plan.probes.last()) {
        Some(Answer::Happened) => Fate::Happened(Loose::Number(77)),
        Some(Answer::NotSeen) => Fate::NotSeen,
        Some(Answer::Closed) => Fate::Closed,
        Some(Answer::Unknown) | None => Fate::Unknown,
    })
}

#[step(irreversible, in_doubt = hold, max_duration = 200ms, retry(attempts = 3, first = 1ms))]
async fn held(ctx: &StepCtx, plan: Plan) -> Result<Loose> {
    act(ctx, &plan).await
}

#[step(irreversible, in_doubt = hold, max_duration = 1h, retry(attempts = 3, first = 1ms))]
async fn held_long(ctx: &StepCtx, plan: Plan) -> Result<Loose> {
    act(ctx, &plan).await
}

#[task]
async fn by_slow_hold(ctx: Ctx, plan: Plan) -> Result<u64> {
    Ok(number(held_long(&ctx, plan).await?))
}

#[step(irreversible, in_doubt = retry, on_exhausted = fail, retry(attempts = 2, first = 1ms))]
async fn failing(ctx: &StepCtx, plan: Plan) -> Result<Loose> {
    act(ctx, &plan).await
}

fn number(value: Loose) -> u64 {
    match value {
        Loose::Number(n) => n,
        Loose::Odd => u64::MAX,
    }
}

#[task]
async fn by_retry(ctx: Ctx, plan: Plan) -> Result<u64> {
    Ok(number(retried(&ctx, plan).await?))
}

#[task]
async fn by_probe(ctx: Ctx, plan: Plan) -> Result<u64> {
    Ok(number(probed(&ctx, &plan).await?))
}

#[task]
async fn by_hold(ctx: Ctx, plan: Plan) -> Result<u64> {
    Ok(number(held(&ctx, plan).await?))
}

#[task]
async fn by_failing(ctx: Ctx, plan: Plan) -> Result<u64> {
    Ok(number(failing(&ctx, plan).await?))
}

fn plan(world: String, ends: &[End], probes: &[Answer]) -> Plan {
    Plan { world, ends: ends.to_vec(), probes: probes.to_vec() }
}

fn keys(world: &str) -> usize {
    lobster_tests::all(world).keys().filter(|what| what.starts_with("key ")).count()
}

/// Waits until a run is held for a reason that says so.
async fn held_saying(place: &Place, lobster: &lobster_core::Lobster, run: RunId, word: &str) -> String {
    let tiers = lobster_tests::tiers(place).await;
    lobster_tests::eventually(&tiers, async || match lobster.why_not_running(run).await.unwrap() {
        Some(Reason::Held(why)) if why.contains(word) => Some(why),
        _ => None,
    })
    .await
}

macro_rules! engine {
    ($place:expr) => {
        $place.open().task(by_retry).task(by_probe).task(by_hold).task(by_failing).start().await.unwrap()
    };
}

on_each! {
    async fn a_fatal_error_is_definite_under_every_policy(place) {
        let lobster = engine!(place);
        for policy in ["retry", "probe", "hold"] {
            let world = format!("fatal {policy} {}", place.url());
            let plan = plan(world.clone(), &[End::Fatal], &[Answer::Unknown]);
            let outcome = match policy {
                "retry" => lobster.submit(by_retry, plan).await.unwrap().outcome().await,
                "probe" => lobster.submit(by_probe, plan).await.unwrap().outcome().await,
                _ => lobster.submit(by_hold, plan).await.unwrap().outcome().await,
            };
            let Err(RunFailed::Failed(failed)) = outcome else { panic!("{policy}: {outcome:?}") };
            assert_eq!((failed.kind(), failed.message()), (StepFailedKind::Fatal, "declined"), "{policy}");
            assert_eq!((happened(&world, "call"), happened(&world, "probe")), (1, 0), "{policy}");
        }
    }

    async fn a_call_that_did_not_happen_is_made_again_with_the_same_key_under_every_policy(place) {
        let lobster = engine!(place);
        for policy in ["retry", "probe", "hold"] {
            let world = format!("not {policy} {}", place.url());
            let plan = plan(world.clone(), &[End::DidNotHappen, End::Ok], &[Answer::Unknown]);
            let outcome = match policy {
                "retry" => lobster.submit(by_retry, plan).await.unwrap().outcome().await,
                "probe" => lobster.submit(by_probe, plan).await.unwrap().outcome().await,
                _ => lobster.submit(by_hold, plan).await.unwrap().outcome().await,
            };
            assert_eq!(outcome.unwrap(), 2, "{policy}");
            assert_eq!((keys(&world), happened(&world, "probe"), happened(&world, "told in doubt")), (1, 0, 0), "{policy}");
        }
    }

    async fn exhausted_without_doubt_is_a_failure(place) {
        let lobster = engine!(place);
        let world = format!("exhausted {}", place.url());
        let run = lobster.submit(by_hold, plan(world.clone(), &[End::DidNotHappen; 9], &[])).await.unwrap();
        let Err(RunFailed::Failed(failed)) = run.outcome().await else { panic!() };
        assert_eq!((failed.kind(), failed.attempts(), happened(&world, "call")), (StepFailedKind::Exhausted, 3, 3));
    }

    async fn any_other_error_is_in_doubt_and_retried_with_the_same_key(place) {
        let lobster = engine!(place);
        for (name, end) in [("error", End::Error), ("panic", End::Panic), ("overrun", End::Never)] {
            let world = format!("retry {name} {}", place.url());
            let run = lobster.submit(by_retry, plan(world.clone(), &[end, End::Ok], &[])).await.unwrap();
            assert_eq!(run.outcome().await.unwrap(), 2, "{name}");
            assert_eq!((keys(&world), happened(&world, "told in doubt")), (1, 1), "{name}");
        }
    }

    async fn any_other_error_is_in_doubt_and_probed(place) {
        let lobster = engine!(place);
        for (name, end) in [("error", End::Error), ("panic", End::Panic), ("overrun", End::Never)] {
            let world = format!("probe {name} {}", place.url());
            let run = lobster.submit(by_probe, plan(world.clone(), &[end], &[Answer::Unknown, Answer::Happened])).await.unwrap();
            assert_eq!(run.outcome().await.unwrap(), 77, "{name}");
            assert_eq!((happened(&world, "call"), happened(&world, "probe")), (1, 2), "{name}");
        }
    }

    async fn not_seen_counts_only_after_the_window(place) {
        let lobster = engine!(place);
        let world = format!("not seen {}", place.url());
        let run = lobster.submit(by_probe, plan(world.clone(), &[End::Error], &[Answer::NotSeen])).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 2);
        // Asked at once, and again after the end of the window; then called with the same key.
        assert!(happened(&world, "probe") >= 2);
        assert_eq!(keys(&world), 1);
    }

    async fn closed_is_final_and_the_next_call_has_another_key(place) {
        let lobster = engine!(place);
        let world = format!("closed {}", place.url());
        let run = lobster.submit(by_probe, plan(world.clone(), &[End::Error], &[Answer::Closed])).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 2);
        assert_eq!((happened(&world, "probe"), keys(&world), happened(&world, "told in doubt")), (1, 2, 0));
    }

    async fn a_probe_that_cannot_tell_holds_the_run(place) {
        let lobster = engine!(place);
        let world = format!("unknown {}", place.url());
        let run = lobster.submit(by_probe, plan(world.clone(), &[End::Error], &[Answer::Unknown])).await.unwrap();
        let why = lobster_tests::held(&place, &lobster, run.id()).await;
        assert!(why.contains("probed#0") && why.contains("the probe cannot tell"), "{why}");
        assert_eq!((happened(&world, "probe"), happened(&world, "call")), (3, 1));
    }

    async fn a_probe_that_cannot_tell_is_counted_while_the_run_leaves_memory(place) {
        // The pauses are longer than what keeps a run in memory.
        #[step(irreversible, in_doubt = probe(ask), retry(attempts = 3, first = 300ms, factor = 1, jitter = none))]
        async fn patient(ctx: &StepCtx, plan: &Plan) -> Result<Loose> {
            act(ctx, plan).await
        }
        #[task]
        async fn patiently(ctx: Ctx, plan: Plan) -> Result<u64> {
            Ok(number(patient(&ctx, &plan).await?))
        }
        let lobster = place.open().task(patiently).start().await.unwrap();
        let world = format!("patient {}", place.url());
        let run = lobster.submit(patiently, plan(world.clone(), &[End::Error], &[Answer::Unknown])).await.unwrap();
        let why = lobster_tests::held(&place, &lobster, run.id()).await;
        assert!(why.contains("patient#0"), "{why}");
        assert_eq!((happened(&world, "probe"), happened(&world, "call")), (3, 1));
        assert!(lobster.runs().list().await.unwrap()[0].epoch > 1, "it left memory and came back");
    }

    async fn hold_waits_for_a_person_whose_word_is_the_result(place) {
        let lobster = engine!(place);
        let world = format!("hold {}", place.url());
        let run = lobster.submit(by_hold, plan(world.clone(), &[End::Error], &[])).await.unwrap();
        let why = lobster_tests::held(&place, &lobster, run.id()).await;
        assert!(why.contains("held#0 is in doubt") && why.contains("reset by peer"), "{why}");
        assert_eq!(run.state().await.unwrap(), RunState::Held);
        let view = lobster.show(run.id()).await.unwrap();
        let step = view.steps[0].id;
        assert_eq!(view.steps[0].state, StepState::InDoubt("reset by peer".into()));
        let nothing = lobster.resolve(run.id(), step, Fate::<u64>::NotSeen).await.unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::Invalid);
        let unknown = lobster.resolve(run.id(), uuid::Uuid::nil(), Fate::Happened(1)).await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::Held);
        lobster.resolve(run.id(), step, Fate::Happened(5)).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 5);
        assert_eq!(happened(&world, "call"), 1);
        assert_eq!(lobster.resolve(run.id(), step, Fate::Happened(6)).await.unwrap_err().kind(), ErrorKind::Held);
    }

    async fn a_stated_value_of_another_type_is_refused_and_another_verdict_is_taken(place) {
        let lobster = engine!(place);
        let world = format!("misfit {}", place.url());
        let run = lobster.submit(by_hold, plan(world.clone(), &[End::Error], &[])).await.unwrap();
        lobster_tests::held(&place, &lobster, run.id()).await;
        let step = lobster.show(run.id()).await.unwrap().steps[0].id;
        lobster.resolve(run.id(), step, Fate::Happened("a receipt")).await.unwrap();
        let why = held_saying(&place, &lobster, run.id(), "stated").await;
        assert!(why.contains("does not fit") && why.contains("a receipt"), "{why}");
        lobster.resolve(run.id(), step, Fate::Happened(5)).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 5);
        assert_eq!(happened(&world, "call"), 1);
    }

    async fn a_stated_value_of_another_type_does_not_let_an_exhausted_call_go_again(place) {
        let lobster = engine!(place);
        let world = format!("misfit retry {}", place.url());
        let run = lobster.submit(by_retry, plan(world.clone(), &[End::Error; 9], &[])).await.unwrap();
        lobster_tests::held(&place, &lobster, run.id()).await;
        let calls = happened(&world, "call");
        let step = lobster.show(run.id()).await.unwrap().steps[0].id;
        lobster.resolve(run.id(), step, Fate::Happened([1, 2])).await.unwrap();
        held_saying(&place, &lobster, run.id(), "stated").await;
        assert_eq!(happened(&world, "call"), calls);
        lobster.resolve(run.id(), step, Fate::Happened(7)).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 7);
        assert_eq!(happened(&world, "call"), calls);
    }

    async fn a_person_may_close_a_call_and_it_is_made_again_with_another_key(place) {
        let lobster = engine!(place);
        let world = format!("close {}", place.url());
        let run = lobster.submit(by_hold, plan(world.clone(), &[End::Error], &[])).await.unwrap();
        lobster_tests::held(&place, &lobster, run.id()).await;
        let step = lobster.show(run.id()).await.unwrap().steps[0].id;
        lobster.resolve(run.id(), step, Fate::<u64>::Closed).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 2);
        assert_eq!(keys(&world), 2);
    }

    async fn what_a_person_closes_counts_after_the_window_unless_the_person_knows_better(place) {
        // The window is W + D of a call that may take an hour.
        let lobster = place.open().task(by_slow_hold).start().await.unwrap();
        let world = format!("window {}", place.url());
        let run = lobster.submit(by_slow_hold, plan(world.clone(), &[End::Error], &[])).await.unwrap();
        lobster_tests::held(&place, &lobster, run.id()).await;
        let step = lobster.show(run.id()).await.unwrap().steps[0].id;
        lobster.resolve(run.id(), step, Fate::<u64>::Closed).await.unwrap();
        let tiers = lobster_tests::tiers(&place).await;
        let why = lobster_tests::eventually(&tiers, async || match lobster.why_not_running(run.id()).await.unwrap() {
            Some(Reason::Until { why, .. }) => Some(why),
            _ => None,
        });
        assert!(why.await.contains("a request may still be on its way"));
        assert_eq!(happened(&world, "call"), 1);

        let world = format!("no window {}", place.url());
        let run = lobster.submit(by_slow_hold, plan(world.clone(), &[End::Error], &[])).await.unwrap();
        lobster_tests::held(&place, &lobster, run.id()).await;
        let step = lobster.show(run.id()).await.unwrap().steps[0].id;
        lobster.resolve_now(run.id(), step, Fate::<u64>::Closed).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 2);
        assert_eq!(keys(&world), 2);
    }

    async fn exhausted_under_a_probe_that_has_not_seen_it_is_held(place) {
        let lobster = engine!(place);
        let world = format!("not seen {}", place.url());
        let run = lobster.submit(by_probe, plan(world.clone(), &[End::Error; 9], &[Answer::NotSeen])).await.unwrap();
        let why = lobster_tests::held(&place, &lobster, run.id()).await;
        assert!(why.contains("probed#0 is in doubt"), "{why}");
        assert_eq!((happened(&world, "call"), keys(&world)), (3, 1));
    }

    async fn exhausted_in_doubt_is_held_or_fails_as_the_author_said(place) {
        let lobster = engine!(place);
        let world = format!("in doubt {}", place.url());
        let run = lobster.submit(by_retry, plan(world.clone(), &[End::Error; 9], &[])).await.unwrap();
        lobster_tests::held(&place, &lobster, run.id()).await;
        assert_eq!((happened(&world, "call"), keys(&world)), (3, 1));
        let world = format!("fails {}", place.url());
        let run = lobster.submit(by_failing, plan(world.clone(), &[End::Error; 9], &[])).await.unwrap();
        let Err(RunFailed::Failed(failed)) = run.outcome().await else { panic!() };
        assert_eq!((failed.kind(), failed.code(), failed.attempts()), (StepFailedKind::Exhausted, "InDoubt", 2));
    }

    async fn doubt_stays_when_a_later_attempt_says_that_nothing_happened(place) {
        // The second call certainly had no effect; the first one may have had.
        let lobster = engine!(place);
        let world = format!("sticky {}", place.url());
        let run = lobster.submit(by_retry, plan(world.clone(), &[End::Error, End::DidNotHappen, End::DidNotHappen], &[])).await.unwrap();
        lobster_tests::held(&place, &lobster, run.id()).await;
    }

    async fn a_value_that_cannot_be_kept_is_a_definite_failure(place) {
        let lobster = engine!(place);
        let world = format!("unserializable {}", place.url());
        let run = lobster.submit(by_retry, plan(world.clone(), &[End::Unserializable], &[])).await.unwrap();
        let Err(RunFailed::Failed(failed)) = run.outcome().await else { panic!() };
        assert_eq!(failed.kind(), StepFailedKind::Encoding);
        assert!(failed.message().contains("odd values have no encoding"), "{failed}");
        assert_eq!(happened(&world, "call"), 1);
    }

    async fn after_a_cancel_a_started_call_is_recorded_and_no_other_begins(place) {
        #[step(irreversible, in_doubt = hold)]
        async fn started(ctx: &StepCtx, world: String) -> Result<u64> {
            happen(&world, "started");
            ctx.cancelled().await;
            happen(&world, "saw the cancel");
            until(&world, "go", 1).await;
            Ok(9)
        }
        #[task]
        async fn two(ctx: Ctx, world: String) -> Result<u64> {
            let n = started(&ctx, world.clone()).await?;
            started(&ctx, world).await?;
            Ok(n)
        }
        let lobster = place.open().task(two).start().await.unwrap();
        let world = format!("cancel {}", place.url());
        let run = lobster.submit(two, world.clone()).await.unwrap();
        until(&world, "started", 1).await;
        lobster.cancel(run.id()).await.unwrap();
        until(&world, "saw the cancel", 1).await;
        happen(&world, "go");
        assert_eq!(run.outcome().await, Err(RunFailed::Cancelled(String::new())));
        assert_eq!(happened(&world, "started"), 1);
        let view = lobster.show(run.id()).await.unwrap();
        assert_eq!((view.steps.len(), &view.steps[0].state), (1, &StepState::Done("9".into())));
    }

    async fn keys_are_the_same_in_every_attempt_and_differ_between_runs_and_calls(place) {
        #[step(irreversible, in_doubt = retry)]
        async fn key(ctx: &StepCtx) -> Result<(String, String, u64)> {
            Ok((ctx.idempotency_key().to_owned(), ctx.step_id().to_string(), ctx.fencing_token()))
        }
        #[task]
        async fn keys(ctx: Ctx, _nothing: ()) -> Result<Vec<(String, String, u64)>> {
            Ok(vec![key(&ctx).await?, key(&ctx).await?])
        }
        let lobster = place.open().task(keys).start().await.unwrap();
        let mut all = Vec::new();
        for _ in 0..2 {
            let run = lobster.submit(keys, ()).await.unwrap();
            let view_keys = run.outcome().await.unwrap();
            let view = lobster.show(run.id()).await.unwrap();
            assert_eq!(view.steps[1].id.to_string(), view_keys[1].1);
            all.extend(view_keys);
        }
        let distinct: std::collections::BTreeSet<_> = all.iter().map(|(key, ..)| key).collect();
        assert_eq!(distinct.len(), 4);
        assert!(all.iter().all(|(key, _, token)| key.len() == 32 && *token == 1));
    }
}

//! State: recorded with the result of the step that changed it, or not at all.

use lobster_core::{
    Base, Ctx, ErrorKind, Field, FindingKind, Flow, Log, Reason, Result, RunFailed, RunId, Scratch, State, StepCtx, StepErrorExt,
    StepFailedKind, StepState, Table, step, task,
};
use lobster_tests::{Place, eventually, happen, happened, on_each, tiers, until};
use std::time::Duration;

/// One member of each kind.
#[derive(State, Default)]
struct Import {
    source: Base<String>,
    cursor: Field<u64>,
    accepted: Log<String>,
    totals: Table<String, u64>,
    #[state(rebuild = parser)]
    parser: Scratch<u64>,
}

fn parser(import: &Import) -> u64 {
    *import.cursor
}

/// Everything recorded of an [`Import`], to be compared.
type Seen = (Option<String>, u64, Vec<String>, Vec<(String, u64)>);

fn seen(import: &Import) -> Seen {
    let totals = import.totals.iter().map(|(key, count)| (key.clone(), *count)).collect();
    (import.source.get().cloned(), *import.cursor, import.accepted.to_vec(), totals)
}

/// One word more in each member.
fn add(import: &mut Import, word: &str) {
    if import.source.get().is_none() {
        import.source.set("a book".into()).unwrap();
    }
    import.cursor += 1;
    import.accepted.push(word.to_owned());
    *import.totals.entry(word.to_owned()).or_default() += 1;
}

async fn recorded(client: &lobster_core::Client, run: RunId) -> Option<Seen> {
    client.state::<Import>(run, Import::NAME).await.unwrap().map(|import| seen(&import))
}

fn words(words: &[&str]) -> Option<Seen> {
    let mut import = Import::default();
    words.iter().for_each(|word| add(&mut import, word));
    Some(seen(&import))
}

/// How a step ends after it changed its state.
#[derive(Clone, Copy, serde::Serialize, serde::Deserialize, PartialEq)]
enum End {
    Well,
    FailsOnce,
    PanicsOnce,
    TakesTooLongOnce,
    Fatal,
    ClearsAndFailsOnce,
    ReplacesAndFailsOnce,
}

#[step(timeout = 200ms, retry(attempts = 3, first = 1ms))]
async fn take(_ctx: &StepCtx, #[state] import: &mut Import, world: &str, word: &str, end: End) -> Result<Seen> {
    let time = happen(world, format!("take {word}"));
    assert_eq!(*import.parser, *import.cursor, "a scratch is made of what is recorded");
    let before = seen(import);
    match end {
        End::ClearsAndFailsOnce if time == 1 => {
            import.accepted.clear();
            import.totals.clear();
        }
        End::ReplacesAndFailsOnce if time == 1 => *import = Import::default(),
        _ => {}
    }
    add(import, word);
    *import.parser += 1;
    match end {
        End::FailsOnce | End::ClearsAndFailsOnce | End::ReplacesAndFailsOnce if time == 1 => Err("not yet".into()),
        End::PanicsOnce if time == 1 => panic!("not yet"),
        End::TakesTooLongOnce if time == 1 => std::future::pending().await,
        End::Fatal => Err("never").fatal()?,
        _ => Ok(before),
    }
}

#[task]
async fn reading(ctx: Ctx, plan: (String, Vec<(String, End)>)) -> Result<Vec<Seen>> {
    let (world, words) = plan;
    let mut seen = Vec::new();
    for (word, end) in &words {
        if let Ok(before) = take(&ctx, &world, word, *end).await {
            seen.push(before);
        }
    }
    Ok(seen)
}

fn plan(world: &str, words: &[(&str, End)]) -> (String, Vec<(String, End)>) {
    (world.to_owned(), words.iter().map(|(word, end)| ((*word).to_owned(), *end)).collect())
}

/// Runs `end` between two good steps, and looks at what the next step finds.
async fn undone(place: &Place, end: End, kept: bool) {
    let lobster = place.open().task(reading).start().await.unwrap();
    let world = format!("{} {}", place.url(), end as u8);
    let words_of = if kept { words(&["a", "b", "c"]) } else { words(&["a", "c"]) };
    let run = lobster.submit(reading, plan(&world, &[("a", End::Well), ("b", end), ("c", End::Well)])).await.unwrap();
    let seen = run.outcome().await.unwrap();
    assert_eq!(seen[0], (None, 0, vec![], vec![]));
    assert_eq!(Some(seen[1].clone()), words(&["a"]), "what a failed attempt changed is undone before the next");
    if kept {
        assert_eq!(Some(seen[2].clone()), words(&["a", "b"]));
        assert_eq!(happened(&world, "take b"), 2);
    }
    assert_eq!(recorded(&lobster, run.id()).await, words_of);
}

#[step]
async fn never_ends(_ctx: &StepCtx, #[state] import: &mut Import, world: &str) -> Result<()> {
    add(import, "dropped");
    happen(world, "dropped");
    std::future::pending().await
}

#[task]
async fn dropping(ctx: Ctx, world: String) -> Result<Vec<Seen>> {
    let first = take(&ctx, &world, "a", End::Well).await?;
    tokio::select! {
        biased;
        _ = never_ends(&ctx, &world) => {}
        () = until(&world, "dropped", 1) => {}
    }
    Ok(vec![first, take(&ctx, &world, "b", End::Well).await?])
}

/// Replaces members in ways that no member can see.
#[step]
async fn replace(_ctx: &StepCtx, #[state] pair: &mut Pair, how: u32) -> Result<Held> {
    match how {
        0 => {
            pair.left.extend([1, 2, 3]);
            pair.right.push(9);
            *pair.one = 1;
            *pair.two = 2;
        }
        1 => std::mem::swap(&mut pair.left, &mut pair.right),
        2 => std::mem::swap(&mut pair.one, &mut pair.two),
        3 => pair.left = pair.right.clone(),
        4 => pair.right = Log::default(),
        5 => *pair = Pair { left: vec![7].into(), ..Pair::default() },
        6 => pair.left.push(8),
        7 => pair.one = 70.into(),
        _ => {}
    }
    Ok((pair.left.to_vec(), pair.right.to_vec(), *pair.one, *pair.two))
}

#[derive(State, Default, PartialEq, Debug)]
struct Pair {
    left: Log<u32>,
    right: Log<u32>,
    one: Field<u32>,
    two: Field<u32>,
}

/// What a [`Pair`] holds.
type Held = (Vec<u32>, Vec<u32>, u32, u32);

#[task]
async fn replacing(ctx: Ctx, hows: Vec<u32>) -> Result<Held> {
    let mut last = None;
    for how in hows {
        last = Some(replace(&ctx, how).await?);
    }
    Ok(last.unwrap_or_default())
}

#[step(retry(attempts = 1))]
async fn set_again(_ctx: &StepCtx, #[state] import: &mut Import, how: u32) -> Result<()> {
    match how {
        0 => import.source = "another".to_owned().into(),
        1 => import.source = Base::default(),
        _ => import.source.set("another".into())?,
    }
    Ok(())
}

#[task]
async fn setting_again(ctx: Ctx, world: String) -> Result<Vec<(bool, String)>> {
    take(&ctx, &world, "a", End::Well).await?;
    let mut failures = Vec::new();
    for how in 0..3 {
        let failed = set_again(&ctx, how).await.unwrap_err();
        failures.push((failed.kind() == StepFailedKind::Encoding, failed.message().to_owned()));
    }
    take(&ctx, &world, "b", End::Well).await?;
    Ok(failures)
}

/// Amounts by account.
#[derive(State, Default)]
struct Account {
    cents: Field<i64>,
    moves: Log<i64>,
}

#[step]
async fn transfer(
    _ctx: &StepCtx,
    #[state(name = format!("account-{from}"))] left: &mut Account,
    #[state(name = format!("account-{to}"))] right: &mut Account,
    from: u32,
    to: u32,
    cents: i64,
) -> Result<i64> {
    assert_ne!(from, to, "a step cannot have a state twice");
    let was = *left.cents;
    tokio::task::yield_now().await;
    *left.cents = was - cents;
    left.moves.push(-cents);
    right.cents += cents;
    right.moves.push(cents);
    Ok(*left.cents)
}

#[task]
async fn transfers(ctx: Ctx, rounds: u32) -> Result<()> {
    for round in 0..rounds {
        let cents = i64::from(round);
        let moves = tokio::join!(
            transfer(&ctx, 1, 2, cents),
            transfer(&ctx, 2, 1, 1),
            transfer(&ctx, 2, 3, 2 * cents),
            transfer(&ctx, 3, 1, 3),
        );
        for moved in [moves.0, moves.1, moves.2, moves.3] {
            moved?;
        }
    }
    Ok(())
}

#[task]
async fn one_account_twice(ctx: Ctx, _nothing: ()) -> Result<String> {
    Ok(transfer(&ctx, 1, 1, 5).await.unwrap_err().code().to_owned())
}

#[step]
async fn as_account(_ctx: &StepCtx, #[state(name = "shared")] account: &mut Account) -> Result<()> {
    account.cents += 1;
    Ok(())
}

#[step]
async fn as_pair(_ctx: &StepCtx, #[state(name = "shared")] pair: &mut Pair) -> Result<()> {
    *pair.one = 1;
    Ok(())
}

#[task]
async fn two_types(ctx: Ctx, _nothing: ()) -> Result<String> {
    as_account(&ctx).await?;
    let code = as_pair(&ctx).await.unwrap_err().code().to_owned();
    as_account(&ctx).await?;
    Ok(code)
}

#[step(retry(attempts = 1))]
async fn too_much(_ctx: &StepCtx, #[state] import: &mut Import) -> Result<()> {
    import.accepted.extend((0..9).map(|n| n.to_string().repeat(1 << 20)));
    Ok(())
}

#[task]
async fn overflowing(ctx: Ctx, world: String) -> Result<String> {
    take(&ctx, &world, "a", End::Well).await?;
    let failed = too_much(&ctx).await.unwrap_err();
    take(&ctx, &world, "b", End::Well).await?;
    Ok(failed.message().to_owned())
}

/// Counts to a number, by rounds.
#[derive(State, Default)]
struct Count {
    next: Field<u64>,
    seen: Log<u64>,
}

#[step(retry(attempts = 3, first = 1ms))]
async fn count(_ctx: &StepCtx, #[state] count: &mut Count, world: &str, to: u64) -> Result<Flow<u64>> {
    if *count.next >= to {
        return Ok(Flow::Done(*count.next));
    }
    let next = *count.next;
    count.next += 1;
    count.seen.push(next);
    let time = happen(world, format!("round {next}"));
    if next % 7 == 3 && time == 1 {
        return Err("this round fails once".into());
    }
    Ok(Flow::Again)
}

#[task]
async fn counting(ctx: Ctx, plan: (String, u64)) -> Result<u64> {
    let (world, to) = plan;
    take(&ctx, &world, "before", End::Well).await?;
    let counted = ctx.repeat(|ctx| count(ctx, &world, to)).await?;
    take(&ctx, &world, "after", End::Well).await?;
    Ok(counted)
}

#[step(retry(attempts = 2, first = 1ms))]
async fn fails_in_round(_ctx: &StepCtx, #[state] count: &mut Count, at: u64) -> Result<Flow> {
    count.next += 1;
    if *count.next > at {
        return Err("this round fails".into());
    }
    Ok(Flow::Again)
}

#[task]
async fn failing_round(ctx: Ctx, at: u64) -> Result<String> {
    Ok(ctx.repeat(|ctx| fails_in_round(ctx, at)).await.unwrap_err().message().to_owned())
}

#[step(irreversible, in_doubt = retry)]
async fn call(_ctx: &StepCtx) -> Result<Flow> {
    Ok(Flow::Done(()))
}

#[task]
async fn repeating_a_call(ctx: Ctx, _nothing: ()) -> Result<(String, String)> {
    let irreversible = ctx.repeat(call).await.unwrap_err().code().to_owned();
    let mut n = 0;
    let mixed = ctx.repeat(|ctx| {
        n += 1;
        if n == 1 {
            lobster_core::Step::new(boxed(fails_in_round(ctx, 9)))
        } else {
            lobster_core::Step::new(boxed(idle_round(ctx)))
        }
    });
    Ok((irreversible, mixed.await.unwrap_err().code().to_owned()))
}

type Boxed<'c> = std::pin::Pin<Box<dyn Future<Output = Result<Flow, lobster_core::StepFailed>> + Send + 'c>>;

fn boxed<'c>(step: impl Future<Output = Result<Flow, lobster_core::StepFailed>> + Send + 'c) -> Boxed<'c> {
    Box::pin(step)
}

#[step]
async fn idle_round(_ctx: &StepCtx) -> Result<Flow> {
    Ok(Flow::Again)
}

on_each! {
    async fn changes_are_recorded_with_the_results(place) {
        let lobster = place.open().task(reading).start().await.unwrap();
        let all = ["a", "b", "a"];
        let input = plan(place.url(), &all.map(|word| (word, End::Well)));
        let run = lobster.submit(reading, input).await.unwrap();
        let seen = run.outcome().await.unwrap();
        assert_eq!(Some(seen[2].clone()), words(&["a", "b"]));
        assert_eq!(recorded(&lobster, run.id()).await, words(&all));
        let view = lobster.show(run.id()).await.unwrap();
        let members: Vec<_> = view.states[0].members.iter().map(|member| (member.name.as_str(), member.count)).collect();
        assert_eq!(members, [("accepted", 3), ("cursor", 1), ("source", 1), ("totals", 2)]);
        assert_eq!(lobster.state::<Import>(run.id(), "another").await.unwrap().map(|_| ()), None);
        let nobody = lobster.state::<Import>(RunId(uuid::Uuid::nil()), "x").await.map(|_| ()).unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::NotFound);
    }

    async fn what_a_failed_attempt_changed_is_undone(place) {
        undone(&place, End::FailsOnce, true).await;
    }
    async fn what_a_panicked_attempt_changed_is_undone(place) {
        undone(&place, End::PanicsOnce, true).await;
    }
    async fn what_a_late_attempt_changed_is_undone(place) {
        undone(&place, End::TakesTooLongOnce, true).await;
    }
    async fn what_a_failed_step_changed_is_undone(place) {
        undone(&place, End::Fatal, false).await;
    }
    async fn what_a_failed_attempt_cleared_is_there_again(place) {
        undone(&place, End::ClearsAndFailsOnce, true).await;
    }
    async fn what_a_failed_attempt_replaced_as_a_whole_is_read_back(place) {
        undone(&place, End::ReplacesAndFailsOnce, true).await;
    }

    async fn what_a_dropped_step_changed_is_undone(place) {
        let lobster = place.open().task(dropping).start().await.unwrap();
        let run = lobster.submit(dropping, place.url().into()).await.unwrap();
        assert_eq!(Some(run.outcome().await.unwrap()[1].clone()), words(&["a"]));
        assert_eq!(recorded(&lobster, run.id()).await, words(&["a", "b"]));
    }

    async fn members_replaced_as_a_whole_are_recorded_as_a_whole(place) {
        let lobster = place.open().task(replacing).start().await.unwrap();
        let cases: [(&[u32], Held); 9] = [
            (&[0], (vec![1, 2, 3], vec![9], 1, 2)),
            (&[0, 1], (vec![9], vec![1, 2, 3], 1, 2)),
            (&[0, 1, 1, 6], (vec![1, 2, 3, 8], vec![9], 1, 2)),
            (&[0, 2], (vec![1, 2, 3], vec![9], 2, 1)),
            (&[0, 3, 6], (vec![9, 8], vec![9], 1, 2)),
            (&[0, 4], (vec![1, 2, 3], vec![], 1, 2)),
            (&[0, 5], (vec![7], vec![], 0, 0)),
            (&[0, 5, 6, 7], (vec![7, 8], vec![], 70, 0)),
            (&[1, 2, 5, 9], (vec![7], vec![], 0, 0)),
        ];
        for (hows, expected) in cases {
            let run = lobster.submit(replacing, hows.to_vec()).await.unwrap();
            assert_eq!(run.outcome().await.unwrap(), expected, "{hows:?}");
            let pair: Pair = lobster.state(run.id(), Pair::NAME).await.unwrap().unwrap();
            assert_eq!((pair.left.to_vec(), pair.right.to_vec(), *pair.one, *pair.two), expected, "{hows:?}");
        }
    }

    async fn a_base_is_written_once(place) {
        let lobster = place.open().task(setting_again).start().await.unwrap();
        let run = lobster.submit(setting_again, place.url().into()).await.unwrap();
        let failures = run.outcome().await.unwrap();
        for (encoding, message) in &failures[..2] {
            assert!(*encoding && message.contains("`source`") && message.contains("written once"), "{message}");
        }
        assert!(failures[2].1.contains("written once"), "{}", failures[2].1);
        assert_eq!(recorded(&lobster, run.id()).await, words(&["a", "b"]));
    }

    async fn steps_side_by_side_take_their_states_in_turn(place) {
        let lobster = place.open().task(transfers).start().await.unwrap();
        let run = lobster.submit(transfers, 20).await.unwrap();
        run.outcome().await.unwrap();
        let mut accounts = Vec::new();
        for name in ["account-1", "account-2", "account-3"] {
            let account: Account = lobster.state(run.id(), name).await.unwrap().unwrap();
            assert_eq!(*account.cents, account.moves.iter().sum::<i64>(), "{name}");
            accounts.push(*account.cents);
        }
        assert_eq!(accounts, [-190 + 20 + 60, 190 - 20 - 380, 380 - 60]);
    }

    async fn a_step_cannot_have_a_state_twice_or_as_two_types(place) {
        let lobster = place.open().task(one_account_twice).task(two_types).start().await.unwrap();
        let twice = lobster.submit(one_account_twice, ()).await.unwrap();
        assert_eq!(twice.outcome().await.unwrap(), "SameName");
        let types = lobster.submit(two_types, ()).await.unwrap();
        assert_eq!(types.outcome().await.unwrap(), "SameName");
        let account: Account = lobster.state(types.id(), "shared").await.unwrap().unwrap();
        assert_eq!(*account.cents, 2);
    }

    async fn a_change_over_the_limit_fails_its_step_and_is_undone(place) {
        let lobster = place.open().task(overflowing).start().await.unwrap();
        let run = lobster.submit(overflowing, place.url().into()).await.unwrap();
        let message = run.outcome().await.unwrap();
        assert!(message.contains("`Import`") && message.contains("the limit is 8388608"), "{message}");
        assert_eq!(recorded(&lobster, run.id()).await, words(&["a", "b"]));
    }

    async fn rounds_leave_their_number_and_the_state(place) {
        let mut settings = lobster_core::Settings::test();
        settings.state.snapshot.delta_threshold = 5;
        let lobster = place.open().settings(settings).task(counting).start().await.unwrap();
        let world = place.url().to_owned();
        let run = lobster.submit(counting, (world.clone(), 500)).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), 500);
        let count: Count = lobster.state(run.id(), Count::NAME).await.unwrap().unwrap();
        assert_eq!(count.seen.to_vec(), (0..500).collect::<Vec<_>>());
        for round in 0..500 {
            assert_eq!(happened(&world, &format!("round {round}")), if round % 7 == 3 { 2 } else { 1 });
        }
        let view = lobster.show(run.id()).await.unwrap();
        let steps: Vec<_> = view.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(steps, ["take#0", "count#0", "take#1"]);
        assert_eq!(view.steps[1].state, StepState::Done("{\"Done\":500}".into()));
    }

    async fn a_round_that_fails_for_good_fails_the_repeat(place) {
        let lobster = place.open().task(failing_round).task(repeating_a_call).start().await.unwrap();
        let run = lobster.submit(failing_round, 30).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), "this round fails");
        let count: Count = lobster.state(run.id(), Count::NAME).await.unwrap().unwrap();
        assert_eq!(*count.next, 30, "what the failed round changed is undone");
        let run = lobster.submit(repeating_a_call, ()).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), ("NotRepeated".into(), "NotRepeated".into()));
    }
}

// ---- moves ----------------------------------------------------------------------------------------------------------

#[step]
async fn word(_ctx: &StepCtx, #[state] import: &mut Import, world: &str, word: &str) -> Result<usize> {
    happen(world, format!("word {word}"));
    add(import, word);
    Ok(import.accepted.len())
}

/// Waits a long time once, so that its run leaves memory: it comes back by way of the store.
#[step(retry(attempts = 3, first = 300ms, jitter = none))]
async fn pause(_ctx: &StepCtx, world: &str, n: u32) -> Result<()> {
    match happen(world, format!("pause {n}")) {
        1 => Err("later".into()),
        _ => Ok(()),
    }
}

#[task]
async fn travelling(ctx: Ctx, plan: (String, u32)) -> Result<Vec<usize>> {
    let (world, words) = plan;
    let mut lens = Vec::new();
    for n in 0..words {
        lens.push(word(&ctx, &world, &format!("w{}", n % 5)).await?);
        if n % 4 == 3 {
            pause(&ctx, &world, n).await?;
        }
    }
    Ok(lens)
}

async fn travel(place: &Place, delta_threshold: u64, words_of: u32) {
    let mut settings = lobster_core::Settings::test();
    settings.state.snapshot.delta_threshold = delta_threshold;
    settings.run.evict_after = Duration::from_millis(10);
    let lobster = place.open().settings(settings).task(travelling).start().await.unwrap();
    let world = format!("{} {delta_threshold}", place.url());
    let run = lobster.submit(travelling, (world.clone(), words_of)).await.unwrap();
    assert_eq!(run.outcome().await.unwrap(), (1..=words_of as usize).collect::<Vec<_>>());
    let all: Vec<String> = (0..words_of).map(|n| format!("w{}", n % 5)).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(recorded(&lobster, run.id()).await, words(&all));
    for n in 0..5 {
        assert_eq!(happened(&world, &format!("word w{n}")), u64::from((words_of + 4 - n) / 5), "no word was taken twice");
    }
    let view = lobster.show(run.id()).await.unwrap();
    assert!(view.summary.epoch > 3, "it left memory again and again: {}", view.summary.epoch);
}

on_each! {
    async fn a_state_goes_where_its_run_goes(place) {
        travel(&place, 1_000_000, 24).await;
    }
    async fn a_folded_state_goes_where_its_run_goes(place) {
        travel(&place, 1, 24).await;
    }
}

// ---- versions -------------------------------------------------------------------------------------------------------

mod old {
    use super::*;

    #[derive(State, Default)]
    #[state(name = "Shop")]
    pub struct Shop {
        pub euros: Field<u64>,
        pub names: Log<String>,
        pub left_alone: Field<u64>,
    }

    #[step]
    pub async fn sell(_ctx: &StepCtx, #[state] shop: &mut Shop, euros: u64) -> Result<u64> {
        shop.euros += euros;
        shop.names.push(format!("sale of {euros}"));
        shop.left_alone += 1;
        Ok(*shop.euros)
    }

    #[task]
    pub async fn shop(ctx: Ctx, world: String) -> Result<u64> {
        sell(&ctx, 5).await?;
        super::pause(&ctx, &world, 0).await?;
        Ok(sell(&ctx, 6).await?)
    }
}

mod new {
    use super::*;
    use lobster_core::{BoxError, Members};

    #[derive(State, Default)]
    #[state(name = "Shop", version = 3, migrate(1 = in_cents, 2 = by_number))]
    pub struct Shop {
        pub cents: Field<u64>,
        pub sales: Table<u64, String>,
    }

    fn in_cents(members: &mut Members) -> Result<(), BoxError> {
        let euros: u64 = members.take_value("euros")?.unwrap_or_default();
        members.set_value("cents", &(euros * 100))
    }

    fn by_number(members: &mut Members) -> Result<(), BoxError> {
        let names: Vec<String> = members.take_log("names")?;
        members.set_table("sales", (0_u64..).zip(names))
    }

    #[step]
    pub async fn sell(_ctx: &StepCtx, #[state] shop: &mut Shop, euros: u64) -> Result<u64> {
        shop.cents += euros * 100;
        let number = shop.sales.len() as u64;
        shop.sales.insert(number, format!("sale of {euros}"));
        Ok(*shop.cents / 100)
    }

    #[task]
    pub async fn shop(ctx: Ctx, world: String) -> Result<u64> {
        sell(&ctx, 5).await?;
        super::pause(&ctx, &world, 0).await?;
        Ok(sell(&ctx, 6).await?)
    }
}

async fn reason(place: &Place, client: &lobster_core::Client, run: RunId, word: &str) -> String {
    eventually(&tiers(place).await, async || match client.why_not_running(run).await.unwrap() {
        Some(Reason::Held(why) | Reason::Until { why, .. }) if why.contains(word) => Some(why),
        _ => None,
    })
    .await
}

on_each! {
    async fn a_state_of_an_older_version_is_migrated(place) {
        let world = place.url().to_owned();
        let before = place.open().task(old::shop).start().await.unwrap();
        let run = before.submit(old::shop, world.clone()).await.unwrap();
        until(&world, "pause 0", 1).await;
        before.shutdown(Duration::from_secs(5)).await;
        let after = place.open().task(new::shop).start().await.unwrap();
        let run = after.run(new::shop, run.id());
        assert_eq!(run.outcome().await.unwrap(), 11);
        let shop: new::Shop = after.state(run.id(), "Shop").await.unwrap().unwrap();
        assert_eq!(*shop.cents, 1100);
        let sales: Vec<_> = shop.sales.iter().map(|(n, sale)| (*n, sale.as_str())).collect();
        assert_eq!(sales, [(0, "sale of 5"), (1, "sale of 6")]);
        let view = after.show(run.id()).await.unwrap();
        assert_eq!(view.states[0].version, 3);
        let kept = view.states[0].members.iter().find(|member| member.name == "left_alone").expect("nobody dropped it");
        assert_eq!(kept.sample, "1", "a member that this code does not know is kept");
        let old = after.state::<old::Shop>(run.id(), "Shop").await.map(|_| ()).unwrap_err();
        assert_eq!(old.kind(), ErrorKind::NewerVersion);
    }

    async fn a_state_of_a_newer_version_is_left_to_who_knows_it(place) {
        let world = place.url().to_owned();
        let newer = place.open().task(new::shop).start().await.unwrap();
        let run = newer.submit(new::shop, world.clone()).await.unwrap();
        until(&world, "pause 0", 1).await;
        newer.shutdown(Duration::from_secs(5)).await;
        let older = place.open().task(old::shop).start().await.unwrap();
        let why = reason(&place, &older, run.id(), "newer").await;
        assert!(why.contains("`Shop`") && why.contains("version 3"), "{why}");
        let shop: new::Shop = older.state(run.id(), "Shop").await.unwrap().unwrap();
        assert_eq!(*shop.cents, 500, "it is left as it is");
        older.shutdown(Duration::from_secs(5)).await;
        let newer = place.open().task(new::shop).start().await.unwrap();
        assert_eq!(newer.run(new::shop, run.id()).outcome().await.unwrap(), 11);
    }
}

mod checked {
    use super::*;

    #[derive(State, Default)]
    #[state(name = "Shop", version = 2, migrate(1 = refuses))]
    pub struct Shop {
        pub euros: Field<u64>,
    }

    fn refuses(members: &mut lobster_core::Members) -> Result<(), lobster_core::BoxError> {
        let names: Vec<u64> = members.take_log("names")?;
        members.set_value("euros", &names.len())
    }

    #[step]
    pub async fn sell(_ctx: &StepCtx, #[state] shop: &mut Shop) -> Result<Vec<u64>> {
        shop.euros += 1;
        Ok(vec![1])
    }

    #[task(steps = [sell])]
    pub async fn shop(ctx: Ctx, world: u64) -> Result<u64> {
        sell(&ctx).await?;
        Ok(world)
    }
}

/// A run with states under names that are known at the call, and left open.
#[task(steps = [transfer, as_account])]
async fn left_open(ctx: Ctx, world: String) -> Result<()> {
    transfer(&ctx, 1, 2, 5).await?;
    as_account(&ctx).await?;
    Ok(pause(&ctx, &world, 1).await?)
}

/// The same steps, whose states are not what they were.
mod of_another_type {
    use super::*;

    #[step]
    pub async fn transfer(_ctx: &StepCtx, #[state(name = format!("account-{of}"))] pair: &mut Pair, of: u32) -> Result<i64> {
        *pair.one = of;
        Ok(i64::from(of))
    }

    #[derive(State, Default)]
    pub struct Cents {
        pub cents: Field<String>,
    }

    #[step]
    pub async fn as_account(_ctx: &StepCtx, #[state(name = "shared")] cents: &mut Cents) -> Result<()> {
        cents.cents.set("many".into());
        Ok(())
    }

    #[task(steps = [transfer, as_account])]
    pub async fn left_open(ctx: Ctx, _world: String) -> Result<()> {
        transfer(&ctx, 1).await?;
        Ok(as_account(&ctx).await?)
    }
}

mod fitting {
    use super::*;

    use super::{new::sell, pause};

    #[task(steps = [sell, pause])]
    pub async fn shop(ctx: Ctx, world: String) -> Result<u64> {
        pause(&ctx, &world, 0).await?;
        Ok(sell(&ctx, 6).await?)
    }
}

on_each! {
    async fn a_dry_run_lists_what_would_fail(place) {
        let world = place.url().to_owned();
        let before = place.open().task(old::shop).task(transfers).start().await.unwrap();
        let ended = before.submit(transfers, 2).key("ended").await.unwrap();
        ended.outcome().await.unwrap();
        let run = before.submit(old::shop, world.clone()).key("open").await.unwrap();
        until(&world, "pause 0", 1).await;
        before.shutdown(Duration::from_secs(5)).await;

        let report = place.open().task(fitting::shop).check().await.unwrap();
        assert_eq!((report.runs, report.findings), (1, vec![]));
        let report = place.open().task(old::shop).check().await.unwrap();
        assert_eq!(report.failures().count(), 0);
        let unchecked: Vec<_> = report.findings.iter().map(|finding| (finding.kind, finding.message.as_str())).collect();
        let (result, state) = ("the task's list of steps does not tell what `sell` returns", "state `Shop` is of no type");
        assert!(unchecked[0] == (FindingKind::Unchecked, result), "this one lists no steps: {unchecked:?}");
        assert!(unchecked[1].0 == FindingKind::Unchecked && unchecked[1].1.starts_with(state), "{unchecked:?}");
        let report = place.open().task(checked::shop).check().await.unwrap();
        let kinds: Vec<_> = report.failures().map(|finding| (finding.run, finding.kind)).collect();
        assert_eq!(kinds, [FindingKind::Input, FindingKind::Result, FindingKind::State].map(|kind| (run.id(), kind)));
        let text = report.findings[1].to_string();
        assert!(text.contains("the result of sell#0 does not fit") && text.contains("invalid type: integer `5`"), "{text}");
        let text = report.findings[2].to_string();
        assert!(text.contains("(open)") && text.contains("the migration from version 1 failed"), "{text}");
        let report = place.open().check().await.unwrap();
        assert_eq!(report.findings[0].kind, FindingKind::Task);

        // It went nowhere, and goes on.
        let after = place.open().task(new::shop).start().await.unwrap();
        assert_eq!(after.run(new::shop, run.id()).outcome().await.unwrap(), 11);
        // What newer code has recorded, older code only lists.
        let world = format!("{world} again");
        let run = after.submit(new::shop, world.clone()).await.unwrap();
        until(&world, "pause 0", 1).await;
        after.shutdown(Duration::from_secs(5)).await;
        let report = place.open().task(older_list::shop).check().await.unwrap();
        let kinds: Vec<_> = report.failures().map(|finding| (finding.run, finding.kind)).collect();
        assert_eq!(kinds, [(run.id(), FindingKind::NewerState)]);
    }

    async fn a_dry_run_knows_states_by_the_names_that_steps_give_them(place) {
        let world = place.url().to_owned();
        let lobster = place.open().task(left_open).start().await.unwrap();
        lobster.submit(left_open, world.clone()).await.unwrap();
        until(&world, "pause 1", 1).await;
        lobster.shutdown(Duration::from_secs(5)).await;
        let report = place.open().task(left_open).check().await.unwrap();
        assert_eq!((report.runs, report.findings), (1, vec![]));
        let report = place.open().task(of_another_type::left_open).check().await.unwrap();
        let found: Vec<_> = report.findings.iter().map(|finding| (finding.kind, finding.message.contains("`shared`"))).collect();
        // A pair has neither of an account's members: as far as it is concerned they are a newer node's.
        assert_eq!(found, [(FindingKind::State, true)], "{:?}", report.findings);
    }

    async fn a_run_is_folded_on_demand(place) {
        let lobster = place.open().task(waiting).start().await.unwrap();
        let world = place.url().to_owned();
        let run = lobster.submit(waiting, world.clone()).await.unwrap();
        until(&world, "waits", 1).await;
        assert!(lobster.fold(run.id()).await.unwrap());
        let view = lobster.show(run.id()).await.unwrap();
        assert_eq!((view.snapshot, recorded(&lobster, run.id()).await), (Some(3), words(&["a", "b", "c"])));
        assert!(!lobster.fold(run.id()).await.unwrap(), "nothing has come since");
        happen(&world, "go on");
        run.outcome().await.unwrap();
        assert_eq!(recorded(&lobster, run.id()).await, words(&["a", "b", "c", "d"]));
        // Its last moment in memory may not be over.
        let late = lobster.fold(run.id()).await.map_err(|error| error.kind());
        assert!(matches!(late, Ok(false) | Err(ErrorKind::NotFound)), "{late:?}");
    }
}

mod older_list {
    use super::*;

    #[task(steps = [super::old::sell])]
    pub async fn shop(ctx: Ctx, _world: String) -> Result<u64> {
        Ok(super::old::sell(&ctx, 6).await?)
    }
}

#[step]
async fn waits(_ctx: &StepCtx, world: &str) -> Result<()> {
    happen(world, "waits");
    until(world, "go on", 1).await;
    Ok(())
}

#[step(durable)]
async fn durable_word(_ctx: &StepCtx, #[state] import: &mut Import, word: &str) -> Result<()> {
    add(import, word);
    Ok(())
}

#[task]
async fn waiting(ctx: Ctx, world: String) -> Result<()> {
    for word in ["a", "b", "c"] {
        durable_word(&ctx, word).await?;
    }
    waits(&ctx, &world).await?;
    Ok(durable_word(&ctx, "d").await?)
}

#[tokio::test]
async fn steps_of_a_unit_test_share_their_states() {
    let ctx = Ctx::detached();
    let world = "detached";
    take(&ctx, world, "a", End::FailsOnce).await.unwrap();
    let before = take(&ctx, world, "b", End::Well).await.unwrap();
    assert_eq!(Some(before), words(&["a"]));
    assert_eq!(ctx.repeat(|ctx| count(ctx, world, 20)).await.unwrap(), 20);
    let RunFailed::Failed(_) = RunFailed::Failed(fails(&ctx).await) else { unreachable!() };
}

#[step]
async fn in_turn(_ctx: &StepCtx, #[state] import: &mut Import, word: &str) -> Result<usize> {
    import.accepted.push(word.to_owned());
    tokio::task::yield_now().await;
    Ok(import.accepted.len())
}

#[tokio::test]
async fn steps_of_a_unit_test_take_their_states_in_the_order_of_their_calls() {
    let ctx = Ctx::detached();
    let places = tokio::join!(in_turn(&ctx, "a"), in_turn(&ctx, "b"), in_turn(&ctx, "c"), in_turn(&ctx, "d"));
    assert_eq!((places.0.unwrap(), places.1.unwrap(), places.2.unwrap(), places.3.unwrap()), (1, 2, 3, 4));
}

async fn fails(ctx: &Ctx) -> lobster_core::StepFailed {
    transfer(ctx, 1, 1, 5).await.unwrap_err()
}

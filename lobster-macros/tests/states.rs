//! The rule: what a step does to its states through ordinary Rust is recorded with its result, or not at all.

#![deny(warnings, missing_docs, single_use_lifetimes, unused_lifetimes, clippy::pedantic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use lobster_core::expand::StepInfo;
use lobster_core::store::{Tiers, memory::Memory};
use lobster_core::{
    Base, BoxError, Builder, Ctx, ErrorKind, Field, Flow, Lobster, Log, Member, Members, OsHost, Result, Scratch, Settings,
    State, StepCtx, StepErrorExt, StepState, Table, step, task,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

fn engine() -> Builder {
    Lobster::open("memory:").settings(Settings::test())
}

async fn stop(lobster: Lobster) {
    lobster.shutdown(Duration::from_secs(5)).await;
}

/// Everything a state can have.
#[derive(State, Default)]
pub struct Import {
    source: Base<Source>,
    cursor: Field<u64>,
    accepted: Log<String>,
    totals: Table<String, u64>,
    #[state(rebuild = separator)]
    separator: Scratch<char>,
    /// Filled by its default, after the one above.
    lines: Scratch<Vec<String>>,
}

/// What an import reads.
#[derive(Debug, Serialize, Deserialize)]
pub struct Source {
    text: String,
    separator: char,
}

static SEPARATED: AtomicU32 = AtomicU32::new(0);

fn separator(import: &Import) -> char {
    SEPARATED.fetch_add(1, Relaxed);
    import.source.get().map_or(' ', |source| source.separator)
}

#[step]
async fn begin(_ctx: &StepCtx, #[state] import: &mut Import, text: &str) -> Result<()> {
    assert_eq!(*import.separator, ' ', "nothing is set yet");
    import.source.set(Source { text: text.to_owned(), separator: ';' })?;
    *import.separator = import.source.separator;
    Ok(())
}

/// One page: of so many words, of which one may be refused at first.
#[step(retry(attempts = 3, first = 1ms))]
async fn page(ctx: &StepCtx, words: usize, #[state] import: &mut Import, refused: Option<&str>) -> Result<u64> {
    assert_eq!(*import.separator, ';');
    assert!(import.lines.is_empty(), "a failed attempt leaves no scratch");
    let at = usize::try_from(*import.cursor)?;
    let text = import.source.text.clone();
    for word in text.split(*import.separator).skip(at).take(words) {
        import.lines.push(word.to_owned());
        import.cursor += 1;
        import.accepted.push(word.to_owned());
        *import.totals.entry(word.to_owned()).or_default() += 1;
        tokio::task::yield_now().await;
        if ctx.attempt() == 1 && refused == Some(word) {
            import.totals.clear();
            return Err("refused at first".into());
        }
    }
    import.lines.clear();
    Ok(*import.cursor)
}

#[task(steps = [begin, page])]
async fn import(ctx: Ctx, text: String) -> Result<u64> {
    begin(&ctx, &text).await?;
    page(&ctx, 2, None).await?;
    let refused = "sand".to_owned();
    Ok(page(&ctx, 9, Some(&refused)).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_steps_change_is_recorded_and_what_failed_attempts_changed_is_not() {
    let lobster = engine().task(import).start().await.unwrap();
    let run = lobster.submit(import, "sea;wind;sand;sea".to_owned()).await.unwrap();
    assert_eq!(run.outcome().await.unwrap(), 4);
    let import: Import = lobster.state(run.id(), Import::NAME).await.unwrap().unwrap();
    assert_eq!(import.source.text, "sea;wind;sand;sea");
    assert_eq!(*import.cursor, 4);
    assert_eq!(import.accepted[..], ["sea", "wind", "sand", "sea"]);
    assert_eq!(*import.totals, BTreeMap::from([("sand".into(), 1), ("sea".into(), 2), ("wind".into(), 1)]));
    assert_eq!((*import.separator, import.lines.len()), (';', 0), "it is filled for whoever looks, too");
    assert_eq!(SEPARATED.load(Relaxed), 3, "for the run, after the attempt that failed, and for this look");
    stop(lobster).await;
}

#[step]
async fn set_again(_ctx: &StepCtx, #[state] import: &mut Import) -> Result<()> {
    let source = Source { text: String::new(), separator: ';' };
    Ok(import.source.set(source).fatal()?)
}

#[tokio::test]
async fn a_base_is_set_once_and_a_step_that_tries_again_changes_nothing() {
    let ctx = Ctx::detached();
    begin(&ctx, "sea").await.unwrap();
    let failed = set_again(&ctx).await.unwrap_err();
    assert!(failed.message().contains("written once"), "{failed}");
    assert_eq!(page(&ctx, 9, None).await.unwrap(), 1);
}

/// Any number of these in one run.
#[derive(State, Default)]
pub struct Total {
    cents: Field<u64>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Region {
    name: String,
}

#[step(key = (&region.name, cents))]
async fn sell(
    _ctx: &StepCtx,
    region: Region,
    cents: u64,
    #[state(name = format!("totals.{}", region.name))] total: &mut Total,
) -> Result<()> {
    total.cents += cents;
    drop(region);
    Ok(())
}

/// One state of a type under its type's name, two under others, in any order and between the arguments.
#[step]
async fn move_all(
    _ctx: &StepCtx,
    #[state(name = from)] from_total: &mut Total,
    from: String,
    #[state] moved: &mut Total,
    #[state(name = to.name)] to_total: &mut Total,
    to: Region,
    #[state(name = "totals.all")]
    #[expect(unused_variables, reason = "an attribute of the author's")]
    all: &mut Total,
) -> Result<String> {
    let cents = std::mem::take(&mut *from_total.cents);
    moved.cents += cents;
    to_total.cents.set(*to_total.cents + cents);
    Ok(format!("{from} to {}", to.name))
}

#[task]
async fn sales(ctx: Ctx) -> Result<String> {
    let (north, south) = (Region { name: "north".into() }, Region { name: "south".into() });
    let sold = tokio::join!(sell(&ctx, north.clone(), 5), sell(&ctx, south.clone(), 7), sell(&ctx, north, 10));
    for sold in [sold.0, sold.1, sold.2] {
        sold?;
    }
    Ok(move_all(&ctx, "totals.south".into(), Region { name: "totals.north".into() }).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn states_of_one_type_live_side_by_side_under_their_names() {
    let lobster = engine().task(sales).start().await.unwrap();
    let run = lobster.submit(sales, ()).await.unwrap();
    assert_eq!(run.outcome().await.unwrap(), "totals.south to totals.north");
    for (name, cents) in [("totals.north", 22), ("totals.south", 0), (Total::NAME, 7)] {
        let total: Total = lobster.state(run.id(), name).await.unwrap().unwrap();
        assert_eq!(total.cents, cents, "{name}");
    }
    assert!(lobster.state::<Total>(run.id(), "totals.all").await.unwrap().is_none(), "no step changed it");
    let view = lobster.show(run.id()).await.unwrap();
    assert_eq!(view.states.len(), 3, "{:?}", view.states);
    stop(lobster).await;
}

/// One task and its state, as they were first and as they are now.
mod versions {
    use std::future::pending;

    use tokio::sync::Notify;

    use super::{BoxError, Ctx, Field, Log, Members, Result, State, StepCtx, step, task};

    /// A run of the first version is in its second step.
    pub static WAITING: Notify = Notify::const_new();

    pub mod first {
        use super::{Ctx, Field, Log, Result, State, StepCtx, WAITING, pending, step, task};

        #[derive(State, Default)]
        pub struct Basket {
            pub euros: Field<u64>,
            pub items: Log<String>,
        }

        #[step(durable)]
        async fn fill(_ctx: &StepCtx, #[state] basket: &mut Basket) -> Result<()> {
            basket.euros += 3;
            basket.items.push("net".into());
            Ok(())
        }

        /// Never gets there.
        #[step]
        async fn add(_ctx: &StepCtx, #[state] basket: &mut Basket) -> Result<u64> {
            basket.euros += 1000;
            WAITING.notify_one();
            pending().await
        }

        #[task]
        pub async fn shop(ctx: Ctx) -> Result<u64> {
            fill(&ctx).await?;
            Ok(add(&ctx).await?)
        }
    }

    pub mod third {
        use super::{BoxError, Ctx, Field, Log, Members, Result, State, StepCtx, step, task};

        #[derive(State, Default)]
        #[state(version = 3, migrate(2 = renamed, 1 = self::in_cents))]
        pub struct Basket {
            pub cents: Field<u64>,
            #[state(rename = "wares")]
            pub items: Log<String>,
            pub kept: Field<Option<String>>,
        }

        /// Version 2 had `cents: Field<u64>` and `items: Log<String>`.
        fn in_cents(members: &mut Members) -> std::result::Result<(), BoxError> {
            let euros: u64 = members.take_value("euros")?.unwrap_or_default();
            members.set_value("cents", &(euros * 100))
        }

        #[allow(clippy::unnecessary_wraps, reason = "that is what a migration returns")]
        fn renamed(members: &mut Members) -> std::result::Result<(), BoxError> {
            members.rename("items", "wares");
            Ok(())
        }

        #[step]
        async fn fill(_ctx: &StepCtx, #[state] _basket: &mut Basket) -> Result<()> {
            Err("it is recorded".into())
        }

        #[step]
        async fn add(_ctx: &StepCtx, #[state] basket: &mut Basket) -> Result<u64> {
            basket.cents += 50;
            Ok(*basket.cents)
        }

        #[task]
        pub async fn shop(ctx: Ctx) -> Result<u64> {
            fill(&ctx).await?;
            Ok(add(&ctx).await?)
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_of_version_1_is_changed_by_version_3_and_then_no_longer_read_by_version_1() {
    use versions::{WAITING, first, third};

    let memory = Memory::new(Arc::new(OsHost::current().expect("a test runs in a runtime")));
    let engine = || Lobster::open("memory:").settings(Settings::test()).tiers(Tiers::of(memory.clone(), "memory"));
    let lobster = engine().task(first::shop).start().await.unwrap();
    let id = lobster.submit(first::shop, ()).await.unwrap().id();
    WAITING.notified().await;
    let basket: third::Basket = lobster.state(id, "Basket").await.unwrap().unwrap();
    assert_eq!((*basket.cents, &basket.items[..], basket.kept.as_deref()), (300, &["net".to_owned()][..], None));
    lobster.shutdown(Duration::ZERO).await;

    let lobster = engine().task(third::shop).start().await.unwrap();
    assert_eq!(lobster.run(third::shop, id).outcome().await.unwrap(), 350);
    let basket: third::Basket = lobster.state(id, "Basket").await.unwrap().unwrap();
    assert_eq!((*basket.cents, &basket.items[..]), (350, &["net".to_owned()][..]));
    let older = lobster.state::<first::Basket>(id, "Basket").await.err().expect("it was recorded in version 3");
    assert_eq!(older.kind(), ErrorKind::NewerVersion, "{older}");
    let view = lobster.show(id).await.unwrap();
    let members: Vec<&str> = view.states[0].members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!((view.states[0].version, members), (3, vec!["cents", "kept", "wares"]));
    stop(lobster).await;
}

/// What rounds leave to each other.
#[derive(State, Default)]
#[state(name = "rounds")]
struct Rounds {
    next: Field<u64>,
    sum: Field<u64>,
}

#[step(durable)]
async fn add(_ctx: &StepCtx, #[state] rounds: &mut Rounds, up_to: &u64) -> Result<Flow<u64>> {
    if *rounds.next > *up_to {
        return Ok(Flow::Done(*rounds.sum));
    }
    let next = *rounds.next;
    rounds.sum += next;
    rounds.next += 1;
    tokio::task::yield_now().await;
    Ok(Flow::Again)
}

#[step]
async fn count_down(_ctx: &StepCtx, #[state] rounds: &mut Rounds) -> Result<Flow> {
    rounds.next -= 1;
    Ok(if *rounds.next == 0 { Flow::Done(()) } else { Flow::Again })
}

#[task(steps = [add, count_down])]
async fn rounds(ctx: Ctx, up_to: u64) -> Result<u64> {
    let sum = ctx.repeat(|ctx| add(ctx, &up_to)).await?;
    ctx.repeat(count_down).await?;
    Ok(sum)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_is_repeated_until_its_state_says_that_it_is_done() {
    let lobster = engine().task(rounds).start().await.unwrap();
    let run = lobster.submit(rounds, 30).await.unwrap();
    assert_eq!(run.outcome().await.unwrap(), 465);
    let left: Rounds = lobster.state(run.id(), "rounds").await.unwrap().unwrap();
    assert_eq!((*left.next, *left.sum), (0, 465));
    let view = lobster.show(run.id()).await.unwrap();
    let steps: Vec<(&str, bool)> =
        view.steps.iter().map(|step| (step.name.as_str(), matches!(step.state, StepState::Done(_)))).collect();
    assert_eq!(steps, [("add#0", true), ("count_down#0", true)]);
    stop(lobster).await;
}

/// Seen values, in a state of any of them, and how many of the last are kept.
#[derive(State, Default)]
#[state(crate = "lobster_core")]
struct Seen<T, const N: usize>
where
    T: Default + Clone + PartialEq + Serialize + DeserializeOwned + Send + 'static,
{
    all: Log<T>,
    last: Field<Vec<T>>,
    newest: Scratch<Option<T>>,
}

#[step]
async fn see<T, const N: usize>(_ctx: &StepCtx, value: T, #[state] seen: &mut Seen<T, N>) -> Result<bool>
where
    T: Default + Clone + PartialEq + Serialize + DeserializeOwned + Send + 'static,
{
    if seen.all.contains(&value) {
        return Ok(true);
    }
    seen.all.push(value.clone());
    *seen.newest = Some(value);
    let from = seen.all.len().saturating_sub(N);
    let last = seen.all[from..].to_vec();
    seen.last.set(last);
    tokio::task::yield_now().await;
    Ok(false)
}

#[task(steps = [see])]
async fn seeing(ctx: Ctx) -> Result<Vec<bool>> {
    let mut seen = Vec::new();
    for word in ["a", "b", "a", "c"] {
        seen.push(see::<_, 2>(&ctx, word.to_owned()).await?);
    }
    Ok(seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn states_and_their_steps_can_be_generic() {
    let mut detached = tokio::task::JoinSet::new();
    detached.spawn(seeing(Ctx::detached(), ()));
    assert_eq!(detached.join_next().await.unwrap().unwrap().unwrap(), [false, false, true, false]);

    let lobster = engine().task(seeing).start().await.unwrap();
    let run = lobster.submit(seeing, ()).await.unwrap();
    assert_eq!(run.outcome().await.unwrap(), [false, false, true, false]);
    let seen: Seen<String, 2> = lobster.state(run.id(), "Seen").await.unwrap().unwrap();
    assert_eq!((&seen.all[..], &seen.last[..]), (&["a", "b", "c"].map(String::from)[..], &["b", "c"].map(String::from)[..]));
    stop(lobster).await;
}

/// Aliases, names that are words of the language, and names of what the macro writes.
type Kept<T> = Scratch<T>;

#[derive(State, Default)]
struct r#Awkward {
    r#type: Field<u32>,
    visit: Field<u32>,
    member: Kept<Vec<u32>>,
    #[state(rebuild = Vec::<u32>::from)]
    scratch: Kept<Vec<u32>>,
    #[cfg(any())]
    absent: Nothing,
}

impl From<&Awkward> for Vec<u32> {
    fn from(state: &Awkward) -> Self {
        vec![*state.visit, state.member.len().try_into().expect("it is empty")]
    }
}

#[step]
async fn awkward(
    ctx: &StepCtx,
    #[state] wanted: &mut Awkward,
    output: u32,
    #[state(name = output.to_string())] lease0: &mut Awkward,
    lease1: u32,
) -> Result<(u32, u32, Vec<u32>)> {
    assert_eq!(ctx.attempt(), 1);
    wanted.r#type += output;
    lease0.visit += lease1;
    wanted.member.push(1);
    Ok((*wanted.r#type, *lease0.visit, wanted.scratch.clone()))
}

#[tokio::test]
async fn names_of_the_author_do_not_meet_names_of_the_macro() {
    let ctx = Ctx::detached();
    assert_eq!(awkward(&ctx, 1, 2).await.unwrap(), (1, 2, vec![0, 0]));
    assert_eq!(awkward(&ctx, 1, 2).await.unwrap(), (2, 4, vec![0, 0]), "scratch stays while the run does");
}

#[test]
fn a_state_says_what_its_options_say() {
    fn members<S: State>() -> Vec<&'static str> {
        let mut names = Vec::new();
        S::default().members(&mut |name, _: &mut dyn Member| names.push(name));
        names
    }
    assert_eq!((Import::NAME, Import::VERSION, Import::MIGRATIONS.len()), ("Import", 1, 0));
    assert_eq!(members::<Import>(), ["source", "cursor", "accepted", "totals", "separator", "lines"]);
    assert_eq!(Rounds::NAME, "rounds");
    assert_eq!((Awkward::NAME, members::<Awkward>()), ("Awkward", vec!["type", "visit", "member", "scratch"]));
    let migrations = <versions::third::Basket as State>::MIGRATIONS;
    assert_eq!(migrations.iter().map(|migration| migration.from).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((versions::third::Basket::VERSION, members::<versions::third::Basket>()), (3, vec!["cents", "wares", "kept"]));
}

#[test]
fn a_spec_lists_the_types_of_the_states() {
    let states =
        |spec: lobster_core::expand::Spec| spec.states.iter().map(|state| (state.name, state.version)).collect::<Vec<_>>();
    assert_eq!(states(<page as StepInfo>::SPEC), [(Some("Import"), 1)]);
    let names = [None, Some("Total"), None, Some("totals.all")];
    assert_eq!(states(<move_all as StepInfo>::SPEC), names.map(|name| (name, 1)));
    assert_eq!(states(<see as StepInfo>::SPEC), [], "a type that depends on the call is in no list");
}

/// How a step is to end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum End {
    Well,
    Failed,
    Panicked,
    Late,
    Dropped,
    /// What it changed has no encoding.
    Unrecordable,
}

/// Two kinds of totals, one of which JSON has no keys for.
#[derive(State, Default)]
struct Ledger {
    opened: Base<String>,
    entries: Log<u32>,
    sums: Table<String, u32>,
    pairs: Field<BTreeMap<(u32, u32), u32>>,
    last: Field<Vec<u32>>,
    seen: Scratch<u32>,
}

#[step(retry(attempts = 1), timeout = 20ms)]
async fn enter(_ctx: &StepCtx, end: End, #[state] ledger: &mut Ledger, number: u32) -> Result<u32> {
    *ledger.seen += 1;
    if ledger.opened.get().is_none() {
        ledger.opened.set(format!("by {number}"))?;
    }
    ledger.entries.push(number);
    *ledger.sums.entry("all".into()).or_default() += number;
    if end != End::Well {
        ledger.entries.clear();
        ledger.sums.remove("all");
        ledger.sums.insert(format!("{end:?}"), number);
        *ledger.last = Vec::new();
    }
    ledger.last.push(number);
    match end {
        End::Well => Ok(*ledger.seen),
        End::Failed => Err("it failed".into()),
        End::Panicked => panic!("it panicked"),
        End::Late | End::Dropped => std::future::pending().await,
        End::Unrecordable => {
            ledger.pairs.insert((1, 2), 3);
            Ok(0)
        }
    }
}

/// One entry that stays, before and after each that does not.
#[task(steps = [enter])]
async fn bookkeeping(ctx: Ctx) -> Result<Vec<u32>> {
    let mut seen = Vec::new();
    let ends = [End::Failed, End::Panicked, End::Late, End::Dropped, End::Unrecordable];
    for (end, number) in ends.into_iter().zip(1..) {
        if end == End::Dropped {
            tokio::select! {
                biased;
                _ = enter(&ctx, end, 100) => unreachable!("it never ends"),
                () = std::future::ready(()) => {}
            }
        } else {
            enter(&ctx, end, 100).await.expect_err("it does not end well");
        }
        seen.push(enter(&ctx, End::Well, number).await?);
        seen.push(enter(&ctx, End::Well, number).await?);
    }
    Ok(seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_does_not_end_well_leaves_its_state_as_it_found_it() {
    let lobster = engine().task(bookkeeping).start().await.unwrap();
    let run = lobster.submit(bookkeeping, ()).await.unwrap();
    assert_eq!(run.outcome().await.unwrap(), [1, 2].repeat(5), "scratch is made anew after each of them");
    let ledger: Ledger = lobster.state(run.id(), Ledger::NAME).await.unwrap().unwrap();
    let numbers = [1, 1, 2, 2, 3, 3, 4, 4, 5, 5];
    assert_eq!((ledger.opened.as_str(), &ledger.entries[..], &ledger.last[..]), ("by 1", &numbers[..], &numbers[..]));
    assert_eq!((&*ledger.sums, ledger.pairs.len()), (&BTreeMap::from([("all".to_owned(), 30)]), 0));
    stop(lobster).await;
}

/// How many of these run now, and how many did at most.
static NOW: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

#[step(key = (name, number))]
async fn apart(_ctx: &StepCtx, name: &str, number: u64, #[state(name = name)] total: &mut Total) -> Result<u64> {
    let before = *total.cents;
    let running = NOW[0].fetch_add(1, Relaxed) + 1;
    NOW[1].fetch_max(running, Relaxed);
    tokio::task::yield_now().await;
    NOW[0].fetch_sub(1, Relaxed);
    total.cents.set(before * 10 + number);
    Ok(*total.cents)
}

#[step(retry(attempts = 1))]
async fn both(
    _ctx: &StepCtx,
    one: &str,
    other: &str,
    #[state(name = one)] a: &mut Total,
    #[state(name = other)] b: &mut Total,
) -> Result<()> {
    std::mem::swap(a, b);
    Ok(())
}

/// Returns the codes of what was refused.
#[task(steps = [apart, both])]
async fn side_by_side(ctx: Ctx) -> Result<Vec<String>> {
    let (x1, y1, x2, x3) = (apart(&ctx, "x", 1), apart(&ctx, "y", 4), apart(&ctx, "x", 2), apart(&ctx, "x", 3));
    let done = tokio::join!(x1, x2, y1, x3);
    assert_eq!((done.0?, done.1?, done.2?, done.3?), (1, 12, 4, 123));
    assert_eq!(NOW[1].load(Relaxed), 2, "another state does not wait");

    both(&ctx, "x", "y").await?;
    assert_eq!((apart(&ctx, "x", 0).await?, apart(&ctx, "y", 0).await?), (40, 1230));
    let refused = [both(&ctx, "x", "x").await, both(&ctx, "", "x").await];
    Ok(refused.into_iter().filter_map(|refused| Some(refused.err()?.code().to_owned())).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_have_a_state_one_after_the_other_in_the_order_of_their_calls() {
    let lobster = engine().task(side_by_side).start().await.unwrap();
    let run = lobster.submit(side_by_side, ()).await.unwrap();
    assert_eq!(run.outcome().await.unwrap(), ["SameName", "InvalidName"]);
    stop(lobster).await;
}

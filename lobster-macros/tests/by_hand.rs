//! The rule: what the macros write, a person can write, and a run cannot tell the difference.

#![deny(warnings, clippy::pedantic)]

use std::time::Duration;

use lobster_core::expand::{self, InDoubt, Migration, Named, Retry, Spec, StateType, Task, TaskOptions};
use lobster_core::{
    Base, BoxError, Ctx, Fate, Field, Flow, Lobster, Log, Member, Members, Result, Scratch, Settings, State, Step, StepCtx,
    StepFailed, Table, TaskRun,
};

/// Version 1 had no `cents`.
fn without_cents(members: &mut Members) -> std::result::Result<(), BoxError> {
    members.set_value("cents", &0_u64)
}

mod with_macros {
    use super::{Base, Ctx, Fate, Field, Flow, Log, Result, Scratch, State, StepCtx, Table, without_cents};
    use lobster_core::{step, task};

    #[derive(State, Default)]
    #[state(name = "till", version = 2, migrate(1 = without_cents))]
    pub struct Till {
        pub shop: Base<String>,
        pub cents: Field<u64>,
        pub sold: Log<u32>,
        #[state(rename = "by_card")]
        pub cards: Table<String, u32>,
        #[state(rebuild = last)]
        pub last: Scratch<Option<u32>>,
        pub count: Scratch<u32>,
    }

    pub fn last(till: &Till) -> Option<u32> {
        till.sold.last().copied()
    }

    #[step(durable)]
    pub async fn sell(
        _ctx: &StepCtx,
        card: String,
        #[state] till: &mut Till,
        up_to: u32,
        #[state(name = card)] own: &mut Till,
    ) -> Result<Flow<u32>> {
        let next = till.last.map_or(1, |last| last + 1);
        if next > up_to {
            return Ok(Flow::Done(*till.count));
        }
        if till.shop.get().is_none() {
            till.shop.set("lobster".into())?;
        }
        *till.last = Some(next);
        *till.count += 1;
        till.cents += u64::from(next);
        till.sold.push(next);
        own.cents += 1;
        *till.cards.entry(card).or_default() += next;
        Ok(Flow::Again)
    }

    #[step(retry(attempts = 2, first = 1ms), key = number)]
    pub async fn double(ctx: &StepCtx, number: &u32) -> Result<u32> {
        if ctx.attempt() == 1 { Err("again".into()) } else { Ok(number * 2) }
    }

    #[step(irreversible, in_doubt = probe(found))]
    pub async fn charge(ctx: &StepCtx, card: &str, cents: u32) -> Result<String> {
        if cents > 100 { Err("no answer".into()) } else { Ok(format!("{card} {cents} {}", ctx.attempt())) }
    }

    pub async fn found(_ctx: &StepCtx, card: &str, cents: &u32) -> Result<Fate<String>> {
        Ok(Fate::Happened(format!("{card} {cents} found")))
    }

    #[task(version = 2)]
    pub async fn checkout(ctx: Ctx, number: u32) -> Result<String> {
        let cents = double(&ctx, &number).await?;
        let sold = ctx.repeat(|ctx| sell(ctx, "visa".into(), 3)).await?;
        let one = charge(&ctx, "visa", cents).await?;
        Ok(format!("{sold}, {one}, {}", charge(&ctx, "visa", cents * 100).await?))
    }
}

mod by_hand {
    use super::with_macros::found;
    use super::{
        Base, Ctx, Field, Flow, InDoubt, Log, Member, Migration, Named, Result, Retry, Scratch, Spec, State, StateType, Step,
        StepCtx, StepFailed, Table, Task, TaskOptions, TaskRun, expand, without_cents,
    };

    #[derive(Default)]
    pub struct Till {
        shop: Base<String>,
        cents: Field<u64>,
        sold: Log<u32>,
        cards: Table<String, u32>,
        last: Scratch<Option<u32>>,
        count: Scratch<u32>,
    }

    impl State for Till {
        const NAME: &'static str = "till";
        const VERSION: u32 = 2;
        const MIGRATIONS: &'static [Migration] = &[Migration { from: 1, apply: without_cents }];
        fn members(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn Member)) {
            visit("shop", &mut self.shop);
            visit("cents", &mut self.cents);
            visit("sold", &mut self.sold);
            visit("by_card", &mut self.cards);
            visit("last", &mut self.last);
            visit("count", &mut self.count);
        }
        fn rebuild(&mut self) {
            if Scratch::is_empty(&self.last) {
                let last = self.sold.last().copied();
                Scratch::fill(&mut self.last, last);
            }
            self.count.fill_by_default();
        }
    }

    pub fn sell(ctx: &Ctx, card: String, up_to: u32) -> Step<impl Future<Output = Result<Flow<u32>, StepFailed>> + use<'_>> {
        const SPEC: Spec = Spec {
            name: "sell",
            site: "by_hand::sell",
            states: &[StateType::of::<Till>(), StateType::of::<Till>()],
            ..Spec::durable()
        };
        let call = expand::call(ctx, &SPEC, None);
        let wanted = (Named::<Till>::of_type(), Named::<Till>::new(&card));
        let body = move |_: &StepCtx, (mut till, mut own): expand::Leases<(Named<Till>, Named<Till>)>| {
            let card = card.clone();
            let sell = move || {
                let next = till.last.map_or(1, |last| last + 1);
                if next > up_to {
                    return (Ok(Flow::Done(*till.count)), (till, own));
                }
                if till.shop.get().is_none()
                    && let Err(error) = till.shop.set("lobster".into())
                {
                    return (Err(error), (till, own));
                }
                *till.last = Some(next);
                *till.count += 1;
                till.cents += u64::from(next);
                till.sold.push(next);
                own.cents += 1;
                *till.cards.entry(card).or_default() += next;
                (Ok(Flow::Again), (till, own))
            };
            async move { sell() }
        };
        Step::new(async move { expand::stateful(&call, wanted, body).await })
    }

    pub fn double<'a>(ctx: &'a Ctx, number: &'a u32) -> Step<impl Future<Output = Result<u32, StepFailed>> + use<'a>> {
        const SPEC: Spec = Spec {
            name: "double",
            site: "by_hand::double",
            retry: Retry { attempts: 2, first_ms: 1, ..Retry::DEFAULT },
            keyed: true,
            ..Spec::ordinary()
        };
        let call = expand::call(ctx, &SPEC, Some(expand::key(number)));
        Step::new(async move {
            expand::inline(&call, async |ctx| if ctx.attempt() == 1 { Err("again") } else { Ok(number * 2) }).await
        })
    }

    pub fn charge(ctx: &Ctx, card: &str, cents: u32) -> Step<impl Future<Output = Result<String, StepFailed>> + use<>> {
        const SPEC: Spec = Spec { name: "charge", site: "by_hand::charge", ..Spec::irreversible(InDoubt::Probe) };
        let call = expand::call(ctx, &SPEC, None);
        let (card, asked) = (card.to_owned(), card.to_owned());
        let probe = expand::probe(move |ctx| {
            let card = asked.clone();
            async move { found(&ctx, &card, &cents).await }
        });
        let body = move |ctx: StepCtx| {
            let card = card.clone();
            async move { if cents > 100 { Err("no answer") } else { Ok(format!("{card} {cents} {}", ctx.attempt())) } }
        };
        Step::new(expand::spawned(call, body, Some(probe)))
    }

    pub enum Checkout {}

    impl Task for Checkout {
        const NAME: &'static str = "checkout";
        const VERSION: u32 = 2;
        type Input = u32;
        type Output = String;
        fn options() -> TaskOptions {
            TaskOptions::default()
        }
    }

    pub fn checkout(ctx: Ctx, number: u32) -> TaskRun<Checkout, impl Future<Output = Result<String>>> {
        TaskRun::new(async move {
            let cents = double(&ctx, &number).await?;
            let sold = ctx.repeat(|ctx| sell(ctx, "visa".into(), 3)).await?;
            let one = charge(&ctx, "visa", cents).await?;
            Ok(format!("{sold}, {one}, {}", charge(&ctx, "visa", cents * 100).await?))
        })
    }
}

/// What is left of a run: its steps by name with what they gave, its states, and its outcome.
async fn recorded(lobster: Lobster, id: lobster_core::RunId) -> Vec<String> {
    let view = lobster.show(id).await.expect("the run is there");
    lobster.shutdown(Duration::from_secs(5)).await;
    let summary = format!("{:?} {:?}", view.summary.task, view.outcome);
    let steps = view.steps.iter().map(|step| format!("{} {:?} {}", step.name, step.state, step.attempts));
    steps.chain(view.states.iter().map(|state| format!("{state:?}"))).chain([summary]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_macros_and_a_run_by_hand_leave_the_same_records() {
    let start = || Lobster::open("memory:").settings(Settings::test());
    let lobster = start().task(with_macros::checkout).start().await.unwrap();
    let run = lobster.submit(with_macros::checkout, 21).await.unwrap();
    assert_eq!(run.outcome().await.unwrap(), "3, visa 42 1, visa 4200 found");
    let with_macros = recorded(lobster, run.id()).await;

    let lobster = start().task(by_hand::checkout).start().await.unwrap();
    let run = lobster.submit(by_hand::checkout, 21).await.unwrap();
    run.outcome().await.unwrap();
    assert_eq!(recorded(lobster, run.id()).await, with_macros);
    assert_eq!(with_macros.len(), 7, "{with_macros:?}");
    assert!(with_macros[0].starts_with("double[21] "), "{with_macros:?}");
}

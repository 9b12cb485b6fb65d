//! How calls are told apart, and what is refused (`docs/errors.md`, codes of the engine).

use lobster_core::{Ctx, Result, StepCtx, StepFailedKind, step, task};
use lobster_tests::{happen, happened, on_each, steered::Steered, until};
use std::{sync::Arc, time::Duration};

#[step]
async fn echo(_ctx: &StepCtx, text: String) -> Result<String> {
    Ok(text)
}

#[step(key = id)]
async fn keyed(_ctx: &StepCtx, id: u32, text: &str) -> Result<String> {
    Ok(format!("{id} {text}"))
}

#[step(irreversible, in_doubt = retry)]
async fn slow_charge(_ctx: &StepCtx, world: String) -> Result<u64> {
    let count = happen(&world, "charge");
    until(&world, "go", 1).await;
    Ok(count)
}

#[step(irreversible, in_doubt = retry, key = key)]
async fn keyed_charge(_ctx: &StepCtx, key: u32, world: String) -> Result<u64> {
    let count = happen(&world, format!("charge {key}"));
    until(&world, "go", 1).await;
    Ok(count)
}

on_each! {
    async fn a_key_used_twice_is_refused_with_both_values(place) {
        #[task]
        async fn twice(ctx: Ctx, _nothing: ()) -> Result<(String, String, String)> {
            let first = keyed(&ctx, 7, "one").await?;
            let failed = keyed(&ctx, 7, "two").await.unwrap_err();
            assert_eq!(failed.kind(), StepFailedKind::Refused);
            Ok((first, failed.code().to_owned(), failed.message().to_owned()))
        }
        let lobster = place.open().task(twice).start().await.unwrap();
        let (first, code, message) = lobster.submit(twice, ()).await.unwrap().outcome().await.unwrap();
        assert_eq!((first.as_str(), code.as_str()), ("7 one", "DuplicateStepKey"));
        assert!(message.contains("keyed[7]") && message.contains("7 one") && message.contains("key = (i, id)"), "{message}");
    }

    async fn two_functions_of_one_name_are_refused(place) {
        #[step(name = "same")]
        async fn one(_ctx: &StepCtx) -> Result<()> {
            Ok(())
        }
        #[step(name = "same")]
        async fn other(_ctx: &StepCtx) -> Result<()> {
            Ok(())
        }
        #[task]
        async fn confused(ctx: Ctx, _nothing: ()) -> Result<String> {
            one(&ctx).await?;
            let failed = other(&ctx).await.unwrap_err();
            Ok(format!("{}: {}", failed.code(), failed.message()))
        }
        #[task(steps = [one, other])]
        async fn listed(_ctx: Ctx, _nothing: ()) -> Result<()> {
            Ok(())
        }
        let lobster = place.open().task(confused).start().await.unwrap();
        let said = lobster.submit(confused, ()).await.unwrap().outcome().await.unwrap();
        assert!(said.starts_with("SameName: ") && said.contains("::one") && said.contains("::other") && said.contains("name ="), "{said}");
        // Listed steps are checked at start.
        let error = place.open().task(listed).start().await.unwrap_err();
        assert!(error.to_string().contains("both named `same`"), "{error}");
    }

    async fn a_step_called_inside_a_step_is_refused(place) {
        #[step]
        async fn outer(_ctx: &StepCtx, smuggled: Arc<Smuggled>) -> Result<String> {
            let failed = echo(&smuggled.0, "x".into()).await.unwrap_err();
            Ok(failed.code().to_owned())
        }
        struct Smuggled(Ctx);
        #[task]
        async fn smuggles(ctx: Ctx, _nothing: ()) -> Result<String> {
            let ctx = Arc::new(Smuggled(ctx));
            Ok(outer(&ctx.0, ctx.clone()).await?)
        }
        let lobster = place.open().task(smuggles).start().await.unwrap();
        assert_eq!(lobster.submit(smuggles, ()).await.unwrap().outcome().await.unwrap(), "StepInsideStep");
    }

    async fn a_step_polled_outside_of_its_body_is_refused(place) {
        #[task]
        async fn spawns(ctx: Ctx, _nothing: ()) -> Result<String> {
            let ctx = Arc::new(ctx);
            let elsewhere = tokio::spawn(async move { echo(&ctx, "x".into()).await });
            Ok(elsewhere.await?.unwrap_err().code().to_owned())
        }
        let lobster = place.open().task(spawns).start().await.unwrap();
        assert_eq!(lobster.submit(spawns, ()).await.unwrap().outcome().await.unwrap(), "StepOutsideBody");
    }

    async fn a_second_unkeyed_call_is_refused_while_the_first_was_dropped(place) {
        #[task]
        async fn drops(ctx: Ctx, world: String) -> Result<String> {
            tokio::select! {
                biased;
                _ = slow_charge(&ctx, world.clone()) => {}
                () = until(&world, "charge", 1) => {}
            }
            let failed = slow_charge(&ctx, world.clone()).await.unwrap_err();
            happen(&world, "go");
            Ok(format!("{}: {}", failed.code(), failed.message()))
        }
        let lobster = place.open().task(drops).start().await.unwrap();
        let world = format!("drops {}", place.url());
        let run = lobster.submit(drops, world.clone()).await.unwrap();
        let said = run.outcome().await.unwrap();
        assert!(said.starts_with("EarlierCallDropped: ") && said.contains("`key`"), "{said}");
        assert_eq!(happened(&world, "charge"), 1);
        // The dropped call was recorded before the run ended.
        let view = lobster.show(run.id()).await.unwrap();
        assert!(view.steps.iter().any(|step| step.name == "slow_charge#0" && step.state == lobster_core::StepState::Done("1".into())));
    }

    async fn with_a_key_the_second_call_attaches_to_the_first(place) {
        #[task]
        async fn attaches(ctx: Ctx, world: String) -> Result<u64> {
            tokio::select! {
                biased;
                _ = keyed_charge(&ctx, 1, world.clone()) => {}
                () = until(&world, "charge 1", 1) => {}
            }
            happen(&world, "go");
            Ok(keyed_charge(&ctx, 1, world.clone()).await?)
        }
        let lobster = place.open().task(attaches).start().await.unwrap();
        let world = format!("attaches {}", place.url());
        assert_eq!(lobster.submit(attaches, world.clone()).await.unwrap().outcome().await.unwrap(), 1);
        assert_eq!(happened(&world, "charge 1"), 1);
    }

    async fn a_call_dropped_before_its_intent_is_made_when_it_is_asked_for_again(place) {
        /// The body goes away: the engine's tasks go on.
        struct Frees(String);
        impl Drop for Frees {
            fn drop(&mut self) {
                happen(&self.0, Steered::FREE);
            }
        }
        #[task]
        async fn asks_again(ctx: Ctx, world: String) -> Result<u64> {
            let _frees = Frees(world.clone());
            let first_life = happen(&world, "life") == 1;
            if first_life {
                // The task that conducts the call does not begin.
                happen(&world, Steered::HOLD);
            }
            tokio::select! {
                biased;
                _ = keyed_charge(&ctx, 1, world.clone()) => {}
                () = std::future::ready(()) => {}
            }
            if first_life {
                happen(&world, "dropped");
                std::future::pending::<()>().await;
            }
            Ok(keyed_charge(&ctx, 1, world.clone()).await?)
        }
        let world = format!("asks again {}", place.url());
        happen(&world, "go");
        let lobster = place.open().host(Steered::new(&world)).task(asks_again).start().await.unwrap();
        let run = lobster.submit(asks_again, world.clone()).await.unwrap().id();
        until(&world, "dropped", 1).await;
        lobster.shutdown(Duration::ZERO).await;
        let lobster = place.open().task(asks_again).start().await.unwrap();
        let run = lobster.run(asks_again, run);
        let outcome = tokio::time::timeout(Duration::from_secs(60), run.outcome());
        assert_eq!(outcome.await.expect("the call is made").unwrap(), 1);
        assert_eq!((happened(&world, "charge 1"), happened(&world, "life")), (1, 2));
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn an_ordinary_step_that_was_dropped_is_not_recorded(place) {
        #[step]
        async fn never(_ctx: &StepCtx) -> Result<()> {
            std::future::pending().await
        }
        #[task]
        async fn drops(ctx: Ctx, _nothing: ()) -> Result<String> {
            tokio::select! {
                biased;
                _ = never(&ctx) => {}
                _ = echo(&ctx, "a".into()) => {}
            }
            Ok(echo(&ctx, "b".into()).await?)
        }
        let lobster = place.open().task(drops).start().await.unwrap();
        let run = lobster.submit(drops, ()).await.unwrap();
        assert_eq!(run.outcome().await.unwrap(), "b");
        let view = lobster.show(run.id()).await.unwrap();
        let names: Vec<_> = view.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["echo#0", "echo#1"]);
    }

    async fn blocks_that_a_select_drops_are_ambiguous(place) {
        #[step]
        async fn pick(_ctx: &StepCtx, world: String, n: u64) -> Result<u64> {
            if n == 2 {
                std::future::pending::<()>().await;
            }
            happen(&world, "picked");
            Ok(n)
        }
        #[task]
        async fn selects(ctx: Ctx, world: String) -> Result<u64> {
            let n = tokio::select! {
                n = async { pick(&ctx, world.clone(), 1).await } => n?,
                n = async { pick(&ctx, world.clone(), 2).await } => n?,
            };
            Ok(n)
        }
        let lobster = place.open().task(selects).start().await.unwrap();
        let mut refused = 0;
        for i in 0..20 {
            let world = format!("selects {i} {}", place.url());
            match lobster.submit(selects, world).await.unwrap().outcome().await {
                // The winner was polled before the other block made its call: nothing was ambiguous.
                Ok(n) => assert_eq!(n, 1),
                Err(failed) => {
                    assert!(failed.to_string().contains("ctx.race"), "{failed}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "blocks polled side by side must be refused");
    }

    async fn an_unkeyed_call_after_a_foreign_wake_is_ambiguous_while_another_is_open(place) {
        #[step]
        async fn waits(_ctx: &StepCtx, world: String) -> Result<()> {
            until(&world, "done", 1).await;
            Ok(())
        }
        #[task]
        async fn mixes(ctx: Ctx, world: String) -> Result<String> {
            let (_, said) = tokio::join!(waits(&ctx, world.clone()), async {
                // It wakes the body, and is not the engine.
                tokio::task::yield_now().await;
                let failed = echo(&ctx, "x".into()).await.unwrap_err();
                let fine = keyed(&ctx, 1, "y").await.unwrap();
                happen(&world, "done");
                format!("{} {fine}", failed.code())
            });
            Ok(said)
        }
        let lobster = place.open().task(mixes).start().await.unwrap();
        let world = format!("mixes {}", place.url());
        assert_eq!(lobster.submit(mixes, world).await.unwrap().outcome().await.unwrap(), "AmbiguousStep 1 y");
    }

    async fn calls_that_follow_from_one_poll_are_not_ambiguous_whatever_woke_it(place) {
        #[task]
        async fn joins(ctx: Ctx, _nothing: ()) -> Result<(String, String)> {
            // It wakes the body, and is not the engine.
            tokio::task::yield_now().await;
            let (a, b) = tokio::join!(
                async { echo(&ctx, "a".into()).await },
                async { echo(&ctx, "b".into()).await },
            );
            Ok((a?, b?))
        }
        let lobster = place.open().task(joins).start().await.unwrap();
        let outcome = lobster.submit(joins, ()).await.unwrap().outcome().await.unwrap();
        assert_eq!(outcome, ("a".to_owned(), "b".to_owned()));
    }

    async fn steps_side_by_side_keep_their_places(place) {
        #[step]
        async fn late(_ctx: &StepCtx, world: &str, n: u64) -> Result<u64> {
            // They end in this order, which is not the one in which they begin.
            let before = [9, 3, 1, 4, 2].iter().position(|other| *other == n).unwrap();
            until(world, "ended", before as u64).await;
            happen(world, "ended");
            Ok(n)
        }
        #[task]
        async fn joins(ctx: Ctx, world: String) -> Result<Vec<u64>> {
            let (a, b, c) = tokio::join!(
                async { late(&ctx, &world, late(&ctx, &world, 1).await? + 1).await },
                async { late(&ctx, &world, late(&ctx, &world, 3).await? + 1).await },
                late(&ctx, &world, 9),
            );
            Ok(vec![a?, b?, c?])
        }
        let lobster = place.open().task(joins).start().await.unwrap();
        let world = format!("side by side {}", place.url());
        assert_eq!(lobster.submit(joins, world).await.unwrap().outcome().await.unwrap(), [2, 4, 9]);
    }
}

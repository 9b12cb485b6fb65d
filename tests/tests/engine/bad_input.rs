//! Bad input and bad days: a clear, typed error, and nothing is lost.

use lobster_core::{Ctx, ErrorKind, Lobster, Reason, Result, RunFailed, RunState, StepCtx, StepFailedKind, step, task};
use lobster_store::contract::limits;
use lobster_tests::{happen, happened, on_each, until};
use std::collections::{BTreeMap, HashMap};

#[step]
async fn echo(_ctx: &StepCtx, text: String) -> Result<String> {
    Ok(text)
}

#[step(key = key)]
async fn keyed(_ctx: &StepCtx, key: &str) -> Result<usize> {
    Ok(key.len())
}

#[task]
async fn echoes(ctx: Ctx, text: String) -> Result<String> {
    Ok(echo(&ctx, text).await?)
}

#[task]
async fn keys(ctx: Ctx, key: String) -> Result<usize> {
    Ok(keyed(&ctx, &key).await?)
}

#[task]
async fn maps(_ctx: Ctx, map: HashMap<String, u32>) -> Result<usize> {
    Ok(map.len())
}

on_each! {
    async fn bad_keys_and_tags_are_refused_and_good_ones_kept(place) {
        let lobster = place.open().task(echoes).start().await.unwrap();
        let long = "x".repeat(limits::NAME_BYTES + 1);
        for bad in ["", "a\0b", "a\nb", "a\u{7f}", &long] {
            assert_eq!(lobster.submit(echoes, "a".into()).key(bad).await.unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
            assert_eq!(lobster.submit(echoes, "a".into()).tag(bad).await.unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
            assert_eq!(lobster.find(bad).await.unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        }
        let many = (0..=limits::TAGS).fold(lobster.submit(echoes, "a".into()), |submit, n| submit.tag(format!("{n}")));
        assert_eq!(many.await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(lobster.runs().count().await.unwrap(), 0, "nothing was written");
        let odd = "🦞 'quoted' \"twice\" -- %_\\ ; drop table";
        let longest = "x".repeat(limits::NAME_BYTES);
        for good in [odd, &longest] {
            let run = lobster.submit(echoes, good.into()).key(good).tag(good).await.unwrap();
            assert_eq!(run.outcome().await.unwrap(), good);
            assert_eq!(lobster.find(good).await.unwrap(), Some(run.id()));
            assert_eq!(lobster.runs().tag(good).list().await.unwrap()[0].key.as_deref(), Some(good));
        }
    }

    async fn bad_step_keys_are_refused_as_the_steps_error(place) {
        let lobster = place.open().task(keys).start().await.unwrap();
        for bad in ["".to_owned(), "a\0b".into(), "x".repeat(limits::NAME_BYTES + 1)] {
            let Err(RunFailed::Failed(failed)) = lobster.submit(keys, bad).await.unwrap().outcome().await else { panic!() };
            assert_eq!((failed.kind(), failed.code()), (StepFailedKind::Refused, "InvalidName"));
        }
        assert_eq!(lobster.submit(keys, "🦞".into()).await.unwrap().outcome().await.unwrap(), 4);
    }

    async fn a_payload_over_the_limit_is_refused_before_any_write(place) {
        #[step]
        async fn large(_ctx: &StepCtx, bytes: usize) -> Result<String> {
            Ok("x".repeat(bytes))
        }
        #[task]
        async fn grows(ctx: Ctx, bytes: usize) -> Result<usize> {
            Ok(large(&ctx, bytes).await?.len())
        }
        #[task]
        async fn outgrows(_ctx: Ctx, bytes: usize) -> Result<String> {
            Ok("x".repeat(bytes))
        }
        let lobster = place.open().task(echoes).task(grows).task(outgrows).start().await.unwrap();
        let error = lobster.submit(echoes, "x".repeat(limits::PAYLOAD_BYTES)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert_eq!(lobster.runs().count().await.unwrap(), 0);
        let run = lobster.submit(grows, limits::PAYLOAD_BYTES).await.unwrap();
        let Err(RunFailed::Failed(failed)) = run.outcome().await else { panic!() };
        assert_eq!(failed.kind(), StepFailedKind::Encoding);
        assert!(failed.message().contains("8388608"), "{failed}");
        let Err(RunFailed::Failed(failed)) = lobster.submit(outgrows, limits::PAYLOAD_BYTES).await.unwrap().outcome().await else { panic!() };
        assert_eq!(failed.kind(), StepFailedKind::Encoding);
        let fits = limits::PAYLOAD_BYTES - 2;
        assert_eq!(lobster.submit(grows, fits).await.unwrap().outcome().await.unwrap(), fits);
    }

    async fn a_task_that_no_node_knows_waits_with_its_reason(place) {
        let lobster = place.open().task(echoes).start().await.unwrap();
        let run = lobster.submit(keys, "a".into()).await.unwrap();
        assert_eq!(lobster.why_not_running(run.id()).await.unwrap(), Some(Reason::NoNode { task: "keys".into(), version: 1 }));
        // Others go on meanwhile, and it is never claimed.
        assert_eq!(lobster.submit(echoes, "x".into()).await.unwrap().outcome().await.unwrap(), "x");
        let row = &lobster.runs().task("keys").list().await.unwrap()[0];
        assert_eq!((row.state, row.epoch, row.attempts), (RunState::Ready, 0, 0));
    }

    async fn an_older_version_does_not_execute_newer_runs(place) {
        mod newer {
            use super::*;
            #[task(version = 2)]
            pub async fn echoes(_ctx: Ctx, text: String) -> Result<String> {
                Ok(text)
            }
        }
        let lobster = place.open().task(echoes).start().await.unwrap();
        let run = lobster.submit(newer::echoes, "a".into()).await.unwrap();
        assert_eq!(lobster.why_not_running(run.id()).await.unwrap(), Some(Reason::NoNode { task: "echoes".into(), version: 2 }));
    }

    async fn the_same_map_in_any_order_is_the_same_input(place) {
        let lobster = place.open().task(maps).start().await.unwrap();
        // Two maps with the same entries iterate in different orders.
        let map = || (0..100u32).map(|n| (format!("k{n}"), n)).collect::<HashMap<_, _>>();
        let run = lobster.submit(maps, map()).key("m").await.unwrap();
        for _ in 0..5 {
            assert_eq!(lobster.submit(maps, map()).key("m").await.unwrap().id(), run.id());
        }
        let mut other = map();
        other.insert("k0".into(), 7);
        assert_eq!(lobster.submit(maps, other).key("m").await.unwrap_err().kind(), ErrorKind::Conflict);
    }

    async fn the_original_error_of_a_serializer_is_shown(place) {
        #[step]
        async fn tuples(_ctx: &StepCtx) -> Result<BTreeMap<(u32, u32), u32>> {
            Ok(BTreeMap::from([((1, 2), 3)]))
        }
        #[task]
        async fn fails(ctx: Ctx, _nothing: ()) -> Result<usize> {
            Ok(tuples(&ctx).await?.len())
        }
        let lobster = place.open().task(fails).start().await.unwrap();
        let Err(RunFailed::Failed(failed)) = lobster.submit(fails, ()).await.unwrap().outcome().await else { panic!() };
        assert_eq!((failed.kind(), failed.attempts()), (StepFailedKind::Encoding, 1));
        assert!(failed.message().contains("key must be a string"), "{failed}");
    }

    async fn a_result_that_does_not_decode_is_the_steps_error(place) {
        #[derive(serde::Serialize)]
        struct OneWay;
        impl<'de> serde::Deserialize<'de> for OneWay {
            fn deserialize<D: serde::Deserializer<'de>>(_deserializer: D) -> std::result::Result<Self, D::Error> {
                Err(serde::de::Error::custom("a one-way value"))
            }
        }
        #[step]
        async fn one_way(_ctx: &StepCtx) -> Result<OneWay> {
            Ok(OneWay)
        }
        #[task]
        async fn fails(ctx: Ctx, _nothing: ()) -> Result<()> {
            one_way(&ctx).await?;
            Ok(())
        }
        let lobster = place.open().task(fails).start().await.unwrap();
        let Err(RunFailed::Failed(failed)) = lobster.submit(fails, ()).await.unwrap().outcome().await else { panic!() };
        assert_eq!(failed.kind(), StepFailedKind::Encoding);
        assert!(failed.message().contains("a one-way value"), "{failed}");
    }

    async fn a_serializer_that_panics_is_the_steps_error(place) {
        #[derive(serde::Deserialize)]
        struct Panics;
        impl serde::Serialize for Panics {
            fn serialize<S: serde::Serializer>(&self, _serializer: S) -> std::result::Result<S::Ok, S::Error> {
                panic!("in a serializer")
            }
        }
        #[step(retry(attempts = 1))]
        async fn panics(_ctx: &StepCtx) -> Result<Panics> {
            Ok(Panics)
        }
        #[task]
        async fn fails(ctx: Ctx, _nothing: ()) -> Result<()> {
            panics(&ctx).await?;
            Ok(())
        }
        let lobster = place.open().task(fails).start().await.unwrap();
        let Err(RunFailed::Failed(failed)) = lobster.submit(fails, ()).await.unwrap().outcome().await else { panic!() };
        assert_eq!(failed.kind(), StepFailedKind::Panic);
    }

    async fn a_blocking_call_in_a_step_keeps_the_lease_alive(place) {
        #[step]
        async fn blocks(ctx: &StepCtx, world: String) -> Result<u64> {
            happen(&world, "blocks");
            // Longer than the TTL of these settings.
            std::thread::sleep(std::time::Duration::from_millis(1_500));
            Ok(ctx.fencing_token())
        }
        #[task]
        async fn blocking(ctx: Ctx, world: String) -> Result<u64> {
            blocks(&ctx, world).await?;
            Ok(charged(&ctx).await?)
        }
        #[step(irreversible, in_doubt = hold)]
        async fn charged(ctx: &StepCtx) -> Result<u64> {
            Ok(ctx.fencing_token())
        }
        let lobster = place.open().task(blocking).start().await.unwrap();
        let world = format!("blocks {}", place.url());
        assert_eq!(lobster.submit(blocking, world.clone()).await.unwrap().outcome().await.unwrap(), 1);
        assert_eq!(happened(&world, "blocks"), 1);
    }

    async fn a_select_that_drops_a_step_goes_on(place) {
        #[step]
        async fn never(_ctx: &StepCtx, world: String) -> Result<()> {
            happen(&world, "begun");
            std::future::pending().await
        }
        #[task]
        async fn drops(ctx: Ctx, world: String) -> Result<String> {
            tokio::select! {
                biased;
                _ = never(&ctx, world.clone()) => {}
                () = until(&world, "begun", 1) => {}
            }
            Ok(echo(&ctx, "went on".into()).await?)
        }
        let lobster = place.open().task(drops).start().await.unwrap();
        let world = format!("select {}", place.url());
        assert_eq!(lobster.submit(drops, world).await.unwrap().outcome().await.unwrap(), "went on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn urls_and_settings_that_cannot_work_are_refused() {
    for url in ["", "sqlite://", "postgres://user:secret@host/db", "nonsense"] {
        let error = Lobster::open(url).start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let mut settings = lobster_core::Settings::test();
    settings.run.executing = 0;
    let error = Lobster::open("memory:").settings(settings).start().await.unwrap_err();
    assert!(error.to_string().contains("run.executing > 0"), "{error}");
}

#[test]
fn opening_outside_of_a_runtime_is_an_error() {
    let mut opening = std::pin::pin!(Lobster::open("memory:").start());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = std::future::Future::poll(opening.as_mut(), &mut cx) else { panic!() };
    assert!(error.to_string().contains("tokio runtime"), "{error}");
}

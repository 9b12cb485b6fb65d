//! Several nodes on one store: shared work, names, take-over at once from a dead process, after the TTL from a silent one.

use lobster_core::{Ctx, ErrorKind, Result, RunFailed, Settings, StepCtx, step, task};
use lobster_store::contract::{Evidence, Incarnation, NewNode, NodeState, Peer, Revoked};
use lobster_tests::{Place, all, happen, happened, on_each, on_shared, steered::Heard, tiers, until};
use std::time::Duration;
use uuid::Uuid;

#[step(durable)]
async fn note(ctx: &StepCtx, world: String, n: u32) -> Result<u64> {
    happen(&world, format!("note {n}"));
    Ok(ctx.fencing_token())
}

#[step]
async fn stay(ctx: &StepCtx, world: String) -> Result<u64> {
    let begun = happen(&world, "stay");
    if begun == 1 {
        std::future::pending::<()>().await;
    }
    Ok(ctx.fencing_token())
}

#[task]
async fn stays(ctx: Ctx, world: String) -> Result<(u64, u64)> {
    let first = note(&ctx, world.clone(), 0).await?;
    Ok((first, stay(&ctx, world).await?))
}

#[task]
async fn noted(ctx: Ctx, input: (String, u32)) -> Result<u64> {
    let (world, n) = input;
    Ok(note(&ctx, world, n).await?)
}

on_each! {
    async fn a_node_that_was_revoked_joins_anew_under_its_name(place) {
        let world = format!("anew {}", place.url());
        let lobster = place.open().node("harbour").task(noted).start().await.unwrap();
        let members = tiers(&place).await.members;
        let mut over = Vec::new();
        for _ in 0..3 {
            // The one that lives now; it may beat before it is revoked.
            loop {
                let peers = members.peers().await.unwrap();
                let lives = |peer: &&Peer| peer.state == NodeState::Active && !over.contains(&peer.incarnation);
                let Some(peer) = peers.iter().find(lives) else { continue };
                assert_eq!(peer.name, "harbour");
                let evidence = Evidence::Silence { beat: peer.beat, age: Duration::ZERO };
                if matches!(members.revoke(peer.incarnation, evidence).await.unwrap(), Revoked::Failed { .. }) {
                    over.push(peer.incarnation);
                    break;
                }
            }
        }
        lobster.submit(noted, (world.clone(), 1)).await.unwrap().outcome().await.unwrap();
        assert_eq!(happened(&world, "note 1"), 1);
        lobster.shutdown(Duration::from_secs(5)).await;
        // And so does its successor, at once.
        place.open().node("harbour").task(noted).start().await.unwrap().shutdown(Duration::from_secs(5)).await;
    }

    async fn two_nodes_share_the_work_of_one_store(place) {
        let world = format!("shared {}", place.url());
        let one = place.open().task(noted).start().await.unwrap();
        let other = place.open().task(noted).start().await.unwrap();
        assert_ne!(one.node(), other.node());
        let runs = (0..200).map(|n| (format!("n-{n}").into(), (world.clone(), n)));
        for run in one.submit_all(noted, runs).await.unwrap() {
            assert_eq!(run.outcome().await.unwrap(), 1);
        }
        assert!(all(&world).values().all(|count| *count == 1) && all(&world).len() == 200);
        one.shutdown(Duration::from_secs(5)).await;
        other.shutdown(Duration::from_secs(5)).await;
    }
    async fn a_cancel_of_another_process_is_heard_of(place) {
        let world = format!("asked to end {}", place.url());
        let mut settings = Settings::test();
        // Longer than its test: whoever hears of anything was told of it.
        settings.run.poll = Duration::from_secs(3600);
        let lobster = place.open().settings(settings).task(stays).start().await.unwrap();
        let run = lobster.submit(stays, world.clone()).await.unwrap();
        until(&world, "stay", 1).await;
        place.open().connect().await.unwrap().cancel(run.id()).await.unwrap();
        assert!(matches!(run.outcome().await, Err(RunFailed::Cancelled(_))));
        lobster.shutdown(Duration::from_secs(5)).await;
    }
    async fn a_live_namesake_is_refused_with_a_clear_error(place) {
        let one = place.open().node("till-1").start().await.unwrap();
        let error = place.open().node("till-1").start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("till-1"), "{error}");
        one.shutdown(Duration::from_secs(5)).await;
        let again = place.open().node("till-1").start().await.unwrap();
        assert_eq!(again.node(), "till-1");
        again.shutdown(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn a_node_of_a_large_cluster_renews_less_often() {
    let (world, place) = ("a crowd", Place::memory());
    let mut settings = Settings::test();
    (settings.lease.ttl, settings.lease.self_fence) = (Duration::from_secs(120), Duration::from_secs(60));
    let node = place.open().settings(settings).host(Heard::new(world)).start().await.unwrap();
    let tiers = tiers(&place).await;
    for n in 1..1775 {
        let (incarnation, ttl) = (Incarnation(Uuid::from_u128(n)), Duration::from_secs(120));
        tiers.members.join(NewNode { incarnation, name: None, tasks: Vec::new(), slots: 1, ttl }).await.unwrap();
    }
    // At 50 a second 1775 nodes renew every 35.5 s, a tenth more or less. Nothing else waits for so long.
    while !(31..40).any(|s| happened(world, &format!("waits {s} s")) > 0) {
        tokio::task::yield_now().await;
    }
    node.shutdown(Duration::from_secs(5)).await;
}

on_shared! {
    fn the_runs_of_an_engine_whose_runtime_is_gone_go_on_elsewhere(store) {
        let place = store();
        let world = format!("gone {}", place.url());
        let first = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let run = first.block_on(async {
            let lobster = place.open().task(stays).start().await.unwrap();
            let run = lobster.submit(stays, world.clone()).await.unwrap();
            until(&world, "stay", 1).await;
            run.id()
        });
        // Dropped with everything on it; nobody said goodbye.
        first.shutdown_background();
        let second = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let outcome = second.block_on(async {
            let lobster = place.open().task(stays).start().await.unwrap();
            lobster.run(stays, run).outcome().await.unwrap()
        });
        assert_eq!(outcome, (1, 2), "what was recorded is not run again, what was not is run under the next epoch");
        assert_eq!((happened(&world, "note 0"), happened(&world, "stay")), (1, 2));
    }
}

#[step]
async fn hogs(ctx: &StepCtx, world: String) -> Result<u64> {
    happen(&world, "hogs");
    // Longer than the TTL of these settings, without ever giving the thread back.
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(1_800) {
        std::hint::spin_loop();
    }
    Ok(ctx.fencing_token())
}

#[step(irreversible, in_doubt = hold)]
async fn charge(ctx: &StepCtx) -> Result<u64> {
    Ok(ctx.fencing_token())
}

#[task]
async fn hogging(ctx: Ctx, world: String) -> Result<(u64, u64)> {
    let hogged = hogs(&ctx, world).await?;
    Ok((hogged, charge(&ctx).await?))
}

on_shared! {
    fn a_step_that_never_gives_its_thread_back_loses_no_lease(store) {
        let place = store();
        let world = format!("hogs {}", place.url());
        // One thread for everything: only the lease has one of its own.
        let hogged = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (sent, run) = std::sync::mpsc::channel();
        let url = place.url().to_owned();
        let its_world = world.clone();
        let thread = std::thread::spawn(move || {
            hogged.block_on(async {
                let lobster =
                    lobster_core::Lobster::open(&url).settings(lobster_core::Settings::test()).task(hogging).start().await.unwrap();
                let run = lobster.submit(hogging, its_world).await.unwrap();
                sent.send(run.id()).unwrap();
                let outcome = run.outcome().await.unwrap();
                lobster.shutdown(Duration::from_secs(5)).await;
                outcome
            })
        });
        let run = run.recv().unwrap();
        let other = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let seen = other.block_on(async {
            until(&world, "hogs", 1).await;
            // It would take over whatever it may.
            let lobster = place.open().task(hogging).start().await.unwrap();
            let outcome = lobster.run(hogging, run).outcome().await.unwrap();
            lobster.shutdown(Duration::from_secs(5)).await;
            outcome
        });
        assert_eq!((seen, thread.join().unwrap()), ((1, 1), (1, 1)));
        assert_eq!(happened(&world, "hogs"), 1);
    }
}

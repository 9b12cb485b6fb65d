//! A run that keeps killing its process: alone after three deaths, quarantined after five; the others go on.

use lobster_core::{Ctx, Reason, Result, RunFailed, RunId, RunState, Settings, StepCtx, step, task};
use lobster_store::{
    Tiers,
    contract::{Claim, Evidence, Incarnation, NewNode, Revoked, TaskVersion, Wall},
};
use lobster_tests::{Place, eventually, happen, happened, on_each, on_shared, tiers, until, world::World};
use std::{
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
    time::Duration,
};
use uuid::Uuid;

/// Executes a run that kills its process in this way, among others, until it is quarantined, after so many deaths; returns why.
fn poison(place: &Place, way: &str, deaths: usize) -> String {
    let world = World::default();
    let address = world.listen().to_string();
    let mut lives = Vec::new();
    loop {
        let before = world.events().len();
        let worker = Command::new(env!("CARGO_BIN_EXE_worker"))
            .args([place.url(), &address, "poison", way])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let status = worker.unwrap().wait().unwrap();
        lives.push(world.events()[before..].to_vec());
        if status.success() {
            break;
        }
        assert_eq!(status.signal(), Some(6), "it aborted");
        assert!(lives.len() < 10, "it was never quarantined");
    }
    let died = lives.iter().filter(|life| life.iter().any(|event| event.step == "deadly#0")).count();
    assert_eq!(died, deaths);
    // From the fourth death on nothing else was under way.
    for life in lives.iter().take(deaths).skip(3) {
        let death = life.iter().position(|event| event.step == "deadly#0").unwrap();
        let said = |what: &str| life[..death].iter().filter(|event| event.what == what && event.step != "deadly#0").count();
        assert_eq!(said("body"), said("end"), "{life:?}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = place.open().connect().await.unwrap();
        for run in client.runs().list().await.unwrap().iter().filter(|run| run.task.task == "neighbour") {
            assert_eq!((run.state, run.deaths), (RunState::Succeeded, 0), "the others are blamed for nothing: {run:?}");
        }
        let killer = client.find("killer").await.unwrap().unwrap();
        let view = client.show(killer).await.unwrap();
        assert_eq!(view.summary.state, RunState::Quarantined);
        view.outcome.unwrap().unwrap_err()
    })
}

on_shared! {
    fn a_run_that_kills_its_process_is_executed_alone_and_then_quarantined(store) {
        let why = poison(&store(), "step", 5);
        assert!(why.contains("died 5 times"), "{why}");
    }
    fn so_is_one_whose_input_kills_whoever_decodes_it(store) {
        poison(&store(), "input", 5);
    }
    fn so_is_one_whose_probe_kills_its_process(store) {
        poison(&store(), "probe", 5);
    }
    fn so_is_one_whose_destructors_kill_its_process(store) {
        poison(&store(), "destructor", 5);
    }
    fn a_task_may_be_given_up_after_fewer_claims_without_a_result(store) {
        let why = poison(&store(), "few", 2);
        assert!(why.contains("claimed 3 times without a new result (the limit is 2)"), "{why}");
    }
}

#[step(durable)]
async fn go_on(_ctx: &StepCtx, world: &str, what: &str) -> Result<()> {
    happen(world, format!("begins {what}"));
    until(world, &format!("go {what}"), 1).await;
    Ok(())
}

#[task]
async fn patient(ctx: Ctx, input: (String, String)) -> Result<()> {
    let (world, what) = input;
    go_on(&ctx, &world, &what).await?;
    Ok(go_on(&ctx, &world, &format!("{what} again")).await?)
}

#[task]
async fn quick(_ctx: Ctx, n: u32) -> Result<u32> {
    Ok(n)
}

#[step(retry(attempts = 100, first = 300ms, cap = 300ms))]
async fn come_back(_ctx: &StepCtx) -> Result<()> {
    Err("come back later")?
}

#[task]
async fn comes_back(ctx: Ctx, _nothing: ()) -> Result<()> {
    Ok(come_back(&ctx).await?)
}

/// A node claims the run, and dies while it polls it.
async fn die_in(tiers: &Tiers, node: u128, run: RunId, alone: bool) {
    let (incarnation, ttl) = (Incarnation(Uuid::from_u128(node)), Duration::from_secs(60));
    let tasks = vec![TaskVersion { task: "patient".into(), version: 1 }];
    tiers.members.join(NewNode { incarnation, name: None, tasks: tasks.clone(), slots: 1, ttl }).await.unwrap();
    // The clock of a server may be a little ahead: due is what it says.
    let now = Wall(i64::MAX / 2);
    let claim = Claim { incarnation, tasks, limit: 1, alone, now };
    assert_eq!(tiers.journal.claim(claim).await.unwrap().iter().map(|grant| grant.run).collect::<Vec<_>>(), [run]);
    tiers.members.note(incarnation, 0, Some(run));
    let silence = Evidence::Silence { beat: 0, age: Duration::ZERO };
    assert_eq!(tiers.members.revoke(incarnation, silence).await.unwrap(), Revoked::Failed { suspects: vec![run] });
}

on_each! {
    async fn a_suspect_that_waits_for_room_keeps_nobody_else_waiting(place) {
        let (tiers, world) = (tiers(&place).await, format!("suspected {}", place.url()));
        let client = place.open().connect().await.unwrap();
        let input = |what: &str| (world.clone(), what.to_owned());
        let doomed = client.submit(patient, input("doomed")).await.unwrap();
        for n in 1..=5 {
            die_in(&tiers, n, doomed.id(), n > 3).await;
        }
        let suspect = client.submit(patient, input("suspect")).await.unwrap();
        for n in 6..=8 {
            die_in(&tiers, n, suspect.id(), false).await;
        }
        assert!(matches!(client.why_not_running(suspect.id()).await.unwrap(), Some(Reason::OwnerGone)));
        let long = client.submit(patient, input("long")).await.unwrap();
        let lobster = place.open().task(patient).task(quick).start().await.unwrap();
        // The other one executes, and goes on executing: the suspect is put off.
        until(&world, "begins long", 1).await;
        assert!(matches!(doomed.outcome().await, Err(RunFailed::Quarantined(_))), "that takes no room");
        let why = eventually(&tiers, async || match client.why_not_running(suspect.id()).await.unwrap() {
            Some(Reason::Until { why, .. }) => Some(why),
            _ => None,
        });
        let why = why.await;
        assert!(why.contains("died 3 times") && why.contains("executes nothing else"), "{why}");
        assert_eq!(lobster.submit(quick, 1).await.unwrap().outcome().await.unwrap(), 1);
        assert_eq!(happened(&world, "begins suspect"), 0);

        happen(&world, "go long");
        happen(&world, "go long again");
        long.outcome().await.unwrap();
        // Now it has its turn, alone.
        until(&world, "begins suspect", 1).await;
        let waits = lobster.submit(quick, 2).await.unwrap();
        // A result clears it: others go on beside it.
        happen(&world, "go suspect");
        until(&world, "begins suspect again", 1).await;
        assert_eq!(waits.outcome().await.unwrap(), 2);
        happen(&world, "go suspect again");
        suspect.outcome().await.unwrap();
        lobster.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_run_that_is_claimed_again_and_again_is_quarantined(place) {
        let mut settings = Settings::test();
        settings.run.claims_max = 3;
        let lobster = place.open().settings(settings).task(comes_back).start().await.unwrap();
        // It leaves memory after each attempt.
        let run = lobster.submit(comes_back, ()).await.unwrap();
        match run.outcome().await {
            Err(RunFailed::Quarantined(why)) => assert!(why.contains("claimed 4 times in all (the limit is 3)"), "{why}"),
            other => panic!("{other:?}"),
        }
        lobster.shutdown(Duration::from_secs(5)).await;
    }
}

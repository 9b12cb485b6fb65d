//! Claim: who gets which run, in which order, under which epoch.

use crate::{
    conformance::build::{Build, offer, outcome},
    conformance::world::{HOUR, World, task},
    contract::{Claim, Grant, NewRun, RunState},
};
use std::time::Duration;

pub async fn a_claim_grants_a_ready_run(world: World) {
    let node = world.node().await;
    let run = world.create(NewRun { task: task("work", 1), ..world.new_run() }).await;
    let grant = node.claim_one().await;
    let (tail, mark, deaths, cancel, wake) = (0, 0, 0, false, grant.wake);
    assert_eq!(grant, Grant { run, epoch: 1, tail, mark, task: task("work", 1), attempts: 1, deaths, cancel, wake, doubt: None });
    let row = world.row(run).await;
    assert_eq!((row.state, row.owner, row.epoch, row.attempts), (RunState::Running, Some(node.incarnation), 1, 1));
}

pub async fn the_oldest_due_time_is_granted_first(world: World) {
    let node = world.node().await;
    let mut runs = Vec::new();
    for seconds in [3, 9, 1, 7, 5] {
        let due = world.ago(Duration::from_secs(seconds));
        runs.push((due, world.create(NewRun { due, ..world.new_run() }).await));
    }
    runs.sort_unstable();
    for (_, run) in runs {
        let grants = node.claim_as(Claim { limit: 1, ..node.asks() }).await;
        assert_eq!(grants.iter().map(|grant| grant.run).collect::<Vec<_>>(), [run]);
    }
}

pub async fn grants_of_one_claim_come_with_the_oldest_due_time_first(world: World) {
    let node = world.node().await;
    let mut runs = Vec::new();
    for seconds in [3, 9, 1, 7, 5] {
        let due = world.ago(Duration::from_secs(seconds));
        runs.push((due, world.create(NewRun { due, ..world.new_run() }).await));
    }
    runs.sort_unstable();
    assert_eq!(node.claimed().await, runs.into_iter().map(|(_, run)| run).collect::<Vec<_>>());
}

pub async fn runs_of_one_due_time_are_granted_in_the_order_of_their_ids(world: World) {
    let node = world.node().await;
    let due = world.ago(Duration::from_secs(1));
    let mut runs: Vec<_> = (0..5).map(|_| NewRun { due, ..world.new_run() }).collect();
    runs.swap(1, 3);
    let mut ids: Vec<_> = runs.iter().map(|run| run.id).collect();
    world.tiers.journal.submit(runs).await.expect("a submit is answered");
    ids.sort_unstable();
    assert_eq!(node.claimed().await, ids);
}

pub async fn a_run_is_not_granted_before_its_due_time(world: World) {
    let node = world.node().await;
    world.create(NewRun { due: world.in_an_hour(), ..world.new_run() }).await;
    let due = world.create(NewRun { due: world.now(), ..world.new_run() }).await;
    assert_eq!(node.claimed().await, [due]);
}

pub async fn a_run_is_granted_once_its_due_time_has_come(world: World) {
    let node = world.node().await;
    let run = world.create(NewRun { due: world.in_an_hour(), ..world.new_run() }).await;
    world.advance(HOUR - Duration::from_millis(1)).await;
    assert_eq!(node.claimed().await, []);
    world.advance(Duration::from_millis(1)).await;
    assert_eq!(node.claimed().await, [run]);
}

pub async fn a_claim_takes_no_more_than_its_limit(world: World) {
    let node = world.node().await;
    for _ in 0..5 {
        world.created().await;
    }
    for (limit, granted) in [(0, 0), (2, 2), (2, 2), (2, 1), (2, 0)] {
        assert_eq!(node.claim_as(Claim { limit, ..node.asks() }).await.len(), granted);
    }
}

pub async fn a_claim_gets_only_the_tasks_it_asks_for(world: World) {
    let node = world.node().await;
    let other = world.create(NewRun { task: task("other", 1), ..world.new_run() }).await;
    let work = world.created().await;
    assert_eq!(node.claim_as(Claim { tasks: Vec::new(), ..node.asks() }).await, []);
    assert_eq!(node.claim_as(Claim { tasks: vec![task("wor", 9), task("work2", 9)], ..node.asks() }).await, []);
    assert_eq!(node.claimed().await, [work]);
    let both = Claim { tasks: vec![task("work", 1), task("other", 1)], ..node.asks() };
    assert_eq!(node.claim_as(both).await[0].run, other);
}

pub async fn a_run_of_a_newer_version_is_not_granted_to_an_older_one(world: World) {
    let node = world.node().await;
    let mut runs = Vec::new();
    for version in [1, 2, 3] {
        runs.push(world.create(NewRun { task: task("work", version), ..world.new_run() }).await);
    }
    let asks = |version| Claim { tasks: vec![task("work", version)], ..node.asks() };
    assert_eq!(node.claim_as(asks(0)).await, []);
    let grants = node.claim_as(asks(2)).await;
    assert_eq!(grants.iter().map(|grant| (grant.run, grant.task.version)).collect::<Vec<_>>(), [(runs[0], 1), (runs[1], 2)]);
    assert_eq!(node.claim_as(asks(u32::MAX)).await[0].run, runs[2]);
}

pub async fn versions_are_compared_task_by_task(world: World) {
    let node = world.node().await;
    world.create(NewRun { task: task("a", 2), ..world.new_run() }).await;
    let granted = world.create(NewRun { task: task("b", 2), ..world.new_run() }).await;
    let grants = node.claim_as(Claim { tasks: vec![task("a", 1), task("b", 2)], ..node.asks() }).await;
    assert_eq!(grants.iter().map(|grant| grant.run).collect::<Vec<_>>(), [granted]);
}

pub async fn a_running_run_is_not_granted_again(world: World) {
    let (node, other) = (world.node().await, world.node().await);
    world.granted(&node).await;
    assert_eq!(other.claim().await, []);
    assert_eq!(node.claim().await, []);
}

pub async fn held_and_ended_runs_are_not_granted(world: World) {
    let node = world.node().await;
    for state in RunState::ALL.into_iter().filter(|state| state.ended()) {
        world.ended(&node, state, world.now()).await;
    }
    let grant = world.granted(&node).await;
    assert!(node.append(offer(&grant).hold(grant.wake).synced(node.incarnation)).await.then);
    assert_eq!(node.claim().await, []);
}

pub async fn an_incarnation_that_never_joined_gets_nothing(world: World) {
    let node = world.node().await;
    let run = world.created().await;
    assert_eq!(node.claim_as(Claim { incarnation: world.incarnation(), ..node.asks() }).await, []);
    assert_eq!(node.claimed().await, [run]);
}

pub async fn a_failed_incarnation_gets_nothing(world: World) {
    let node = world.node().await;
    world.created().await;
    world.fail(&node).await;
    assert_eq!(node.claim().await, []);
}

pub async fn an_incarnation_that_left_gets_nothing(world: World) {
    let node = world.node().await;
    world.created().await;
    node.leave().await;
    assert_eq!(node.claim().await, []);
}

pub async fn a_run_of_a_failed_owner_is_granted_to_another(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    let grant = world.begun(&old, 3).await;
    world.fail(&old).await;
    let next = new.claim_one().await;
    assert_eq!((next.run, next.epoch), (grant.run, grant.epoch + 1));
    assert_eq!((next.tail, next.mark), (grant.tail, grant.mark));
    assert_eq!(world.row(grant.run).await.owner, Some(new.incarnation));
}

pub async fn a_run_of_an_owner_that_left_is_granted_to_another(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    let grant = world.begun(&old, 3).await;
    old.leave().await;
    let next = new.claim_one().await;
    assert_eq!((next.run, next.epoch, next.tail, next.mark), (grant.run, grant.epoch + 1, grant.tail, grant.mark));
}

pub async fn orphans_pass_the_same_filters(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    let run = world.create(NewRun { task: task("work", 2), ..world.new_run() }).await;
    old.claim_as(Claim { tasks: vec![task("work", 2)], ..old.asks() }).await;
    world.fail(&old).await;
    assert_eq!(new.claim().await, [], "a newer version");
    let asks = Claim { tasks: vec![task("work", 2)], ..new.asks() };
    assert_eq!(new.claim_as(Claim { alone: true, ..asks.clone() }).await, [], "not to be executed alone");
    assert_eq!(new.claim_as(Claim { limit: 0, ..asks.clone() }).await, [], "over the limit");
    assert_eq!(new.claim_as(asks).await[0].run, run);
}

pub async fn orphans_and_ready_runs_share_the_limit(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    for _ in 0..3 {
        world.created().await;
    }
    assert_eq!(old.claim().await.len(), 3);
    world.fail(&old).await;
    for _ in 0..3 {
        world.created().await;
    }
    for granted in [4, 2, 0] {
        assert_eq!(new.claim_as(Claim { limit: 4, ..new.asks() }).await.len(), granted);
    }
}

pub async fn each_claim_raises_the_epoch_and_counts_an_attempt(world: World) {
    let mut node = world.node().await;
    let run = world.created().await;
    for number in 1..=3 {
        let grant = node.claim_one().await;
        assert_eq!((grant.run, grant.epoch, grant.attempts), (run, u64::from(number), number));
        let next = world.node().await;
        node.leave().await;
        node = next;
    }
}

pub async fn a_grant_tells_of_a_cancel_asked_for_before(world: World) {
    let node = world.node().await;
    let grant = world.granted(&node).await;
    world.tiers.journal.cancel(grant.run, outcome(grant.run, "no"), world.now()).await.expect("a cancel is answered");
    node.append(offer(&grant).release().synced(node.incarnation)).await;
    let next = node.claim_one().await;
    assert!(next.cancel && next.wake > grant.wake);
}

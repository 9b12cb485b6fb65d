//! Reads: find, list, count, read, outcomes.

use crate::{
    conformance::build::{Build, offer, outcome, word},
    conformance::world::{HOUR, Node, World, task},
    contract::{Ended, NewRun, RunFilter, RunId, RunState},
};
use std::time::Duration;

async fn listed(world: &World, filter: RunFilter, limit: usize) -> Vec<RunId> {
    let rows = world.tiers.catalog.list(filter, limit).await.expect("a list is answered");
    rows.into_iter().map(|row| row.id).collect()
}

/// Asserts what a filter lists, and that it counts the same.
async fn assert_lists(world: &World, filter: RunFilter, runs: &[RunId]) {
    let count = world.tiers.catalog.count(filter.clone()).await.expect("a count is answered");
    assert_eq!(listed(world, filter.clone(), 100).await, runs, "by {filter:?}");
    assert_eq!(count, runs.len() as u64, "by {filter:?}");
}

async fn tagged(world: &World, name: &str, tags: &[&str]) -> RunId {
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    world.create(NewRun { tags, task: task(name, 1), ..world.new_run() }).await
}

/// One run in each state, in the order of [`RunState::ALL`].
async fn one_of_each(world: &World, node: &Node) -> Vec<RunId> {
    let mut runs = vec![world.create(NewRun { due: world.in_an_hour(), ..world.new_run() }).await];
    runs.push(world.granted(node).await.run);
    let held = world.granted(node).await;
    node.append(offer(&held).hold(held.wake).synced(node.incarnation)).await;
    runs.push(held.run);
    for state in RunState::ALL.into_iter().filter(|state| state.ended()) {
        runs.push(world.ended(node, state, world.now()).await);
    }
    runs
}

pub async fn a_key_is_found(world: World) {
    let run = world.create(world.keyed("order-1")).await;
    world.create(world.keyed("order-2")).await;
    assert_eq!(world.tiers.catalog.find("order-1").await.expect("a find is answered"), Some(run));
}

pub async fn an_unknown_key_is_not_found(world: World) {
    world.create(world.keyed("order-1")).await;
    world.created().await;
    for key in ["order-", "order-11", "", "%", "order-_"] {
        assert_eq!(world.tiers.catalog.find(key).await.expect("a find is answered"), None);
    }
}

pub async fn lists_are_in_the_order_of_ids(world: World) {
    let mut runs: Vec<_> = (0..6).map(|_| world.new_run()).collect();
    let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
    runs.reverse();
    world.tiers.journal.submit(runs).await.expect("a submit is answered");
    assert_lists(&world, RunFilter::default(), &ids).await;
}

pub async fn a_list_is_read_page_by_page(world: World) {
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(world.created().await);
    }
    let mut read = Vec::new();
    loop {
        let page = listed(&world, RunFilter { after: read.last().copied(), ..RunFilter::default() }, 3).await;
        assert!(page.len() <= 3);
        if page.is_empty() {
            break;
        }
        read.extend(page);
    }
    assert_eq!(read, ids);
    assert_eq!(listed(&world, RunFilter::default(), 0).await, []);
}

pub async fn a_list_by_task(world: World) {
    let (one, two) = (tagged(&world, "one", &[]).await, tagged(&world, "two", &[]).await);
    let by = |name: &str| RunFilter { task: Some(name.to_owned()), ..RunFilter::default() };
    assert_lists(&world, by("one"), &[one]).await;
    assert_lists(&world, by("two"), &[two]).await;
    assert_lists(&world, by("ONE"), &[]).await;
}

pub async fn a_list_by_state(world: World) {
    let node = world.node().await;
    let runs = one_of_each(&world, &node).await;
    let by = |states: &[RunState]| RunFilter { states: states.to_vec(), ..RunFilter::default() };
    for (state, run) in RunState::ALL.into_iter().zip(&runs) {
        assert_lists(&world, by(&[state]), &[*run]).await;
    }
    assert_lists(&world, by(&[RunState::Quarantined, RunState::Held]), &[runs[2], runs[6]]).await;
    assert_lists(&world, by(&[]), &runs).await;
}

pub async fn a_list_by_tags_wants_all_of_them(world: World) {
    let (none, a) = (tagged(&world, "t", &[]).await, tagged(&world, "t", &["a"]).await);
    let (ab, b) = (tagged(&world, "t", &["a", "b"]).await, tagged(&world, "t", &["b", "c"]).await);
    let by = |tags: &[&str]| RunFilter { tags: tags.iter().map(|tag| (*tag).to_owned()).collect(), ..RunFilter::default() };
    assert_lists(&world, by(&[]), &[none, a, ab, b]).await;
    assert_lists(&world, by(&["a"]), &[a, ab]).await;
    assert_lists(&world, by(&["b", "a"]), &[ab]).await;
    assert_lists(&world, by(&["a", "c"]), &[]).await;
    assert_lists(&world, by(&["A"]), &[]).await;
}

pub async fn a_list_since_a_moment(world: World) {
    let early = world.created().await;
    let moment = world.row(early).await.submitted;
    let by = |since| RunFilter { since: Some(since), ..RunFilter::default() };
    assert_lists(&world, by(moment), &[early]).await;
    assert_lists(&world, by(moment.plus(HOUR)), &[]).await;
    world.advance(Duration::from_millis(1)).await;
    let late = world.created().await;
    assert_lists(&world, by(moment), &[early, late]).await;
    assert_lists(&world, by(moment.plus(Duration::from_millis(1))), &[late]).await;
}

pub async fn filters_add_up(world: World) {
    let node = world.node().await;
    let run = tagged(&world, "work", &["a"]).await;
    tagged(&world, "other", &["a"]).await;
    tagged(&world, "work", &["b"]).await;
    let ended = tagged(&world, "work", &["a"]).await;
    world.tiers.journal.cancel(ended, outcome(ended, "no"), world.now()).await.expect("a cancel is answered");
    let filter = RunFilter {
        task: Some("work".to_owned()),
        states: vec![RunState::Ready, RunState::Running],
        tags: vec!["a".to_owned()],
        since: Some(world.ago(HOUR)),
        after: None,
    };
    assert_lists(&world, filter.clone(), &[run]).await;
    node.claim().await;
    assert_lists(&world, filter.clone(), &[run]).await;
    assert_lists(&world, RunFilter { after: Some(run), ..filter }, &[]).await;
}

pub async fn a_list_shows_each_row_as_a_read_does(world: World) {
    let node = world.node().await;
    let runs = one_of_each(&world, &node).await;
    let rows = world.tiers.catalog.list(RunFilter::default(), 100).await.expect("a list is answered");
    assert_eq!(rows.len(), runs.len());
    for row in rows {
        assert_eq!(row, world.row(row.id).await);
    }
}

pub async fn a_read_of_nothing_is_none(world: World) {
    world.created().await;
    assert_eq!(world.tiers.catalog.read(world.run_id()).await.expect("a read is answered"), None);
}

pub async fn a_read_shows_the_recording_while_the_run_goes_on(world: World) {
    let node = world.node().await;
    let grant = world.begun(&node, 2).await;
    let stored = world.read(grant.run).await;
    assert_eq!((stored.summary.tail, stored.recording.tail, stored.recording.mark), (2, 2, grant.mark));
    assert_eq!(stored.recording, node.recording(&grant).await);
    assert_eq!(stored.ended, None);
}

pub async fn outcomes_are_told_in_the_order_asked(world: World) {
    let node = world.node().await;
    let failed = world.ended(&node, RunState::Failed, world.now()).await;
    let ready = world.created().await;
    let cancelled = world.created().await;
    world.tiers.journal.cancel(cancelled, outcome(cancelled, "no"), world.now()).await.expect("a cancel is answered");
    let asked = [ready, cancelled, world.run_id(), failed, cancelled];
    let told = world.tiers.catalog.outcomes(&asked).await.expect("outcomes are answered");
    let told: Vec<_> = told
        .iter()
        .zip(asked)
        .map(|(told, run)| told.as_ref().map(|ended| ended.as_ref().map(|Ended { state, outcome }| (*state, word(run, outcome)))))
        .collect();
    let no = Some(Some((RunState::Cancelled, "no".to_owned())));
    assert_eq!(told, [Some(None), no.clone(), None, Some(Some((RunState::Failed, "finished".to_owned()))), no]);
}

pub async fn no_outcomes_are_told_to_who_asks_for_none(world: World) {
    assert_eq!(world.tiers.catalog.outcomes(&[]).await.expect("outcomes are answered"), []);
}

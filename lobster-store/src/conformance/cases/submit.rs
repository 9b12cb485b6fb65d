//! Submit: one run per key, whatever happened to the answer.

use crate::{
    conformance::World,
    conformance::world::{HOUR, task},
    contract::{NewRun, RunState, Submitted, limits},
};

pub async fn a_submitted_run_is_created_and_can_be_read(world: World) {
    let mut new = world.keyed("order-1");
    new.tags = vec!["big".to_owned(), "eu".to_owned()];
    world.create(new.clone()).await;
    let stored = world.read(new.id).await;
    let row = stored.summary;
    assert_eq!((row.id, row.key, row.digest), (new.id, new.key, new.digest));
    assert_eq!((row.task, row.tags, row.due), (new.task, new.tags, new.due));
    assert_eq!((row.state, row.owner, row.ended, row.cancel), (RunState::Ready, None, None, false));
    assert_eq!((row.epoch, row.tail, row.attempts, row.deaths), (0, 0, 0, 0));
    assert_eq!((row.reason.as_str(), stored.ended), ("", None));
    assert!(row.submitted.since(world.now()) < HOUR && world.now().since(row.submitted) < HOUR, "stamped with the present");
    assert_eq!(stored.recording.input, new.input);
    assert_eq!((stored.recording.deltas.len(), stored.recording.verdicts.len()), (0, 0));
    assert_eq!((stored.recording.tail, stored.recording.mark), (0, 0));
}

pub async fn a_run_without_a_key_is_always_new(world: World) {
    let (first, second) = (world.created().await, world.created().await);
    assert_ne!(first, second);
    assert_eq!(world.tiers.catalog.count(Default::default()).await.expect("a count is answered"), 2);
}

pub async fn the_same_key_finds_the_same_run(world: World) {
    let id = world.create(world.keyed("k")).await;
    assert_eq!(world.submit(world.keyed("k")).await, Submitted::Existing { id, same: true });
    let elsewhere = world.process().await;
    let answers = elsewhere.journal.submit(vec![world.keyed("k")]).await.expect("a submit is answered");
    assert_eq!(answers, [Submitted::Existing { id, same: true }]);
}

pub async fn the_same_key_with_another_input_is_not_the_same(world: World) {
    let id = world.create(world.keyed("k")).await;
    let other = NewRun { digest: [8; 32], ..world.keyed("k") };
    assert_eq!(world.submit(other).await, Submitted::Existing { id, same: false });
}

pub async fn the_same_key_of_another_task_is_not_the_same(world: World) {
    let id = world.create(world.keyed("k")).await;
    let other = NewRun { task: task("other", 1), ..world.keyed("k") };
    assert_eq!(world.submit(other).await, Submitted::Existing { id, same: false });
}

pub async fn the_same_key_from_another_version_of_the_task_is_the_same(world: World) {
    let id = world.create(world.keyed("k")).await;
    let newer = NewRun { task: task("work", 2), ..world.keyed("k") };
    assert_eq!(world.submit(newer).await, Submitted::Existing { id, same: true });
    assert_eq!(world.row(id).await.task.version, 1, "the version that submitted it stays");
}

pub async fn two_runs_of_one_key_in_one_call_are_one_run(world: World) {
    let first = world.keyed("k");
    let id = first.id;
    let second = NewRun { digest: [8; 32], ..world.keyed("k") };
    let runs = vec![first, world.keyed("k"), second];
    let answers = world.tiers.journal.submit(runs).await.expect("a submit is answered");
    let again = |same| Submitted::Existing { id, same };
    assert_eq!(answers, [Submitted::Created, again(true), again(false)]);
}

pub async fn the_same_id_offered_again_is_existing(world: World) {
    for run in [world.new_run(), world.keyed("k")] {
        let id = world.create(run.clone()).await;
        assert_eq!(world.submit(run.clone()).await, Submitted::Existing { id, same: true });
        assert_eq!(world.submit(NewRun { digest: [8; 32], ..run }).await, Submitted::Existing { id, same: false });
    }
    let run = world.new_run();
    let answers = world.tiers.journal.submit(vec![run.clone(), run.clone()]).await.expect("a submit is answered");
    assert_eq!(answers, [Submitted::Created, Submitted::Existing { id: run.id, same: true }]);
}

pub async fn submits_are_answered_in_their_order(world: World) {
    let old = world.create(world.keyed("old")).await;
    let runs = vec![world.new_run(), world.keyed("old"), world.keyed("new"), world.new_run()];
    let answers = world.tiers.journal.submit(runs).await.expect("a submit is answered");
    let again = Submitted::Existing { id: old, same: true };
    assert_eq!(answers, [Submitted::Created, again, Submitted::Created, Submitted::Created]);
}

pub async fn a_second_submit_changes_nothing(world: World) {
    let id = world.create(world.keyed("k")).await;
    let before = world.read(id).await;
    let other = NewRun { digest: [8; 32], tags: vec!["new".to_owned()], due: world.in_an_hour(), ..world.keyed("k") };
    let other_id = other.id;
    world.submit(other).await;
    assert_eq!(world.read(id).await, before);
    assert_eq!(world.tiers.catalog.read(other_id).await.expect("a read is answered"), None);
}

pub async fn the_key_of_an_ended_run_still_names_it(world: World) {
    let node = world.node().await;
    let id = world.create(world.keyed("k")).await;
    world
        .tiers
        .journal
        .cancel(id, crate::conformance::build::outcome(id, "no"), world.now())
        .await
        .expect("a cancel is answered");
    assert_eq!(world.submit(world.keyed("k")).await, Submitted::Existing { id, same: true });
    assert!(node.claimed().await.is_empty());
}

pub async fn keys_are_compared_byte_by_byte(world: World) {
    let keys = ["key", "KEY", "Key", " key", "key ", "", "kéy", "ke\u{301}y", "k\u{e9}y "];
    for key in keys {
        world.create(world.keyed(key)).await;
    }
    for key in keys {
        let found = world.tiers.catalog.find(key).await.expect("a find is answered").expect("the key was submitted");
        assert_eq!(world.row(found).await.key.as_deref(), Some(key));
    }
}

pub async fn an_empty_submit_is_answered_by_nothing(world: World) {
    assert_eq!(world.tiers.journal.submit(Vec::new()).await.expect("a submit is answered"), []);
}

pub async fn a_bulk_submit_creates_every_run(world: World) {
    let runs: Vec<_> = (0..limits::SUBMIT_RUNS).map(|number| world.keyed(&format!("bulk-{number}"))).collect();
    let answers = world.tiers.journal.submit(runs).await.expect("a submit is answered");
    assert_eq!(answers, vec![Submitted::Created; limits::SUBMIT_RUNS]);
    let count = world.tiers.catalog.count(Default::default()).await.expect("a count is answered");
    assert_eq!(count, limits::SUBMIT_RUNS as u64);
}

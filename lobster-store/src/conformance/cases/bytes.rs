//! Names and bodies as users make them: hostile, long, empty.

use crate::{
    conformance::build::{Build, input, offer},
    conformance::world::{World, task},
    contract::{
        Claim, NewNode, NewRun, RunFilter, RunState, Sealed, Submitted, Then, limits,
        record::{Ending, Kind, Outcome, Payload},
    },
};

/// Texts that have broken stores before.
const HOSTILE: [&str; 12] = [
    "🦞🦀 four bytes each",
    "line\nbreak\r\nand\ttab",
    "quote ' double \" back ` slash \\ percent % underscore _",
    "'; DROP TABLE runs; --",
    "$1 ? :name @p {0} ${HOME} $(id)",
    "\u{202e}right to left\u{200b}zero width",
    "e\u{301} is not é",
    " spaces around ",
    "null",
    "{\"json\": [1, 2, \"three\"]}",
    "a,b;c|d",
    "\u{1}\u{7f}\u{ffff}",
];

pub async fn hostile_keys_come_back_as_they_were(world: World) {
    for key in HOSTILE {
        let id = world.create(world.keyed(key)).await;
        assert_eq!(world.submit(world.keyed(key)).await, Submitted::Existing { id, same: true });
        assert_eq!(world.tiers.catalog.find(key).await.expect("a find is answered"), Some(id));
        assert_eq!(world.row(id).await.key.as_deref(), Some(key));
    }
}

pub async fn hostile_tags_come_back_as_they_were(world: World) {
    let mut tags = HOSTILE.map(str::to_owned).to_vec();
    tags.sort_unstable();
    let all = world.create(NewRun { tags: tags.clone(), ..world.new_run() }).await;
    assert_eq!(world.row(all).await.tags, tags);
    for tag in HOSTILE {
        let one = world.create(NewRun { tags: vec![tag.to_owned()], ..world.new_run() }).await;
        let filter = RunFilter { tags: vec![tag.to_owned()], ..RunFilter::default() };
        let found = world.tiers.catalog.list(filter, 10).await.expect("a list is answered");
        assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), [all, one]);
    }
}

pub async fn hostile_task_names_are_claimed_by_their_name(world: World) {
    let node = world.node().await;
    for name in HOSTILE {
        let run = world.create(NewRun { task: task(name, 1), ..world.new_run() }).await;
        let grants = node.claim_as(Claim { tasks: vec![task(name, 1)], ..node.asks() }).await;
        assert_eq!(grants.iter().map(|grant| (grant.run, &grant.task)).collect::<Vec<_>>(), [(run, &task(name, 1))]);
    }
}

pub async fn hostile_names_and_tasks_of_nodes_come_back_as_they_were(world: World) {
    let tasks: Vec<_> = HOSTILE.iter().map(|name| task(name, 1)).collect();
    for name in ["🦞", "it's \"anna\"", "-- anna", "../anna", "/dev/null", "a/b\\c", "."] {
        let node = world.join(NewNode { name: Some(name.to_owned()), tasks: tasks.clone(), ..world.new_node() }).await;
        let peers = world.tiers.members.peers().await.expect("peers are answered");
        let peer = peers.into_iter().find(|peer| peer.incarnation == node.incarnation).expect("the node has joined");
        assert_eq!((peer.name.as_str(), node.joined.name.as_str()), (name, name));
        let sorted = |mut tasks: Vec<_>| {
            tasks.sort_unstable();
            tasks
        };
        assert_eq!(sorted(peer.tasks), sorted(tasks.clone()));
    }
}

pub async fn hostile_reasons_come_back_as_they_were(world: World) {
    let node = world.node().await;
    for text in HOSTILE {
        let grant = world.granted(&node).await;
        let mut offer = offer(&grant);
        offer.then = Some(Then::Hold { reason: text.to_owned(), wake: grant.wake });
        node.append(offer.synced(node.incarnation)).await;
        assert_eq!(world.row(grant.run).await.reason, text);
    }
}

pub async fn names_at_their_limit_are_kept(world: World) {
    let long = "🦞".repeat(limits::NAME_BYTES / 4);
    let mut tags: Vec<_> = (0..limits::TAGS).map(|number| format!("{number:02}{}", &long[8..])).collect();
    tags.sort_unstable();
    let run = world.create(NewRun { tags: tags.clone(), task: task(&long, u32::MAX), ..world.keyed(&long) }).await;
    let row = world.row(run).await;
    assert_eq!((row.key.as_ref(), &row.task, &row.tags), (Some(&long), &task(&long, u32::MAX), &tags));
}

/// A megabyte in which no part is like another.
fn megabyte(seed: u32) -> Vec<u8> {
    let words = 0..(1 << 18);
    words.flat_map(|at: u32| at.wrapping_add(seed).wrapping_mul(0x9E37_79B9).to_le_bytes()).collect()
}

pub async fn a_megabyte_of_input_row_and_outcome_is_kept(world: World) {
    let node = world.node().await;
    let new = world.new_run();
    let new = NewRun { input: input(new.id, megabyte(1)), ..new };
    let run = world.create(new.clone()).await;
    let grant = node.claim_one().await;
    let payload = Payload { codec: 1, data: megabyte(3).into() };
    let outcome = Sealed::new(Kind::Outcome, run, &Outcome { ending: Some(Ending::Value(payload)) });
    let mut offer = offer(&grant).value(megabyte(2));
    let row = offer.rows[0].clone();
    offer.then = Some(Then::Finish { state: RunState::Succeeded, outcome: outcome.clone(), at: world.now() });
    assert!(node.append(offer.synced(node.incarnation)).await.then);
    let stored = world.read(run).await;
    assert_eq!(stored.recording.input, new.input);
    assert_eq!(Some(&stored.recording.deltas[0].sealed), row.deltas.as_ref());
    assert_eq!(stored.ended.map(|ended| ended.outcome), Some(outcome));
}

pub async fn empty_bodies_are_kept(world: World) {
    let node = world.node().await;
    let new = world.new_run();
    let empty = Sealed::new(Kind::Input, new.id, &crate::contract::record::Input::default());
    assert!(empty.body.is_empty());
    world.create(NewRun { input: empty.clone(), ..new }).await;
    let grant = node.claim_one().await;
    assert_eq!(node.recording(&grant).await.input, empty);
}

pub async fn a_checksum_with_its_highest_bit_set_is_kept(world: World) {
    let node = world.node().await;
    let mut grant = world.granted(&node).await;
    // Half of all checksums have it; a store with signed numbers only must bring them back all the same.
    let mut high = 0;
    while high < 8 {
        let seen = node.append(offer(&grant).results(1).relaxed(node.incarnation)).await;
        let stored = world.read(grant.run).await.recording;
        assert_eq!((stored.mark, stored.deltas.last().map(|row| row.sealed.crc)), (seen.mark, Some(seen.mark)));
        high += u32::from(seen.mark >> 31 == 1);
        (grant.tail, grant.mark) = (seen.tail, seen.mark);
    }
}

pub async fn digests_come_back_as_they_were(world: World) {
    for digest in [[0; 32], [0xff; 32], std::array::from_fn(|at| at as u8)] {
        let run = world.create(NewRun { digest, ..world.new_run() }).await;
        assert_eq!(world.row(run).await.digest, digest);
    }
}

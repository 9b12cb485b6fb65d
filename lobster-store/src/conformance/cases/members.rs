//! Nodes: names, beats, farewells.

use crate::{
    conformance::world::{HOUR, TTL, World, task, work},
    contract::{Beat, Evidence, Failed, Incarnation, NewNode, NodeState, Peer, Renewed, Revoked},
};
use std::time::Duration;

async fn peers(world: &World) -> Vec<Peer> {
    world.tiers.members.peers().await.expect("peers are answered")
}

async fn peer(world: &World, incarnation: Incarnation) -> Peer {
    peers(world).await.into_iter().find(|peer| peer.incarnation == incarnation).expect("the node has joined")
}

async fn silence(world: &World, incarnation: Incarnation, beat: u64, age: Duration) -> Revoked {
    let evidence = Evidence::Silence { beat, age };
    world.tiers.members.revoke(incarnation, evidence).await.expect("a revoke is answered")
}

const FAILED: Revoked = Revoked::Failed { suspects: Vec::new() };

pub async fn a_node_that_joined_is_seen_by_all(world: World) {
    assert_eq!(peers(&world).await, []);
    let tasks = vec![task("other", 3), work()];
    let node = world.join(NewNode { tasks: tasks.clone(), name: Some("anna".to_owned()), ..world.new_node() }).await;
    assert_eq!(node.joined.name, "anna");
    let peer = peer(&world, node.incarnation).await;
    let (mut found, state) = (peer.tasks.clone(), NodeState::Active);
    found.sort_unstable();
    assert_eq!((peer.name.as_str(), peer.state, found, peer.beat, peer.ttl), ("anna", state, tasks, 0, TTL));
    assert!(peer.age.is_some_and(|age| age < HOUR), "a beat of this boot: {peer:?}");
    assert_eq!(peers(&world).await.len(), 1);
}

pub async fn a_node_without_a_name_gets_one_of_its_own(world: World) {
    let (one, two) = (world.node().await, world.node().await);
    assert_ne!(one.joined.name, two.joined.name);
    assert!(!one.joined.name.is_empty());
    assert_eq!(one.joined.boot_id, two.joined.boot_id, "one host, one boot");
    assert_eq!(peer(&world, two.incarnation).await.name, two.joined.name);
}

pub async fn a_name_that_a_living_process_has_is_refused(world: World) {
    let named = || NewNode { name: Some("anna".to_owned()), ..world.new_node() };
    let anna = world.join(named()).await;
    let process = world.process().await;
    let refused = process.members.join(named()).await;
    assert!(matches!(refused, Err(Failed::Refused(_))), "{refused:?}");
    assert_eq!(peers(&world).await.len(), 1, "nothing was written");
    assert_eq!(anna.renew(1).await, Renewed::Good);
    world.join(NewNode { name: Some("Anna".to_owned()), ..world.new_node() }).await;
}

pub async fn a_name_is_free_after_a_farewell(world: World) {
    let named = || NewNode { name: Some("anna".to_owned()), ..world.new_node() };
    let first = world.join(named()).await;
    let slot = world.node().await;
    first.leave().await;
    slot.leave().await;
    assert_eq!(world.join(named()).await.joined.name, "anna");
    assert_eq!(world.node().await.joined.name, slot.joined.name, "and so is a slot");
}

pub async fn a_name_is_free_when_whoever_was_revoked_is_released(world: World) {
    let named = || NewNode { name: Some("anna".to_owned()), ..world.new_node() };
    let (first, slot) = (world.join(named()).await, world.node().await);
    for node in [&first, &slot] {
        assert_eq!(silence(&world, node.incarnation, 0, Duration::ZERO).await, FAILED);
        node.tiers.members.release(node.incarnation);
        node.tiers.members.release(node.incarnation);
    }
    assert_eq!(world.join(named()).await.joined.name, "anna");
    assert_eq!(world.node().await.joined.name, slot.joined.name, "and so is a slot");
    assert_eq!(peer(&world, first.incarnation).await.state, NodeState::Failed, "its row is left as it is");
}

pub async fn a_name_is_free_after_a_death(world: World) {
    let named = || NewNode { name: Some("anna".to_owned()), ..world.new_node() };
    let (first, slot) = (world.join(named()).await, world.node().await);
    let name = slot.joined.name.clone();
    world.kill(first).await;
    world.kill(slot).await;
    assert_eq!(world.join(named()).await.joined.name, "anna");
    assert_eq!(world.node().await.joined.name, name, "the next one takes its predecessor's slot");
}

pub async fn a_renewal_is_good(world: World) {
    let node = world.node().await;
    for seq in [1, 2, 3, 7] {
        assert_eq!(node.renew(seq).await, Renewed::Good, "attempts may have been lost between two that arrive");
        assert_eq!(peer(&world, node.incarnation).await.beat, seq);
    }
}

pub async fn a_renewal_after_a_lapse_is_good(world: World) {
    let node = world.node().await;
    assert_eq!(node.renew(1).await, Renewed::Good);
    let beat = Beat { seq: 2, at: node.boot(), lapsed: true };
    assert_eq!(node.tiers.members.renew(node.incarnation, beat).await.expect("a renewal is answered"), Renewed::Good);
    assert_eq!(peer(&world, node.incarnation).await.beat, 2);
}

pub async fn a_clone_is_stopped(world: World) {
    let node = world.node().await;
    assert_eq!(node.renew(1).await, Renewed::Good);
    assert_eq!(node.renew(2).await, Renewed::Good, "by its clone");
    assert_eq!(node.renew(2).await, Renewed::Revoked);
    assert_eq!(node.renew(1).await, Renewed::Revoked);
    assert_eq!(peer(&world, node.incarnation).await.beat, 2);
}

pub async fn an_incarnation_that_never_joined_renews_nothing(world: World) {
    let mut node = world.node().await;
    node.incarnation = world.incarnation();
    assert_eq!(node.renew(1).await, Renewed::Revoked);
}

pub async fn the_age_of_a_beat_is_counted_from_its_sending(world: World) {
    let node = world.node().await;
    world.advance(TTL).await;
    assert_eq!(peer(&world, node.incarnation).await.age, Some(TTL));
    node.renew(1).await;
    assert_eq!(peer(&world, node.incarnation).await.age, Some(Duration::ZERO));
    world.advance(HOUR).await;
    assert_eq!(peer(&world, node.incarnation).await.age, Some(HOUR));
}

pub async fn a_silent_node_is_revoked_with_both_keys(world: World) {
    let node = world.node().await;
    node.renew(1).await;
    world.advance(TTL).await;
    let longer = TTL + Duration::from_millis(1);
    assert_eq!(silence(&world, node.incarnation, 0, TTL).await, Revoked::Refused, "it beat since");
    assert_eq!(silence(&world, node.incarnation, 2, TTL).await, Revoked::Refused, "nobody saw such a beat");
    assert_eq!(silence(&world, node.incarnation, 1, longer).await, Revoked::Refused, "it is not old enough");
    assert_eq!(peer(&world, node.incarnation).await.state, NodeState::Active);
    assert_eq!(silence(&world, node.incarnation, 1, TTL).await, FAILED);
    assert_eq!(peer(&world, node.incarnation).await.state, NodeState::Failed);
}

pub async fn a_beat_in_time_saves_its_node(world: World) {
    let node = world.node().await;
    node.renew(1).await;
    world.advance(TTL).await;
    node.renew(2).await;
    assert_eq!(silence(&world, node.incarnation, 1, TTL).await, Revoked::Refused);
    assert_eq!(silence(&world, node.incarnation, 2, TTL).await, Revoked::Refused);
    assert_eq!(node.renew(3).await, Renewed::Good);
}

pub async fn a_living_process_is_not_revoked_as_dead(world: World) {
    let node = world.node().await;
    assert!(!world.tiers.members.proves_dead(node.incarnation));
    let answer = world.tiers.members.revoke(node.incarnation, Evidence::Death).await.expect("a revoke is answered");
    assert_eq!(answer, Revoked::Refused);
    assert_eq!(node.renew(1).await, Renewed::Good);
}

pub async fn a_dead_process_is_revoked_at_once(world: World) {
    let (dead, alive) = (world.node().await, world.node().await);
    let incarnation = dead.incarnation;
    world.kill(dead).await;
    let members = &alive.tiers.members;
    assert!(members.proves_dead(incarnation) && !members.proves_dead(alive.incarnation));
    assert_eq!(peer(&world, incarnation).await.state, NodeState::Active, "a proof is not yet a revoke");
    assert_eq!(members.revoke(incarnation, Evidence::Death).await.expect("a revoke is answered"), FAILED);
    assert_eq!(peer(&world, incarnation).await.state, NodeState::Failed);
}

pub async fn whoever_takes_the_slot_of_a_dead_process_lives(world: World) {
    let (dead, alive) = (world.node().await, world.node().await);
    let (incarnation, name) = (dead.incarnation, dead.joined.name.clone());
    world.kill(dead).await;
    let next = world.node().await;
    assert_eq!(next.joined.name, name);
    let members = &alive.tiers.members;
    assert!(!members.proves_dead(next.incarnation));
    // Whether the death can still be proved is the tier's business; proof and revoke agree on it.
    let proved = members.proves_dead(incarnation);
    let answer = members.revoke(incarnation, Evidence::Death).await.expect("a revoke is answered");
    assert_eq!(answer, if proved { FAILED } else { Revoked::Refused });
    assert_eq!(next.renew(1).await, Renewed::Good);
}

pub async fn nobody_can_prove_the_death_of_a_stranger(world: World) {
    let stranger = world.incarnation();
    assert!(!world.tiers.members.proves_dead(stranger));
    let answer = world.tiers.members.revoke(stranger, Evidence::Death).await.expect("a revoke is answered");
    assert_eq!(answer, Revoked::Refused);
    assert_eq!(silence(&world, stranger, 0, Duration::ZERO).await, Revoked::Refused);
}

pub async fn a_revoked_incarnation_never_renews(world: World) {
    let node = world.node().await;
    node.renew(1).await;
    world.revoke(node.incarnation, 1).await;
    for lapsed in [false, true] {
        let beat = Beat { seq: 9, at: node.boot(), lapsed };
        assert_eq!(node.tiers.members.renew(node.incarnation, beat).await.expect("a renewal is answered"), Renewed::Revoked);
    }
    assert_eq!(peer(&world, node.incarnation).await.state, NodeState::Failed);
}

pub async fn a_second_revoke_finds_the_first(world: World) {
    let node = world.node().await;
    world.fail(&node).await;
    assert!(matches!(silence(&world, node.incarnation, 8, HOUR).await, Revoked::Failed { .. }), "whatever its evidence");
    assert_eq!(peer(&world, node.incarnation).await.state, NodeState::Failed);
}

pub async fn a_node_that_left_is_left(world: World) {
    let node = world.node().await;
    node.leave().await;
    assert_eq!(peer(&world, node.incarnation).await.state, NodeState::Left);
    assert_eq!(node.renew(1).await, Renewed::Revoked);
    node.leave().await;
    assert_eq!(peer(&world, node.incarnation).await.state, NodeState::Left, "saying it twice changes nothing");
}

pub async fn a_failed_node_does_not_leave(world: World) {
    let node = world.node().await;
    world.fail(&node).await;
    node.leave().await;
    assert_eq!(peer(&world, node.incarnation).await.state, NodeState::Failed, "failed is final");
}

pub async fn a_new_incarnation_is_nobodys_heir(world: World) {
    let old = world.join(NewNode { name: Some("anna".to_owned()), ..world.new_node() }).await;
    world.granted(&old).await;
    old.leave().await;
    let new = world.join(NewNode { name: Some("anna".to_owned()), ..world.new_node() }).await;
    assert_eq!(world.tiers.journal.attend(new.incarnation).await.expect("an attend is answered"), []);
    assert_eq!(new.claim_one().await.epoch, 2, "it claims like anybody");
    assert_eq!(peers(&world).await.len(), 2);
}

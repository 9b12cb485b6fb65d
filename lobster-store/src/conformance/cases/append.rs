//! Append: the fence on the run's row, and the chain of its rows.

use crate::{
    conformance::build::{Build, offer},
    conformance::world::World,
    contract::Seen,
};

pub async fn a_displaced_holder_appends_nothing(world: World) {
    let (old, new) = (world.node().await, world.node().await);
    let grant = world.begun(&old, 2).await;
    world.fail(&old).await;
    let next = new.claim_one().await;
    assert_eq!((next.run, next.epoch, next.tail), (grant.run, grant.epoch + 1, 2));
    let Seen { rows, then, mine, tail, .. } = old.append(offer(&grant).results(1).release().synced(old.incarnation)).await;
    assert_eq!((rows, then, mine, tail), (0, false, false, 2));
    assert_eq!(world.seqs(grant.run).await, [1, 2]);
    let seen = new.append(offer(&next).results(1).synced(new.incarnation)).await;
    assert_eq!((seen.rows, seen.tail), (1, 3));
}

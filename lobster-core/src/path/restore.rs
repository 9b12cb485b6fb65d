//! Restore: the recordings of claimed runs become images. A fresh run restores an empty recording.
//!
//! Invariant: a recording is read after its claim committed, and one that cannot be trusted is never executed.

use crate::{
    engine::Shared,
    image::{Image, fold},
};
use lobster_store::contract::{Failed, Grant, Restored};

/// What a grant turned out to be.
pub(crate) enum Scene {
    /// Go on from here.
    Ready(Box<Image>),
    /// The run is somebody else's by now.
    Fenced,
    /// The recording cannot be trusted; why.
    Damaged(Failed),
}

/// Reads and checks the recordings of grants, in their order.
pub(crate) async fn restore(shared: &Shared, grants: &[Grant]) -> Result<Vec<Scene>, Failed> {
    let restored = shared.tiers.journal.restore(shared.member().incarnation, grants).await?;
    if restored.len() != grants.len() {
        return Err(Failed::Internal("the store answered another number of restores".into()));
    }
    Ok(grants
        .iter()
        .zip(restored)
        .map(|(grant, restored)| match restored {
            Restored::Fenced => Scene::Fenced,
            Restored::Recording(recording) => match fold(grant.run, &recording) {
                Ok(image) => Scene::Ready(Box::new(image)),
                Err(damage) => Scene::Damaged(damage),
            },
        })
        .collect())
}

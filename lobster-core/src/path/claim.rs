//! Claim: runs that are free, due or orphaned become this node's, each under a new epoch.
//!
//! Invariant: nothing is claimed after the self-fence, and every claim was counted before any user code runs.

use crate::engine::Shared;
use lobster_store::contract::{Claim, Grant};

/// Takes up to `limit` runs. `alone`: one of those that killed their process before.
pub(crate) async fn claim(shared: &Shared, limit: usize, alone: bool) -> Vec<Grant> {
    if limit == 0 || !shared.lease.good(shared.host.boot()) {
        return Vec::new();
    }
    let claim = Claim {
        incarnation: shared.member().incarnation,
        tasks: shared.registry.versions(),
        limit,
        alone,
        now: shared.host.wall(),
    };
    shared.point("P1");
    match shared.tiers.journal.claim(claim).await {
        Ok(grants) => grants,
        Err(error) => {
            tracing::warn!(%error, "a claim was not acknowledged");
            shared.look_for_strays();
            Vec::new()
        }
    }
}

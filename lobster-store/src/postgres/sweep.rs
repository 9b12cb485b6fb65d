//! Retention.
//!
//! Invariant: a run is removed with everything it has in one statement, and only after its end.

use super::{
    Postgres,
    sql::{Args, get},
};
use crate::contract::{Incarnation, Result, Wall};
use std::collections::HashSet;
use uuid::Uuid;

/// The oldest end is the first in its index. Asked whether there is any before a moment, a plan may read all runs to say no.
const LOOK: &str = "SELECT COALESCE((SELECT r.ended FROM @runs r WHERE r.ended IS NOT NULL ORDER BY r.ended, r.id LIMIT 1) < $1, false) \
                    OR EXISTS (SELECT 1 FROM @nodes WHERE state <> 0)";

/// Nodes that are over and own nothing go too. A run that such a node claims at this moment has an owner that nobody knows, and anybody
/// may take it. Rows are found by an array of ids: to a plan that does not know the limit, a join is worth reading whole tables.
const SWEEP: &str = "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', $1, true)),
gone AS MATERIALIZED (SELECT r.id FROM @runs r, how WHERE r.ended IS NOT NULL AND r.ended < $2 ORDER BY r.ended, r.id LIMIT $3
    FOR UPDATE OF r SKIP LOCKED),
d1 AS (DELETE FROM @deltas x WHERE x.run = ANY(ARRAY(SELECT id FROM gone))),
d2 AS (DELETE FROM @changes x WHERE x.run = ANY(ARRAY(SELECT id FROM gone))),
d3 AS (DELETE FROM @manifests x WHERE x.run = ANY(ARRAY(SELECT id FROM gone))),
d4 AS (DELETE FROM @parts x WHERE x.run = ANY(ARRAY(SELECT id FROM gone))),
d5 AS (DELETE FROM @inputs x WHERE x.run = ANY(ARRAY(SELECT id FROM gone))),
d6 AS (DELETE FROM @outcomes x WHERE x.run = ANY(ARRAY(SELECT id FROM gone))),
d7 AS (DELETE FROM @verdicts_in x WHERE x.run = ANY(ARRAY(SELECT id FROM gone))),
d8 AS (DELETE FROM @tags x WHERE x.run = ANY(ARRAY(SELECT id FROM gone))),
removed AS (DELETE FROM @runs r WHERE r.id = ANY(ARRAY(SELECT id FROM gone)) RETURNING 1),
idle AS MATERIALIZED (SELECT n.incarnation FROM @nodes n WHERE n.state <> 0
    AND NOT EXISTS (SELECT 1 FROM @runs r WHERE r.state = 1 AND r.owner = n.incarnation) FOR UPDATE OF n SKIP LOCKED),
n1 AS (DELETE FROM @node_tasks t USING idle WHERE t.incarnation = idle.incarnation),
n2 AS (DELETE FROM @nodes n USING idle WHERE n.incarnation = idle.incarnation)
SELECT count(*) FROM removed";

const ACTIVE: &str = "SELECT incarnation FROM @nodes WHERE state = 0";

impl Postgres {
    pub(super) async fn sweep_runs(&self, before: Wall, limit: usize) -> Result<usize> {
        let before = self.times.there(before);
        let rows = self.read(LOOK, || Args::default().with(before).done()).await?;
        let mut removed = 0;
        if rows.first().map_or(Ok(false), |row| get::<bool>(row, 0))? {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = self.write(SWEEP, || Args::default().with(self.synced).with(before).with(limit).done()).await?;
            removed = rows.first().map_or(Ok(0), |row| get::<i64>(row, 0))?;
        }
        self.tidy().await;
        self.end_frozen().await;
        Ok(usize::try_from(removed).unwrap_or(0))
    }

    /// Removes beat files of processes of this host that are gone.
    async fn tidy(&self) {
        let Some(local) = &self.local else { return };
        let found = local.found();
        if found.is_empty() {
            return;
        }
        let Ok(rows) = self.read(ACTIVE, || Args::default().done()).await else { return };
        let active: Result<HashSet<_>> = rows.iter().map(|row| get::<Uuid>(row, 0).map(Incarnation)).collect();
        if let Ok(active) = active {
            local.tidy(found, &active);
        }
    }
}

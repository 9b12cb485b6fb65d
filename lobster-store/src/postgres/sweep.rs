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

const LOOK: &str = "SELECT EXISTS (SELECT 1 FROM @runs WHERE ended IS NOT NULL AND ended < $1) \
                    OR EXISTS (SELECT 1 FROM @nodes WHERE state <> 0)";

/// Nodes that are over and own nothing go too. A run that such a node claims at this moment has an owner that nobody knows, and anybody
/// may take it.
const SWEEP: &str = "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', $1, true)),
gone AS MATERIALIZED (SELECT r.id FROM @runs r, how WHERE r.ended IS NOT NULL AND r.ended < $2 ORDER BY r.ended, r.id LIMIT $3
    FOR UPDATE OF r SKIP LOCKED),
d1 AS (DELETE FROM @deltas x USING gone WHERE x.run = gone.id),
d2 AS (DELETE FROM @changes x USING gone WHERE x.run = gone.id),
d3 AS (DELETE FROM @manifests x USING gone WHERE x.run = gone.id),
d4 AS (DELETE FROM @parts x USING gone WHERE x.run = gone.id),
d5 AS (DELETE FROM @inputs x USING gone WHERE x.run = gone.id),
d6 AS (DELETE FROM @outcomes x USING gone WHERE x.run = gone.id),
d7 AS (DELETE FROM @verdicts_in x USING gone WHERE x.run = gone.id),
d8 AS (DELETE FROM @tags x USING gone WHERE x.run = gone.id),
removed AS (DELETE FROM @runs r USING gone WHERE r.id = gone.id RETURNING 1),
idle AS MATERIALIZED (SELECT n.incarnation FROM @nodes n WHERE n.state <> 0
    AND NOT EXISTS (SELECT 1 FROM @runs r WHERE r.state = 1 AND r.owner = n.incarnation) FOR UPDATE OF n SKIP LOCKED),
n1 AS (DELETE FROM @node_tasks t USING idle WHERE t.incarnation = idle.incarnation),
n2 AS (DELETE FROM @nodes n USING idle WHERE n.incarnation = idle.incarnation)
SELECT count(*) FROM removed";

const ACTIVE: &str = "SELECT incarnation FROM @nodes WHERE state = 0";

impl Postgres {
    pub(super) async fn sweep_runs(&self, before: Wall, limit: usize) -> Result<usize> {
        let rows = self.read(LOOK, || Args::default().with(before.0).done()).await?;
        let mut removed = 0;
        if rows.first().map_or(Ok(false), |row| get::<bool>(row, 0))? {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = self.write(SWEEP, || Args::default().with(self.synced).with(before.0).with(limit).done()).await?;
            removed = rows.first().map_or(Ok(0), |row| get::<i64>(row, 0))?;
        }
        self.tidy().await;
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

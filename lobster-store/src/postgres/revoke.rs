//! Revoking an incarnation.
//!
//! Invariant: one statement locks the node's row, checks the evidence on it and fails it; a lock that proves a death is kept until that
//! statement committed.

use super::{
    Postgres,
    members::NodeRow,
    sql::{Args, get},
};
use crate::{
    contract::{Evidence, Incarnation, NodeState, Result, Revoked, RunId},
    local::{BeatFile, Proof},
};
use std::fs;
use uuid::Uuid;

/// How long a revoke waits for a renewal under way.
const LOCK: &str = "2s";

/// Runs whose rows somebody has locked keep their counters: no revoke waits for a batch of the node that it revokes.
const REVOKE: &str = "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', $1, true), set_config('lock_timeout', $2, true)),
node AS MATERIALIZED (SELECT n.incarnation, n.state, n.beat, n.beat_at, n.polling FROM @nodes n, how WHERE n.incarnation = $3
    FOR NO KEY UPDATE OF n),
shown AS MATERIALIZED (SELECT n.incarnation, COALESCE($7::uuid[], n.polling) AS polling FROM node n WHERE n.state = 0
    AND ($4 OR (n.beat = $5 AND clock_timestamp() - n.beat_at >= make_interval(secs => $6::float8)))),
stuck AS MATERIALIZED (SELECT r.id, r.id = ANY(shown.polling) AS suspect FROM @runs r, shown
    WHERE r.state = 1 AND r.owner = $3 AND r.attempts > 0 ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED),
blamed AS (UPDATE @runs r SET deaths = r.deaths + CASE WHEN stuck.suspect THEN 1 ELSE 0 END,
    attempts = r.attempts - CASE WHEN stuck.suspect THEN 0 ELSE 1 END FROM stuck
    WHERE r.id = stuck.id AND r.id = ANY(ARRAY(SELECT id FROM stuck))),
failed AS (UPDATE @nodes n SET state = 2 FROM shown WHERE n.incarnation = shown.incarnation)
SELECT (SELECT state FROM node), EXISTS (SELECT 1 FROM shown), ARRAY(SELECT id FROM stuck WHERE suspect ORDER BY id)";

/// What processes of revoked nodes left open: one that froze between sending a statement and its end, or within a transaction, holds the
/// rows of its runs for as long as the server lets it. Whatever moves on within a second is none of that; a sweep looks again. A process
/// that was revoked and has joined anew is left alone.
const TERMINATE: &str = "
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
    AND a.application_name IN (SELECT n.connections FROM @nodes n WHERE n.state = 2)
    AND a.application_name NOT IN (SELECT n.connections FROM @nodes n WHERE n.state = 0)
    AND a.application_name <> $1 AND a.state <> 'idle' AND a.state_change < clock_timestamp() - interval '1s'";

/// Behind a pooler a session may have the pooler's name. What tells it then is that it still locks a run of a revoked node, a TTL after it
/// began to: a locked row names the transaction, `pg_locks` its session. A row that several have locked names them in another way, by a
/// number that could be anybody's: whoever is ended has a lock on the table too. People have roles of their own.
const TERMINATE_LOCKERS: &str = "
SELECT pg_terminate_backend(a.pid) FROM @nodes n JOIN @runs r ON r.state = 1 AND r.owner = n.incarnation
    JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = r.xmax AND l.mode = 'ExclusiveLock' AND l.granted
    JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE n.state = 2 AND a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid()
    AND a.xact_start < clock_timestamp() - make_interval(secs => n.ttl_ms / 1000.0)
    AND a.state_change < clock_timestamp() - interval '1s' AND EXISTS (SELECT 1 FROM pg_locks t
        WHERE t.pid = l.pid AND t.locktype = 'relation' AND t.relation = '@runs'::regclass AND t.granted)";

impl Postgres {
    pub(super) async fn revoke_node(&self, incarnation: Incarnation, evidence: Evidence) -> Result<Revoked> {
        let Some(node) = self.node(incarnation).await? else { return Ok(Revoked::Refused) };
        let proof = match evidence {
            Evidence::Death => match self.prove(&node) {
                Some(proof) => Some(proof),
                None => return Ok(over(node.peer.state)),
            },
            Evidence::Silence { .. } => None,
        };
        let (beat, age) = match evidence {
            Evidence::Death => (0, 0.0),
            Evidence::Silence { beat, age } => (beat, age.as_secs_f64()),
        };
        let noted = self.noted(&node, proof.as_ref()).map(|runs| runs.iter().map(|run| run.0).collect::<Vec<_>>());
        let args = || {
            let args = Args::default().with(self.synced).with(LOCK).with(incarnation.0).with(proof.is_some());
            args.with(beat.cast_signed()).with(age).with(noted.as_deref()).done()
        };
        let rows = self.write(REVOKE, args).await?;
        let Some(row) = rows.first() else { return Ok(Revoked::Refused) };
        if !get::<bool>(row, 1)? {
            return match get::<Option<i16>>(row, 0)? {
                None => Ok(Revoked::Refused),
                Some(_) => Ok(over(super::sql::get_node_state(row, 0)?)),
            };
        }
        let suspects = get::<Vec<Uuid>>(row, 2)?.into_iter().map(RunId).collect();
        self.close(&node, proof).await;
        self.stir();
        Ok(Revoked::Failed { suspects })
    }

    fn prove(&self, node: &NodeRow) -> Option<Proof> {
        let papers = node.papers.as_ref()?;
        (node.peer.state == NodeState::Active).then_some(())?;
        self.local.as_ref()?.prove(node.peer.incarnation, papers)
    }

    /// Runs that were being polled, as its file says it to this host. `None`: as its last beat says.
    fn noted(&self, node: &NodeRow, proof: Option<&Proof>) -> Option<Vec<RunId>> {
        match proof {
            Some(Proof::Locked(file)) => Some(file.notes(node.slots)),
            Some(Proof::Rebooted) => Some(Vec::new()),
            None => self.beat_file(node).map(|file| file.notes(node.slots)),
        }
    }

    fn beat_file(&self, node: &NodeRow) -> Option<BeatFile> {
        Some(self.local.as_ref()?.header(node.peer.incarnation, node.papers.as_ref()?.place)?.0)
    }

    /// After the commit: the file of a process that is gone goes; connections of one that may live are ended.
    async fn close(&self, node: &NodeRow, proof: Option<Proof>) {
        if let (Some(_), Some(local)) = (&proof, &self.local) {
            fs::remove_file(local.beat_path(node.peer.incarnation)).ok();
        }
        self.end_frozen().await;
    }

    /// Ends what revoked nodes left open.
    pub(super) async fn end_frozen(&self) {
        let named = self.read(TERMINATE, || Args::default().with(self.connections.as_str()).done()).await;
        let lockers = match self.options.pooled || self.options.has_direct {
            true => self.read(TERMINATE_LOCKERS, || Args::default().done()).await,
            false => Ok(Vec::new()),
        };
        for error in [named, lockers].into_iter().filter_map(Result::err) {
            tracing::warn!(%error, "the connections of revoked nodes could not be ended");
        }
    }
}

/// The answer where there was nothing to revoke.
fn over(state: NodeState) -> Revoked {
    match state {
        NodeState::Failed => Revoked::Failed { suspects: Vec::new() },
        NodeState::Active | NodeState::Left => Revoked::Refused,
    }
}

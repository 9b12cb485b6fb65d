//! The members of the PostgreSQL tier: a row says whether a node may own runs and when it last beat.
//!
//! Invariant: nobody but renewal and revocation touches a node's row between its join and its farewell.

use super::{
    Postgres,
    newest::Newest,
    options::Options,
    pool::Pool,
    promoted::{TIMELINE, UNTOLD},
    schema,
    sql::{Args, get, get_node_state, get_u32, get_u64},
    times::SERVER_MS,
};
use crate::{
    contract::{
        Beat, Boot, Clock, Evidence, Failed, Incarnation, Joined, Members, NewNode, NodeState, Peer, Renewed, Result, Revoked,
        RunId, TaskVersion,
    },
    local::{Held, Host, Papers, Place},
};
use async_trait::async_trait;
use sqlx::postgres::PgRow;
use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::{self, ThreadId},
    time::Duration,
};
use uuid::Uuid;

/// An incarnation of this process.
pub(super) struct Mine {
    name: String,
    ttl: Duration,
    held: Option<Arc<Held>>,
    /// Runs being polled, by slot: what the next beat tells.
    notes: Arc<Mutex<Vec<Option<RunId>>>>,
    /// What the last renewal read of all nodes.
    peers: Mutex<Option<Vec<Peer>>>,
}

/// The connection of the lease. It belongs to the thread that uses it: what another thread's runtime drives would wait for that runtime.
pub(super) struct Line {
    options: Options,
    name: String,
    newest: Arc<Newest>,
    clock: Arc<dyn Clock>,
    pool: Mutex<Option<(ThreadId, Arc<Pool>)>>,
}

impl Line {
    pub(super) fn new(options: &Options, name: &str, newest: Arc<Newest>, clock: Arc<dyn Clock>) -> Self {
        let options =
            Options { connect: options.direct.clone(), pooled: options.pooled && !options.has_direct, ..options.clone() };
        Self { options, name: name.to_owned(), newest, clock, pool: Mutex::default() }
    }

    pub(super) fn pool(&self) -> Arc<Pool> {
        let mut place = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let me = thread::current().id();
        match &*place {
            Some((thread, pool)) if *thread == me => pool.clone(),
            _ => {
                let pool = Arc::new(Pool::new(1, &self.options, &self.name, self.newest.clone(), self.clock.clone()));
                *place = Some((me, pool.clone()));
                pool
            }
        }
    }
}

/// Beats may be lost with the server: then a node looks older than it is, which costs a needless take-over at worst. In front of
/// [`COLUMNS`]: whoever renews reads all nodes in passing.
const RENEW: &str = "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
mine AS (UPDATE @nodes n SET beat = $2, beat_at = clock_timestamp(), polling = $3 FROM how
    WHERE n.incarnation = $1 AND n.state = 0 AND n.beat < $2 RETURNING 1)";

const JOIN: &str = "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', $1, true)),
made AS (INSERT INTO @nodes (incarnation, name, state, ttl_ms, slots, beat, beat_at, polling, connections, schema_version, boot_id,
        machine_id, beat_device, beat_inode)
    SELECT $2, $3, 0, $4, $5, 0, clock_timestamp(), '{}', $6, $7, $8, $9, $10, $11 FROM how ON CONFLICT DO NOTHING RETURNING incarnation)
INSERT INTO @node_tasks (incarnation, task, version)
SELECT made.incarnation, t.task, t.version FROM made, unnest($12::text[], $13::int8[]) AS t(task, version) ON CONFLICT DO NOTHING";

/// The row of an incarnation, and whether its name lives elsewhere.
const JOINED: &str = "
SELECT n.state, EXISTS (SELECT 1 FROM @nodes o WHERE o.name = n.name AND o.incarnation <> n.incarnation AND o.state = 0
    AND o.boot_id <> n.boot_id) FROM @nodes n WHERE n.incarnation = $1";

const LEAVE: &str = "
WITH how AS MATERIALIZED (SELECT set_config('synchronous_commit', $1, true))
UPDATE @nodes n SET state = 1 FROM how WHERE n.incarnation = $2 AND n.state = 0";

/// Columns of a node, in the order [`NodeRow::read`] reads them.
const COLUMNS: &str = "
SELECT n.incarnation, n.name, n.state, n.ttl_ms, n.beat, (extract(epoch FROM clock_timestamp() - n.beat_at) * 1000000)::int8,
    n.boot_id, n.machine_id, n.beat_device, n.beat_inode, n.slots,
    ARRAY(SELECT t.task FROM @node_tasks t WHERE t.incarnation = n.incarnation ORDER BY t.task, t.version),
    ARRAY(SELECT t.version FROM @node_tasks t WHERE t.incarnation = n.incarnation ORDER BY t.task, t.version)";

/// How many these are: whatever else a statement returns comes behind them.
const COLUMNS_OF_A_NODE: usize = 13;

/// Of all nodes.
fn nodes_text() -> String {
    format!("{COLUMNS} FROM @nodes n")
}

/// A node's row.
pub(super) struct NodeRow {
    pub(super) peer: Peer,
    pub(super) slots: usize,
    /// `None`: it has no beat file.
    pub(super) papers: Option<Papers>,
}

impl NodeRow {
    fn read(row: &PgRow) -> Result<Self> {
        let micros = get::<i64>(row, 5)?;
        let place = match (get::<Option<i64>>(row, 8)?, get::<Option<i64>>(row, 9)?) {
            (Some(device), Some(inode)) => Some(Place { device: device.cast_unsigned(), inode: inode.cast_unsigned() }),
            _ => None,
        };
        let (boot_id, machine_id) = (get(row, 6)?, get(row, 7)?);
        let (tasks, versions): (Vec<String>, Vec<i64>) = (get(row, 11)?, get(row, 12)?);
        let tasks = tasks.into_iter().zip(versions);
        let peer = Peer {
            incarnation: Incarnation(get::<Uuid>(row, 0)?),
            name: get(row, 1)?,
            state: get_node_state(row, 2)?,
            tasks: tasks
                .map(|(task, version)| TaskVersion { task, version: u32::try_from(version).unwrap_or(u32::MAX) })
                .collect(),
            beat: get_u64(row, 4)?,
            age: u64::try_from(micros).ok().map(Duration::from_micros),
            ttl: Duration::from_millis(get_u64(row, 3)?),
        };
        let papers = place.map(|place| Papers { boot_id, machine_id, place });
        Ok(Self { peer, slots: get_u32(row, 10)? as usize, papers })
    }
}

#[async_trait]
impl Members for Postgres {
    async fn join(&self, node: NewNode) -> Result<Joined> {
        let incarnation = node.incarnation;
        let mine = self.hold(&node, self.clock.boot())?;
        match self.join_as(&node, &mine).await {
            Ok(()) => {
                self.prepare_batches();
                Ok(Joined { name: mine.0, boot_id: Host::this().boot_id.clone() })
            }
            Err(failed) => {
                // After an unknown outcome there may be a row: the beat file stays, and the same join again finds both.
                if !matches!(failed, Failed::Unknown(_)) {
                    self.let_go(incarnation);
                }
                Err(failed)
            }
        }
    }

    async fn renew(&self, incarnation: Incarnation, beat: Beat) -> Result<Renewed> {
        let Some((polling, ttl)) = self.polling(incarnation) else { return Ok(Renewed::Revoked) };
        let told = self.newest.told();
        let args = || {
            let args = Args::default().with(incarnation.0).with(beat.seq.cast_signed()).with(polling.as_slice());
            match told {
                Some((system, _)) => args.with(system).done(),
                None => args.done(),
            }
        };
        // Whatever becomes of it: a beat that arrived although nobody was told only makes this node look younger to others.
        let timeline = if told.is_some() { TIMELINE } else { UNTOLD };
        let text = self.text(&format!("{RENEW}{COLUMNS}, EXISTS (SELECT 1 FROM mine), {SERVER_MS}, {timeline} FROM @nodes n"));
        let before = self.clock.wall();
        let rows = self.lease.pool().query(super::Stage::Write, &text, args).await?;
        let nodes = rows.iter().map(NodeRow::read).collect::<Result<Vec<_>>>()?;
        let living = nodes.iter().filter(|node| node.peer.state == NodeState::Active);
        let longest = living.map(|node| node.peer.ttl).fold(ttl, Duration::max);
        self.look_at_timeline(rows.first().map(|row| (row, COLUMNS_OF_A_NODE + 2)), longest).await?;
        self.told(before, rows.first(), COLUMNS_OF_A_NODE + 1)?;
        if !rows.first().map_or(Ok(false), |row| get::<bool>(row, COLUMNS_OF_A_NODE))? {
            return Ok(Renewed::Revoked);
        }
        let peers = self.remembered(nodes);
        if let Some(mine) = self.members.read().unwrap_or_else(PoisonError::into_inner).get(&incarnation) {
            *mine.peers.lock().unwrap_or_else(PoisonError::into_inner) = Some(peers);
        }
        Ok(Renewed::Good)
    }

    fn renewed_peers(&self, incarnation: Incarnation) -> Option<Vec<Peer>> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members.get(&incarnation)?.peers.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn peers(&self) -> Result<Vec<Peer>> {
        Ok(self.remembered(self.nodes(&nodes_text(), || Args::default().done()).await?))
    }

    fn proves_dead(&self, incarnation: Incarnation) -> bool {
        self.local.as_ref().is_some_and(|local| local.proves_dead(incarnation))
    }

    async fn revoke(&self, incarnation: Incarnation, evidence: Evidence) -> Result<Revoked> {
        self.revoke_node(incarnation, evidence).await
    }

    fn history(&self) -> u64 {
        self.promoted.history()
    }

    fn release(&self, incarnation: Incarnation) {
        self.let_go(incarnation);
    }

    async fn leave(&self, incarnation: Incarnation) -> Result<()> {
        self.write(LEAVE, || Args::default().with(self.synced).with(incarnation.0).done()).await?;
        self.let_go(incarnation);
        self.stir();
        Ok(())
    }

    fn note(&self, incarnation: Incarnation, slot: usize, run: Option<RunId>) {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let Some(mine) = members.get(&incarnation) else { return };
        if let Some(place) = mine.notes.lock().unwrap_or_else(PoisonError::into_inner).get_mut(slot) {
            *place = run;
        }
        if let Some(held) = &mine.held {
            held.note(slot, run);
        }
    }
}

impl Postgres {
    /// Takes slot or name, and the beat file. The same again finds what it took.
    fn hold(&self, node: &NewNode, now: Boot) -> Result<(String, Option<Arc<Held>>)> {
        let held = self.local.as_ref().map(|local| local.hold(node, now)).transpose()?;
        let name = match (&held, &node.name) {
            (Some(held), _) => held.name.clone(),
            (None, Some(name)) => name.clone(),
            // No slots here: as good as unique, and not taken again.
            (None, None) => format!("{}-{}-{}", Host::this().name, std::process::id(), &node.incarnation.to_string()[24..]),
        };
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        let notes = || Arc::new(Mutex::new(vec![None; node.slots]));
        let mine = members.entry(node.incarnation).or_insert_with(|| Mine {
            name,
            ttl: node.ttl,
            held,
            notes: notes(),
            peers: Mutex::default(),
        });
        Ok((mine.name.clone(), mine.held.clone()))
    }

    fn let_go(&self, incarnation: Incarnation) {
        self.members.write().unwrap_or_else(PoisonError::into_inner).remove(&incarnation);
        if let Some(local) = &self.local {
            local.let_go(incarnation);
        }
    }

    async fn join_as(&self, node: &NewNode, (name, held): &(String, Option<Arc<Held>>)) -> Result<()> {
        let place = held.as_ref().map(|held| held.beat.place()).transpose();
        let place = place.map_err(|error| Failed::Unavailable(format!("the beat file: {error}")))?;
        let here = Host::this();
        let args = || {
            Args::default()
                .with(self.synced)
                .with(node.incarnation.0)
                .with(name.as_str())
                .with(i64::try_from(node.ttl.as_millis()).unwrap_or(i64::MAX))
                .with(i64::try_from(node.slots).unwrap_or(i64::MAX))
                .with(self.connections.as_str())
                .with(schema::VERSION)
                .with(here.boot_id.as_str())
                .with(here.machine_id.as_str())
                .with(place.map(|place| place.device.cast_signed()))
                .with(place.map(|place| place.inode.cast_signed()))
                .with(node.tasks.iter().map(|task| task.task.as_str()).collect::<Vec<_>>())
                .with(node.tasks.iter().map(|task| i64::from(task.version)).collect::<Vec<_>>())
                .done()
        };
        self.note_timeline(&self.pool).await?;
        self.write(JOIN, args).await?;
        let rows = self.read(JOINED, || Args::default().with(node.incarnation.0).done()).await?;
        let over = || Failed::Refused("this incarnation is over".to_owned());
        let row = rows.first().ok_or_else(over)?;
        if get_node_state(row, 0)? != NodeState::Active {
            return Err(over());
        }
        if get::<bool>(row, 1)? {
            tracing::warn!(name, "a node of another host has the same name: they are told apart, but not by people");
        }
        Ok(())
    }

    /// What is polled, and the time of the lease.
    fn polling(&self, incarnation: Incarnation) -> Option<(Vec<Uuid>, Duration)> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let mine = members.get(&incarnation)?;
        let (notes, ttl) = (mine.notes.clone(), mine.ttl);
        drop(members);
        let notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut polling: Vec<Uuid> = notes.iter().flatten().map(|run| run.0).collect();
        polling.sort_unstable();
        polling.dedup();
        Some((polling, ttl))
    }

    /// The nodes, after this host's memory of whom it can tell dead was brought up to them.
    fn remembered(&self, nodes: Vec<NodeRow>) -> Vec<Peer> {
        if let Some(local) = &self.local {
            let papers = nodes.iter().filter_map(|node| Some((node.peer.incarnation, node.papers.clone()?)));
            local.remember(papers.collect());
        }
        nodes.into_iter().map(|node| node.peer).collect()
    }

    async fn nodes(&self, text: &str, args: impl Fn() -> sqlx::postgres::PgArguments) -> Result<Vec<NodeRow>> {
        self.read(text, args).await?.iter().map(NodeRow::read).collect()
    }

    /// One node; `None`: there is no such row.
    pub(super) async fn node(&self, incarnation: Incarnation) -> Result<Option<NodeRow>> {
        let text = format!("{} WHERE n.incarnation = $1", nodes_text());
        Ok(self.nodes(&text, || Args::default().with(incarnation.0).done()).await?.pop())
    }
}

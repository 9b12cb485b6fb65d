//! The members of the SQLite tier: a row says whether a node may own runs, a file says whether its process lives.
//!
//! Invariant: an ordinary renewal never waits for the database; one after a lapse passes through the row that a revoke locks.

use super::{
    Sqlite,
    schema::{node_state, node_state_number},
    sql::{Args, get, get_id, get_u32, get_u64, insert, rows_of},
    writer::Txn,
};
use crate::{
    contract::{
        Beat, Boot, Evidence, Failed, Incarnation, Joined, Members, NewNode, NodeState, Peer, Renewed, Result, Revoked, RunId,
        TaskVersion,
    },
    local::{self, Header, Held, Host, Papers, Place},
};
use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// A node's row.
pub(super) struct NodeRow {
    pub(super) incarnation: Incarnation,
    pub(super) name: String,
    pub(super) state: NodeState,
    pub(super) ttl: Duration,
    pub(super) slots: usize,
    pub(super) beat: u64,
    pub(super) at: Boot,
    pub(super) papers: Papers,
}

pub(super) const NODE: &str =
    "incarnation, name, state, ttl_ms, slots, beat, beat_at_ns, boot_id, machine_id, beat_device, beat_inode";

/// Reads [`NODE`].
pub(super) fn node(row: &SqliteRow) -> Result<NodeRow> {
    Ok(NodeRow {
        incarnation: get_id(row, 0, Incarnation::from_slice)?,
        name: get(row, 1)?,
        state: node_state(get(row, 2)?)?,
        ttl: Duration::from_millis(get_u64(row, 3)?),
        slots: get_u32(row, 4)? as usize,
        beat: get_u64(row, 5)?,
        at: Boot::from_nanos(get_u64(row, 6)?),
        papers: Papers {
            boot_id: get(row, 7)?,
            machine_id: get(row, 8)?,
            place: Place { device: get_u64(row, 9)?, inode: get_u64(row, 10)? },
        },
    })
}

#[async_trait]
impl Members for Sqlite {
    async fn join(&self, node: NewNode) -> Result<Joined> {
        let now = self.clock.boot();
        let incarnation = node.incarnation;
        let held = self.nodes.hold(&node, now)?;
        let name = held.name.clone();
        let joined = self.writer.write(true, move |txn| Box::pin(join(txn, node, held, now))).await;
        match joined {
            Ok(()) => Ok(Joined { name, boot_id: Host::this().boot_id.clone() }),
            Err(failed) => {
                // After an unknown outcome there may be a row: the beat file stays, and the same join again finds both.
                if !matches!(failed, Failed::Unknown(_)) {
                    self.nodes.let_go(incarnation);
                }
                Err(failed)
            }
        }
    }

    async fn renew(&self, incarnation: Incarnation, beat: Beat) -> Result<Renewed> {
        let Some(held) = self.nodes.held(incarnation) else { return Ok(Renewed::Revoked) };
        if beat.lapsed {
            return self.writer.write(false, move |txn| Box::pin(renew(txn, incarnation, beat, held))).await;
        }
        held.renew(incarnation, beat).map_err(|error| local::of_io(&self.nodes.beat_path(incarnation), &error))
    }

    fn renewed_peers(&self, _incarnation: Incarnation) -> Option<Vec<Peer>> {
        None
    }

    async fn peers(&self) -> Result<Vec<Peer>> {
        let text = format!(
            "SELECT {NODE} FROM lobster_nodes;SELECT incarnation, task, version FROM lobster_node_tasks ORDER BY incarnation, task;"
        );
        let rows = self.readers.read(&text, Args::default()).await?;
        let mut tasks: HashMap<Incarnation, Vec<TaskVersion>> = HashMap::new();
        for row in rows_of(&rows, 1) {
            let task = TaskVersion { task: get(row, 1)?, version: get_u32(row, 2)? };
            tasks.entry(get_id(row, 0, Incarnation::from_slice)?).or_default().push(task);
        }
        let nodes = rows_of(&rows, 0).iter().map(node).collect::<Result<Vec<_>>>()?;
        self.nodes.remember(nodes.iter().map(|node| (node.incarnation, node.papers.clone())).collect());
        let peer = |node: NodeRow| {
            let tasks = tasks.remove(&node.incarnation).unwrap_or_default();
            self.peer(node, tasks)
        };
        Ok(nodes.into_iter().map(peer).collect())
    }

    fn proves_dead(&self, incarnation: Incarnation) -> bool {
        self.nodes.proves_dead(incarnation)
    }

    async fn revoke(&self, incarnation: Incarnation, evidence: Evidence) -> Result<Revoked> {
        self.revoke_node(incarnation, evidence).await
    }

    fn history(&self) -> u64 {
        0
    }

    fn release(&self, incarnation: Incarnation) {
        self.nodes.let_go(incarnation);
    }

    async fn leave(&self, incarnation: Incarnation) -> Result<()> {
        let beat = self.nodes.held(incarnation).and_then(|held| held.beat.header().ok().flatten());
        self.writer.write(true, move |txn| Box::pin(leave(txn, incarnation, beat))).await?;
        self.nodes.let_go(incarnation);
        self.stir();
        Ok(())
    }

    fn note(&self, incarnation: Incarnation, slot: usize, run: Option<RunId>) {
        if let Some(held) = self.nodes.held(incarnation) {
            held.note(slot, run);
        }
    }
}

impl Sqlite {
    fn peer(&self, node: NodeRow, tasks: Vec<TaskVersion>) -> Peer {
        let file = match node.state {
            NodeState::Active => self.nodes.header(node.incarnation, node.papers.place),
            NodeState::Left | NodeState::Failed => None,
        };
        let (beat, at) = match file {
            Some((_, header)) if header.seq >= node.beat => (header.seq, header.at),
            _ => (node.beat, node.at),
        };
        let comparable = node.papers.boot_id == Host::this().boot_id;
        let age = self.clock.boot().0.checked_sub(at.0).filter(|_| comparable);
        Peer { incarnation: node.incarnation, name: node.name, state: node.state, tasks, beat, age, ttl: node.ttl }
    }
}

async fn join(txn: &mut Txn, new: NewNode, held: Arc<Held>, now: Boot) -> Result<()> {
    let place = held.beat.place().map_err(|error| Failed::Unavailable(format!("the beat file: {error}")))?;
    let here = Host::this();
    let mut args = Args::default();
    args.push(new.incarnation.0.as_bytes().as_slice());
    args.push(held.name.as_str());
    args.push(node_state_number(NodeState::Active));
    args.push(i64::try_from(new.ttl.as_millis()).unwrap_or(i64::MAX));
    args.push(i64::try_from(new.slots).unwrap_or(i64::MAX));
    args.push(0);
    args.push(now.nanos().cast_signed());
    args.push(here.boot_id.as_str());
    args.push(here.machine_id.as_str());
    args.push(place.device.cast_signed());
    args.push(place.inode.cast_signed());
    let text = format!(
        "INSERT INTO lobster_nodes ({NODE}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING;\
         SELECT state FROM lobster_nodes WHERE incarnation = $1;"
    );
    let rows = txn.run(&text, args).await?;
    let state = rows_of(&rows, 1).first().map_or(Ok(0), |row| get::<i64>(row, 0))?;
    if node_state(state)? != NodeState::Active {
        return Err(Failed::Refused("this incarnation is over".to_owned()));
    }
    let mut args = Args::default();
    let mut text = String::new();
    for tasks in new.tasks.chunks(super::sql::ROWS_MAX) {
        text += &insert("lobster_node_tasks (incarnation, task, version)", tasks.len(), 3).replacen(
            "INSERT INTO",
            "INSERT OR IGNORE INTO",
            1,
        );
        for task in tasks {
            args.push(new.incarnation.0.as_bytes().as_slice());
            args.push(task.task.as_str());
            args.push(i64::from(task.version));
        }
    }
    txn.commit(&text, args).await?;
    Ok(())
}

async fn leave(txn: &mut Txn, incarnation: Incarnation, beat: Option<Header>) -> Result<()> {
    let mut args = Args::default();
    args.push(incarnation.0.as_bytes().as_slice());
    args.push(beat.map(|beat| beat.seq.cast_signed()));
    args.push(beat.map(|beat| beat.at.nanos().cast_signed()));
    let text = "UPDATE lobster_nodes SET state = 1, beat = coalesce($2, beat), beat_at_ns = coalesce($3, beat_at_ns) \
                WHERE incarnation = $1 AND state = 0;";
    txn.commit(text, args).await?;
    Ok(())
}

/// A renewal after a lapse. A revoke that committed before is seen here; one that comes after sees this beat.
async fn renew(txn: &mut Txn, incarnation: Incarnation, beat: Beat, held: Arc<Held>) -> Result<Renewed> {
    let mut args = Args::default();
    args.push(incarnation.0.as_bytes().as_slice());
    let rows = txn.run("SELECT state, beat FROM lobster_nodes WHERE incarnation = ?;", args).await?;
    let Some(row) = rows_of(&rows, 0).first() else { return Ok(Renewed::Revoked) };
    if node_state(get(row, 0)?)? != NodeState::Active || get_u64(row, 1)? >= beat.seq {
        return Ok(Renewed::Revoked);
    }
    // Before the commit: a beat in the file that is not in the row only puts a revoke off.
    let written = held.renew(incarnation, beat).map_err(|error| Failed::Unavailable(format!("the beat file: {error}")))?;
    if written == Renewed::Revoked {
        return Ok(Renewed::Revoked);
    }
    let mut args = Args::default();
    args.push(beat.seq.cast_signed());
    args.push(beat.at.nanos().cast_signed());
    args.push(incarnation.0.as_bytes().as_slice());
    txn.commit("UPDATE lobster_nodes SET beat = ?, beat_at_ns = ? WHERE incarnation = ?;", args).await?;
    Ok(Renewed::Good)
}

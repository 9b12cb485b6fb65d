//! Revoking an incarnation.
//!
//! Invariant: the evidence is checked on the locked row, and a lock that proves a death is kept until the revoke committed.

use super::{
    Sqlite,
    members::{NODE, NodeRow, node},
    sql::{Args, bucket, get, get_id, numbered, rows_of},
    writer::Txn,
};
use crate::{
    contract::{Boot, Evidence, Incarnation, NodeState, Result, Revoked, RunId},
    local::{BeatFile, Host, Nodes, Proof},
};
use std::{collections::HashSet, fs, sync::Arc, time::Duration};

impl Sqlite {
    pub(super) async fn revoke_node(&self, incarnation: Incarnation, evidence: Evidence) -> Result<Revoked> {
        let nodes = self.nodes.clone();
        let now = self.clock.boot();
        let revoked = self.writer.write(true, move |txn| Box::pin(revoke(txn, incarnation, evidence, nodes, now))).await?;
        if matches!(revoked, Revoked::Failed { .. }) {
            self.stir();
        }
        Ok(revoked)
    }
}

/// Evidence that holds.
enum Shown {
    Dead(Proof),
    Silent { beat: u64, at: Boot, file: Option<BeatFile> },
}

async fn revoke(txn: &mut Txn, incarnation: Incarnation, evidence: Evidence, nodes: Arc<Nodes>, now: Boot) -> Result<Revoked> {
    let mut args = Args::default();
    args.push(incarnation.0.as_bytes().as_slice());
    let text = format!(
        "SELECT {NODE} FROM lobster_nodes WHERE incarnation = $1;\
         SELECT id, attempts > 0 FROM lobster_runs INDEXED BY lobster_runs_running WHERE state = 1 AND owner = $1;"
    );
    let rows = txn.run(&text, args).await?;
    let Some(row) = rows_of(&rows, 0).first() else { return Ok(Revoked::Refused) };
    let node = node(row)?;
    match node.state {
        NodeState::Active => {}
        NodeState::Left => return Ok(Revoked::Refused),
        NodeState::Failed => return Ok(Revoked::Failed { suspects: Vec::new() }),
    }
    let shown = match evidence {
        Evidence::Death => nodes.prove(incarnation, &node.papers).map(Shown::Dead),
        Evidence::Silence { beat, age } => silent(&nodes, &node, beat, age, now),
    };
    let Some(shown) = shown else { return Ok(Revoked::Refused) };
    let mut suspects = noted(&shown, &node);
    let mut stuck = HashSet::new();
    for row in rows_of(&rows, 1) {
        if get::<i64>(row, 1)? != 0 {
            stuck.insert(get_id(row, 0, RunId::from_slice)?);
        }
    }
    // Progress since its claim, or not its run any more: no suspect.
    suspects.retain(|run| stuck.remove(run));
    suspects.sort_unstable();
    fail(txn, &node, &shown, &suspects).await?;
    close(&nodes, incarnation, shown);
    Ok(Revoked::Failed { suspects })
}

fn silent(nodes: &Nodes, node: &NodeRow, beat: u64, age: Duration, now: Boot) -> Option<Shown> {
    let file = nodes.header(node.incarnation, node.papers.place);
    let (last, at) = file.as_ref().map_or((node.beat, node.at), |(_, header)| (header.seq, header.at));
    let last_one = last == beat && node.beat <= beat;
    // Times of another boot cannot be compared: there it must do that the beat was watched.
    let old = node.papers.boot_id != Host::this().boot_id || now.since(at) >= age;
    (last_one && old).then_some(Shown::Silent { beat: last, at, file: file.map(|(file, _)| file) })
}

/// Runs that were being polled, as far as it is known. After a reboot nothing is: what was noted was never synced, and it was
/// hardly a run that brought down the host.
fn noted(shown: &Shown, node: &NodeRow) -> Vec<RunId> {
    match shown {
        Shown::Dead(Proof::Locked(file)) | Shown::Silent { file: Some(file), .. } => file.notes(node.slots),
        Shown::Dead(Proof::Rebooted) | Shown::Silent { file: None, .. } => Vec::new(),
    }
}

async fn fail(txn: &mut Txn, node: &NodeRow, shown: &Shown, suspects: &[RunId]) -> Result<()> {
    let beat = match shown {
        Shown::Dead(Proof::Locked(file)) => file.header().ok().flatten().map(|header| (header.seq, header.at)),
        Shown::Dead(Proof::Rebooted) => None,
        Shown::Silent { beat, at, .. } => Some((*beat, *at)),
    };
    let (beat, at) = beat.unwrap_or((node.beat, node.at));
    let mut args = Args::default();
    args.push(node.incarnation.0.as_bytes().as_slice());
    args.push(beat.cast_signed());
    args.push(at.nanos().cast_signed());
    let size = bucket(suspects.len());
    for run in suspects {
        args.push(run.0.as_bytes().as_slice());
    }
    // An id that no run has, because `NOT IN` a list with a null is never true.
    for _ in suspects.len()..size {
        args.push([].as_slice());
    }
    let suspects = numbered(4, size);
    let mine = "state = 1 AND owner = $1 AND attempts > 0";
    let text = format!(
        "UPDATE lobster_nodes SET state = 2, beat = $2, beat_at_ns = $3 WHERE incarnation = $1;\
         UPDATE lobster_runs INDEXED BY lobster_runs_running SET attempts = attempts - 1 WHERE {mine} AND id NOT IN ({suspects});\
         UPDATE lobster_runs INDEXED BY lobster_runs_running SET deaths = deaths + 1 WHERE {mine} AND id IN ({suspects});"
    );
    txn.commit(&text, args).await?;
    Ok(())
}

/// After the commit: tells a process that may live on, or removes the file of one that does not.
fn close(nodes: &Nodes, incarnation: Incarnation, shown: Shown) {
    match shown {
        Shown::Dead(_) => _ = fs::remove_file(nodes.beat_path(incarnation)),
        Shown::Silent { file: Some(file), .. } => _ = file.mark_revoked(),
        Shown::Silent { file: None, .. } => {}
    }
}

//! Folds, and reading parts of what they made.
//!
//! Invariant: a fold is decided by [`decide_fold`] on the run's locked row, in the transaction that makes it current.

use super::{
    Postgres,
    sql::{Args, fence, get, get_sealed, get_u32, get_u64},
};
use crate::contract::{Fold, Folded, Result, RunId, Seq, StoredPart, decide_fold};
use sqlx::postgres::PgRow;
use std::collections::HashMap;

const LOCK: &str = "SELECT owner, epoch, state, tail, mark, cancel, wake, set_config('synchronous_commit', 'off', true) \
                    FROM @runs WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED";

/// After the lock: what a fold that went before left.
const LOOK: &str = "SELECT (SELECT seq FROM @manifests WHERE run = $1), (SELECT crc FROM @manifests WHERE run = $1), \
                    EXISTS (SELECT 1 FROM @runs WHERE id = $1)";

const WRITE: &str = "
WITH covered AS (DELETE FROM @changes WHERE run = $1 AND seq_from <= $2 AND seq_to <= $2),
dropped AS (DELETE FROM @parts WHERE run = $1 AND id = ANY($3::int8[])),
parts AS (INSERT INTO @parts (run, id, crc, body)
    SELECT $1, p.id, p.crc, p.body FROM unnest($4::int8[], $5::int8[], $6::bytea[]) AS p(id, crc, body)
    ON CONFLICT (run, id) DO UPDATE SET crc = excluded.crc, body = excluded.body)
INSERT INTO @manifests (run, seq, crc, body) VALUES ($1, $2, $7, $8)
ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, crc = excluded.crc, body = excluded.body";

const PARTS: &str = "SELECT id, crc, body FROM @parts WHERE run = $1 AND id = ANY($2::int8[])";

impl Postgres {
    pub(super) async fn fold_run(&self, fold: Fold) -> Result<Folded> {
        let mut transaction = self.pool.transaction().await?;
        let run = || Args::default().with(fold.run.0).done();
        let locked = transaction.query(&self.text(LOCK), run).await?;
        let found = transaction.query(&self.text(LOOK), run).await?;
        let (snapshot, exists) = found.first().map_or(Ok((None, false)), look)?;
        if locked.is_empty() && exists {
            transaction.rollback().await?;
            return Ok(Folded::Busy);
        }
        let row = locked.first().map(fence).transpose()?;
        let answer = decide_fold(row.as_ref(), snapshot, &fold);
        if answer != Folded::Done {
            transaction.rollback().await?;
            return Ok(answer);
        }
        let args = || {
            Args::default()
                .with(fold.run.0)
                .with(fold.seq.cast_signed())
                .with(fold.dropped.iter().map(|id| id.cast_signed()).collect::<Vec<_>>())
                .with(fold.parts.iter().map(|part| part.id.cast_signed()).collect::<Vec<_>>())
                .with(fold.parts.iter().map(|part| i64::from(part.sealed.crc)).collect::<Vec<_>>())
                .with(fold.parts.iter().map(|part| part.sealed.body.as_ref()).collect::<Vec<_>>())
                .with(i64::from(fold.manifest.crc))
                .with(fold.manifest.body.as_ref())
                .done()
        };
        transaction.query(&self.text(WRITE), args).await?;
        transaction.commit().await?;
        Ok(Folded::Done)
    }

    pub(super) async fn read_parts(&self, run: RunId, ids: &[u64]) -> Result<Vec<StoredPart>> {
        let args = || Args::default().with(run.0).with(ids.iter().map(|id| id.cast_signed()).collect::<Vec<_>>()).done();
        let rows = self.read(PARTS, args).await?;
        let part = |row| Ok((get_u64(row, 0)?, get_sealed(row, 1)?));
        let found = rows.iter().map(part).collect::<Result<HashMap<_, _>>>()?;
        Ok(ids.iter().filter_map(|id| Some(StoredPart { id: *id, sealed: found.get(id)?.clone() })).collect())
    }
}

/// The snapshot's seq and checksum, and whether there is such a run.
fn look(row: &PgRow) -> Result<(Option<(Seq, u32)>, bool)> {
    let snapshot = match get::<Option<i64>>(row, 0)? {
        None => None,
        Some(seq) => Some((seq.cast_unsigned(), get_u32(row, 1)?)),
    };
    Ok((snapshot, get(row, 2)?))
}

//! The last line: what the recorded state has, what the tally has, and whether the state is what the file says.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, ensure};
use lobster_core::{Client, State};
use lobster_examples::navaids::rows::{self, Navaid};
use lobster_examples::navaids::tally::Counts;
use serde::Serialize;

use crate::import::Import;

/// What there is of an import.
pub struct Verdict {
    import: Import,
    counts: Counts,
}

impl Verdict {
    /// Reads state and tally. An import of which nothing is recorded yet is empty.
    ///
    /// # Errors
    /// The state cannot be read.
    pub async fn read(client: &Client, counts: Counts) -> anyhow::Result<Self> {
        let run = client.find(counts.import.as_str()).await?;
        let import = match run {
            Some(run) => client.state::<Import>(run, Import::NAME).await.context("the recorded state")?,
            None => None,
        };
        Ok(Self { import: import.unwrap_or_default(), counts })
    }

    /// Compares the state with what the file says.
    ///
    /// # Errors
    /// They differ.
    pub fn check(&self, whole: bool) -> anyhow::Result<()> {
        let Self { import, counts } = self;
        let all = rows::all_rows()?;
        ensure!(!whole || *import.cursor == all.len(), "{} of {} rows were imported", *import.cursor, all.len());
        let expected = &all[..(*import.cursor).min(all.len())];
        ensure!(import.accepted[..] == *expected, "the accepted rows are not those of the file");
        let countries = import.countries.iter().map(|(country, rows)| (country.as_str(), *rows)).collect();
        ensure!(by_country(expected) == countries, "the rows by country are not those of the file");
        if let Some(source) = import.source.get() {
            ensure!((source.file.as_str(), source.rows) == (rows::FILE, all.len()), "the source is another: {source:?}");
            // What the door has added up is what there is. Each page makes it longer, and one may have been on its way to the store.
            let found = full_bytes(import);
            let known = counts.full.values().any(|bytes| *bytes == found);
            ensure!(expected.is_empty() || known, "the whole state is {found} bytes long, which it was at no page");
        }
        Ok(())
    }
}

/// How long the whole state is: its values, items, keys, encoded as they are recorded.
fn full_bytes(import: &Import) -> u64 {
    let countries = import.countries.iter().map(|(country, rows)| encoded(country) + encoded(rows));
    encoded(&*import.source)
        + encoded(&*import.cursor)
        + import.accepted.iter().map(encoded).sum::<u64>()
        + countries.sum::<u64>()
}

fn encoded(value: &impl Serialize) -> u64 {
    serde_json::to_vec(value).expect("strings and numbers are always encoded").len() as u64
}

fn by_country(rows: &[Navaid]) -> BTreeMap<&str, u64> {
    let mut countries = BTreeMap::new();
    for row in rows {
        *countries.entry(row.iso_country.as_str()).or_default() += 1;
    }
    countries
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { import, counts } = self;
        let of = |country| import.countries.get(country).copied().unwrap_or(0);
        let ndb = import.accepted.iter().filter(|row| row.kind == "NDB").count();
        write!(
            f,
            "rows={} countries={} us={} ca={} ndb={ndb} ",
            import.accepted.len(),
            import.countries.len(),
            of("US"),
            of("CA")
        )?;
        let (kills, reruns, written, full) = (counts.kills, counts.rerun_pages(), counts.written, counts.full_snapshot_bytes());
        write!(
            f,
            "kills={kills} rerun_pages={reruns} written_bytes={written} full_snapshot_bytes={full} ratio={:.1}",
            counts.ratio()
        )
    }
}

//! The last line: what the recorded state has, what the tally has, and whether the state is what the file says.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, ensure};
use lobster_core::{Client, State};
use lobster_examples::navaids::rows::{self, Navaid};
use lobster_examples::navaids::tally::Counts;

use crate::import::{Import, accepted_bytes, full_bytes};

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
            let page = counts.full.get(&(import.cursor.div_ceil(rows::PAGE) as u64).saturating_sub(1));
            let found = full_bytes(import) - *import.accepted_bytes + accepted_bytes(import);
            ensure!(expected.is_empty() || page == Some(&found), "the whole state is {found} bytes long, not {page:?}");
        }
        Ok(())
    }
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

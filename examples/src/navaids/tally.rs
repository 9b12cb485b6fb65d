//! What really happened in an import, written down beside the engine's records: a line per fact, appended in one piece before the
//! fact or as soon as it is known, so that a kill takes nothing back.
//!
//! Invariant: a fact is one line, written in one piece.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, bail};

/// A file of facts, open to be added to. Several processes may add to one.
#[derive(Debug)]
pub struct Tally {
    file: File,
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The import has this name. The first of all.
    Import(String),
    /// The body of a page begins.
    Page(u64),
    /// So many bytes of records are handed to the store.
    Written(u64),
    /// So long is the whole encoded state at the record of a page.
    Full {
        /// The seq of the record: a page that ran again has the same.
        seq: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// The working process was killed.
    Kill,
    /// The import has ended.
    Done,
}

impl Tally {
    /// Opens it, and makes it if it is missing.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().create(true).append(true).open(path)? })
    }

    /// Adds a fact.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&self, fact: &Fact) -> io::Result<()> {
        let line = match fact {
            Fact::Import(name) => format!("import {name}\n"),
            Fact::Page(page) => format!("page {page}\n"),
            Fact::Written(bytes) => format!("written {bytes}\n"),
            Fact::Full { seq, bytes } => format!("full {seq} {bytes}\n"),
            Fact::Kill => "kill\n".to_owned(),
            Fact::Done => "done\n".to_owned(),
        };
        (&self.file).write_all(line.as_bytes())
    }
}

/// The facts of a file, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Name of the import.
    pub import: String,
    /// How often each page was begun.
    pub begun: BTreeMap<u64, u64>,
    /// Bytes of records handed to the store.
    pub written: u64,
    /// Length of the whole encoded state at the record of each page, by its seq.
    pub full: BTreeMap<u64, u64>,
    /// Kills of the working process.
    pub kills: u64,
    /// The import has ended.
    pub done: bool,
}

impl Counts {
    /// Reads a file; `None`: there is none.
    ///
    /// # Errors
    /// It cannot be read, or has lines that no tally has.
    pub fn read(path: &Path) -> anyhow::Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        Self::of(&text).with_context(|| path.display().to_string()).map(Some)
    }

    fn of(text: &str) -> anyhow::Result<Self> {
        let mut counts = Self::default();
        // A line that is being written has no end yet.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            match *line.split(' ').collect::<Vec<_>>() {
                ["import", name] => counts.import = name.to_owned(),
                ["page", page] => *counts.begun.entry(page.parse()?).or_default() += 1,
                ["written", bytes] => counts.written += bytes.parse::<u64>()?,
                ["full", seq, bytes] => _ = counts.full.insert(seq.parse()?, bytes.parse()?),
                ["kill"] => counts.kills += 1,
                ["done"] => counts.done = true,
                _ => bail!("`{line}` is no line of a tally"),
            }
        }
        Ok(counts)
    }

    /// Pages whose body was begun more than once.
    pub fn rerun_pages(&self) -> usize {
        self.begun.values().filter(|times| **times > 1).count()
    }

    /// What it would have taken to write the whole state at the end of every page, once each.
    pub fn full_snapshot_bytes(&self) -> u64 {
        self.full.values().sum()
    }

    /// The same, as a multiple of what was written.
    pub fn ratio(&self) -> f64 {
        self.full_snapshot_bytes() as f64 / self.written.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_added_up_over_all_who_added() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tally");
        assert_eq!(Counts::read(&path).expect("no file is no error"), None);
        let first =
            [Fact::Import("a-1".into()), Fact::Page(0), Fact::Written(100), Fact::Full { seq: 0, bytes: 5_000 }, Fact::Page(1)];
        let second = [Fact::Kill, Fact::Page(1), Fact::Full { seq: 1, bytes: 9_000 }, Fact::Written(40), Fact::Done];
        for facts in [first, second] {
            let tally = Tally::open(&path).expect("it can be made");
            facts.iter().try_for_each(|fact| tally.add(fact)).expect("it can be written");
        }
        let counts = Counts::read(&path).expect("it was written a line ago").expect("it is there");
        let expected = Counts {
            import: "a-1".into(),
            begun: [(0, 1), (1, 2)].into(),
            written: 140,
            full: [(0, 5_000), (1, 9_000)].into(),
            kills: 1,
            done: true,
        };
        assert_eq!(counts, expected);
        assert_eq!((counts.rerun_pages(), counts.full_snapshot_bytes(), counts.ratio()), (1, 14_000, 100.0));
    }

    #[test]
    fn a_page_that_ran_again_counts_once_as_a_snapshot() {
        let counts = Counts::of("page 3\nfull 3 50\npage 3\nfull 3 50\nwritten 10\nwritten 10\n").expect("a tally");
        assert_eq!((counts.rerun_pages(), counts.full_snapshot_bytes(), counts.written), (1, 50, 20));
    }

    #[test]
    fn a_line_that_is_being_written_does_not_count_yet() {
        assert_eq!(Counts::of("written 5\nwritten 17").expect("a tally").written, 5);
        assert!(Counts::of("wrote 5\n").is_err());
    }
}

//! A calendar for one server alone, that can be set while it runs: the host's keeps its time.
//!
//! Invariant: all processes of the server see a change at once, and clocks that only run on never see any.

use crate::{
    Error, Result,
    home::Home,
    programs::{find, run},
};
use std::{fs::File, os::unix::fs::FileExt, path::PathBuf};

/// What is preloaded into a server, and the file that it reads.
#[derive(Debug)]
pub(super) struct Calendar {
    library: PathBuf,
    file: PathBuf,
}

impl Calendar {
    /// One that agrees with the host's.
    pub fn new(home: &Home) -> Result<Self> {
        let source = home.write("calendar.c", include_str!("calendar.c"))?;
        let library = home.path().join("calendar.so");
        run(home.command(&find("cc", "gcc")?).args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source))?;
        let file = home.write("calendar", &"\0".repeat(size_of::<i64>()))?;
        Ok(Self { library, file })
    }

    /// So many seconds before that of the host, or behind it.
    pub fn set(&self, ahead_s: i64) -> Result<()> {
        let file = File::options().write(true).open(&self.file).map_err(Error::io("calendar"))?;
        file.write_all_at(&ahead_s.to_ne_bytes(), 0).map_err(Error::io("calendar"))
    }

    /// What `env` makes of a command that shall have it.
    pub fn environment(&self) -> [String; 2] {
        [format!("LD_PRELOAD={}", self.library.display()), format!("LOBSTER_CALENDAR={}", self.file.display())]
    }
}

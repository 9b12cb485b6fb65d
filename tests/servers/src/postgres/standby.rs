//! A second server that follows the first, and takes over when told.
//!
//! Invariant: with a synchronous standby, a commit that is acknowledged is on both.

use super::Postgres;
use crate::{
    Result,
    home::Home,
    programs::run,
    wait::{PATIENCE, until},
};

impl Postgres {
    /// A server that follows this one and can be read from; returns when it does. If it is synchronous, commits of this one
    /// wait for it from now on, also while it is gone: until `set("synchronous_standby_names", "")`.
    pub fn standby(&self, synchronous: bool) -> Self {
        let standby = self.copy().unwrap_or_else(|error| panic!("{error}"));
        if synchronous {
            self.set("synchronous_standby_names", &format!("\"{}\"", standby.home.name()));
        }
        let state = if synchronous { "sync" } else { "async" };
        let follows = format!(
            "SELECT 1 FROM pg_stat_replication WHERE application_name = '{}' AND state = 'streaming' AND sync_state = '{state}'",
            standby.home.name()
        );
        let follows = until(PATIENCE, || self.sql("postgres", &follows).is_ok_and(|rows| rows == "1").then_some(()));
        assert!(follows.is_some(), "the standby does not follow\n{}\n{}", self.log(), standby.log());
        standby
    }

    fn copy(&self) -> Result<Self> {
        let home = Home::new("lobster-postgres-")?;
        // Under the name of the standby's own process titles, so that the primary knows it from others.
        let source = format!("{}?application_name={}", self.url(), home.name());
        let mut copy = home.command(&self.programs.join("pg_basebackup"));
        run(copy.args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-D", "data", "-d", &source]))?;
        Self::on_a_free_port(Self { home, programs: self.programs.clone(), port: 0, ca: self.ca.clone(), calendar: None })
    }

    /// Makes a standby a server of its own; returns when it accepts writes. Nobody tells the old primary: kill it first, unless
    /// two of them are what you want to see.
    pub fn promote(&self) {
        let promoted = self.sql("postgres", "SELECT pg_promote(true, 60)").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(promoted, "t", "the standby is not promoted\n{}", self.log());
        // What it was told of standbys came with the copy, and concerns the old primary.
        self.set("synchronous_standby_names", "");
    }
}

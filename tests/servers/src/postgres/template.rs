//! An empty data directory, made once per machine and version and unpacked for each server: `initdb` takes ten times as long.
//!
//! Invariant: the archive appears whole, by a rename, and one that belongs to somebody else is not used.

use crate::{
    Error, Result,
    home::Home,
    programs::{find, run},
};
use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// A home with a data directory nobody has used.
pub(super) fn home(programs: &Path) -> Result<Home> {
    let home = Home::new("lobster-postgres-")?;
    let archive = archive(&home, programs)?;
    if !home.path().join("data").exists() {
        run(home.command(&find("tar", "tar")?).arg("-xf").arg(&archive))?;
    }
    Ok(home)
}

/// The archive; if there was none, the home has the directory that it was made of.
fn archive(home: &Home, programs: &Path) -> Result<PathBuf> {
    let version = run(home.command(&programs.join("postgres")).arg("--version"))?;
    let version = version.split(' ').nth(2).unwrap_or("unknown").trim().to_owned();
    let uid = home.user().map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid);
    let archive = env::temp_dir().join(format!("lobster-postgres-{version}-{uid}.tar"));
    if fs::symlink_metadata(&archive).is_ok_and(|file| file.is_file() && file.uid() == uid) {
        return Ok(archive);
    }
    let settings = ["--no-sync", "-k", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-U", "lobster", "-D", "data"];
    run(home.command(&programs.join("initdb")).args(settings))?;
    run(home.command(&find("tar", "tar")?).args(["-cf", "template.tar", "data"]))?;
    fs::rename(home.path().join("template.tar"), &archive).map_err(Error::io("the template's rename"))?;
    Ok(archive)
}

//! Where the programs of servers are on this machine, and as whom they run.
//!
//! Invariant: what is not there is named together with the package that brings it.

use crate::{Error, Missing, Result};
use std::{
    env, fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

/// A program of the search path, or of the folders for administrators, which a user's path leaves out.
pub(crate) fn find(program: &'static str, package: &'static str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let found = folders.map(|folder| folder.join(program)).find(|file| file.is_file());
    found.ok_or(Missing { program, package }.into())
}

/// The folder with PostgreSQL's server: of the search path, or the newest where Debian keeps several.
pub(crate) fn postgres_folder() -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let of_path = env::split_paths(&path).collect::<Vec<_>>().into_iter();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> =
        versions.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))).collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    let whole = |folder: &PathBuf| ["postgres", "initdb", "psql"].iter().all(|name| folder.join(name).is_file());
    let found = of_path.chain(versions.into_iter().map(|(_, folder)| folder)).find(whole);
    found.ok_or(Missing { program: "postgres", package: "postgresql" }.into())
}

/// The user that servers run as when root starts them: they refuse to be root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub uid: u32,
    pub gid: u32,
}

impl User {
    /// `postgres` for root; for anybody else nobody but himself.
    pub fn of_servers() -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd").map_err(Error::io("/etc/passwd"))?;
        let line = users.lines().find_map(|line| line.strip_prefix("postgres:"));
        let mut ids = line.into_iter().flat_map(|line| line.split(':').skip(1)).map_while(|id| id.parse().ok());
        match (ids.next(), ids.next()) {
            (Some(uid), Some(gid)) => Ok(Some(Self { uid, gid })),
            _ => Err(Missing { program: "the user postgres, as whom root runs servers,", package: "postgresql" }.into()),
        }
    }
}

/// A command in a folder, as the user that may be there.
pub(crate) fn command(program: &Path, folder: &Path, user: Option<User>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("LC_ALL", "C.UTF-8");
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// Runs a command to its end; what it wrote, or what it complained about.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(Error::io(&name))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        return Err(Error::failed(format!("{name}, {}", output.status), String::from_utf8_lossy(&said).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

//! A directory in which one server lives, and the process that clears both away when their owner has ended.
//!
//! Invariant: a server starts only when the undertaker knows it, so that there is no moment at which nobody would bury it.

use crate::{
    Error, Result,
    process::{continue_family, lives, signal, stop_family},
    programs::{User, command},
    wait::{PATIENCE, until},
};
use rustix::process::Signal;
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Write,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard},
};

/// The home of a server. Dropped, it kills the server and removes the directory.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    user: Option<User>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    undertaker: Child,
    server: Option<Child>,
}

impl Home {
    /// A new directory that belongs to the user of servers.
    pub fn new(prefix: &str) -> Result<Self> {
        let user = User::of_servers()?;
        let folder = tempfile::Builder::new().prefix(prefix).tempdir().map_err(Error::io("a temporary directory"))?;
        let path = folder.path().canonicalize().map_err(Error::io("a temporary directory"))?;
        if let Some(User { uid, gid }) = user {
            chown(&path, Some(uid), Some(gid)).map_err(Error::io("giving a directory away"))?;
        }
        let undertaker = Command::new("sh")
            .args(["-c", include_str!("undertaker.sh"), "undertaker"])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What ends a group of tests must not end the undertaker with it.
            .process_group(0)
            .spawn()
            .map_err(Error::io("sh"))?;
        let _undertakers = folder.keep();
        Ok(Self { path, user, state: Mutex::new(State { undertaker, server: None }) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the directory: unlike any other on this machine.
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or("server")
    }

    pub fn user(&self) -> Option<User> {
        self.user
    }

    /// A command that runs here as the user of servers.
    pub fn command(&self, program: &Path) -> Command {
        command(program, &self.path, self.user)
    }

    /// A file that the server can read and nobody else but root.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, text).map_err(Error::io(name))?;
        self.own(&path)?;
        Ok(path)
    }

    /// Gives a file to the user of servers.
    pub fn own(&self, path: &Path) -> Result<()> {
        let Some(User { uid, gid }) = self.user else { return Ok(()) };
        chown(path, Some(uid), Some(gid)).map_err(Error::io("giving a file away"))
    }

    /// Starts the server; returns when it is ready, asked with its process.
    ///
    /// # Errors
    /// With the end of its log, when it ended or did not become ready in time.
    pub fn launch(&self, program: &Path, args: &[impl AsRef<OsStr>], ready: impl Fn(i32) -> bool) -> Result<()> {
        let mut state = self.state();
        assert!(state.server.is_none(), "the server of {} runs already", self.name());
        let log = File::options().create(true).append(true).open(self.path.join("log")).map_err(Error::io("log"))?;
        let log_too = log.try_clone().map_err(Error::io("log"))?;
        // It waits for a word first; if this process ends before it has told the undertaker, the word never comes. A session
        // of its own: the kernel wakes a stopped process whose parent ends, if both are of one session.
        let mut server = self
            .command(Path::new("sh"))
            .args(["-c", r#"read -r _ || exit 1; exec setsid "$@" </dev/null"#, "server"])
            .arg(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(log_too)
            .spawn()
            .map_err(Error::io("sh"))?;
        let pid = number(&server);
        state.tell(&pid.to_string());
        let word = server.stdin.take().map(|mut gate| gate.write_all(b"go\n"));
        state.server = Some(server);
        let ready = word.is_some_and(|said| said.is_ok())
            && until(PATIENCE, || if lives(pid) { ready(pid).then_some(true) } else { Some(false) }).unwrap_or(false);
        drop(state);
        if ready {
            return Ok(());
        }
        self.kill();
        Err(Error::failed(format!("{} does not start", program.display()), self.log()))
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<i32> {
        self.state().server.as_ref().map(number)
    }

    /// Kills the server and its children, in the middle of whatever they do; returns when all are gone.
    pub fn kill(&self) {
        let mut state = self.state();
        let Some(mut server) = state.server.take() else { return };
        let pid = number(&server);
        let children = stop_family(pid);
        children.iter().chain([&pid]).for_each(|pid| signal(*pid, Signal::KILL));
        let _status = server.wait();
        let gone = until(PATIENCE, || children.iter().all(|pid| !lives(*pid)).then_some(()));
        assert!(gone.is_some(), "children of {} survive a kill", self.name());
        state.tell("");
    }

    /// Asks the server to end; returns when it has.
    ///
    /// # Panics
    /// If it does not: with its log.
    pub fn end(&self, how: Signal) {
        let mut state = self.state();
        let Some(server) = state.server.as_mut() else { return };
        signal(number(server), how);
        let ended = until(PATIENCE, || server.try_wait().ok().flatten());
        assert!(ended.is_some(), "{} does not end\n{}", self.name(), self.log());
        state.server = None;
        state.tell("");
    }

    /// Stops the server and its children where they are; returns when none of them runs.
    pub fn pause(&self) {
        if let Some(pid) = self.pid() {
            stop_family(pid);
        }
    }

    /// Ends a pause.
    pub fn resume(&self) {
        if let Some(pid) = self.pid() {
            continue_family(pid);
        }
    }

    /// Everything that the server wrote.
    pub fn log(&self) -> String {
        fs::read(self.path.join("log")).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    /// Tells the undertaker whom to bury.
    fn tell(&mut self, pid: &str) {
        if let Some(pipe) = &mut self.undertaker.stdin {
            let _gone = pipe.write_all(format!("{pid}\n").as_bytes());
        }
    }
}

fn number(child: &Child) -> i32 {
    i32::try_from(child.id()).expect("the kernel's process numbers fit")
}

impl Drop for Home {
    fn drop(&mut self) {
        let mut state = self.state();
        // The end of its input is the undertaker's cue, the same as when this process is killed.
        drop(state.undertaker.stdin.take());
        let _buried = state.undertaker.wait();
        if let Some(server) = &mut state.server {
            let _status = server.wait();
        }
    }
}

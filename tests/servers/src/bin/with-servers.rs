//! Runs a command with a PostgreSQL server that lives as long as it does: `with-servers cargo nextest run`. With `--pooled` before the
//! command, tests reach it, and the servers that they start for themselves, through PgBouncer in transaction mode.
//!
//! Invariant: it ends as the command ends, with its code, and never before it.

#![allow(clippy::disallowed_methods, reason = "it runs a process for a person")]

use lobster_servers::{
    pgbouncer::PgBouncer,
    postgres::{Durability, Postgres},
    shared::{POOLER, VARIABLE},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env,
    mem::ManuallyDrop,
    os::unix::process::ExitStatusExt,
    process::{ExitCode, ExitStatus},
};
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(status) => code(status),
        Err(error) => {
            eprintln!("with-servers: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitStatus, Box<dyn std::error::Error>> {
    let mut words = env::args_os().skip(1).peekable();
    let pooled = words.next_if(|word| word == "--pooled").is_some();
    let program = words.next().ok_or("usage: with-servers [--pooled] COMMAND [ARGUMENT..]")?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // Cleared away behind this process, as when it is killed: after hundreds of databases that takes longer than anybody has to wait.
    let server = ManuallyDrop::new(Postgres::start(Durability::Fast)?);
    eprintln!("with-servers: {VARIABLE}={}", server.url());
    let pooler = if pooled { Some(ManuallyDrop::new(PgBouncer::start(&server)?)) } else { None };
    let mut command = Command::new(&program);
    command.args(words).env(VARIABLE, server.url());
    if let Some(pooler) = &pooler {
        command.env(POOLER, pooler.url(""));
    }
    let mut command = command.spawn()?;
    loop {
        tokio::select! {
            status = command.wait() => return Ok(status?),
            // The terminal has told the command as well, and a second time would mean more to it.
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {
                if let Some(pid) = command.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)) {
                    let _gone = kill_process(pid, Signal::TERM);
                }
            }
        }
    }
}

/// As shells have it: 128 and the signal, for what was killed.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

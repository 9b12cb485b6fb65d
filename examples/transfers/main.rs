//! Money moved between accounts in the database of the store, each transfer and what follows from it once, however often the working
//! process is killed: `cargo run --release --example transfers -- --chaos 20 --seed 7`. See `--help`.
#![allow(clippy::disallowed_methods, reason = "an application is free to spawn and read clocks")]

mod tasks;
mod worker;

use std::cell::Cell;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;
use lobster_examples::database::Database;
use lobster_examples::options::{default_folder, exit_code};
use lobster_examples::supervisor::{End, single};
use lobster_examples::transfers::bank::Bank;
use lobster_examples::transfers::options::{self, Options, Role};

fn main() -> ExitCode {
    exit_code(play())
}

fn play() -> anyhow::Result<ExitCode> {
    let (role, options) = options::parse(std::env::args_os().skip(1), &default_folder("transfers")?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match role {
        Role::Supervise => runtime.block_on(supervise(&options)),
        Role::Work { hold } => runtime.block_on(worker::work(&options, hold)).map(|()| ExitCode::SUCCESS),
        Role::Help => {
            print!("{}", options::HELP);
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn supervise(options: &Options) -> anyhow::Result<ExitCode> {
    let Options { db, transfers, chaos, seed } = options;
    if let Some(folder) = Database::of(db)?.file().and_then(Path::parent) {
        std::fs::create_dir_all(folder).with_context(|| format!("the folder {}", folder.display()))?;
    }
    let mut bank = Bank::open(db).await?;
    bank.found().await?;
    let done = bank.receipts().await?;
    // Nobody but the working process has the file open while that lives.
    bank.close().await?;

    let program = std::env::current_exe().context("the path of this program")?;
    let kills = Cell::new(0);
    let job = single::Job {
        unit: "transfers",
        total: *transfers,
        step: 1,
        done: done.min(*transfers),
        chaos: *chaos,
        seed: *seed,
        work: &|hold| {
            let mut command = Command::new(&program);
            command.args(options.work(hold));
            command
        },
        killed: &|| {
            kills.set(kills.get() + 1);
            Box::pin(note_kill(db))
        },
        words: &|| Ok(format!("{} kills", kills.get())),
    };
    let end = single::supervise(&job).await?;
    if let End::Failed(why) = &end {
        eprintln!("{why}");
    }
    let figures = Bank::open(db).await?.figures(*transfers).await?;
    println!("{figures}");
    Ok(match end {
        End::Interrupted(code) => ExitCode::from(code),
        End::Done if figures.are_good() => ExitCode::SUCCESS,
        End::Done | End::Failed(_) => ExitCode::FAILURE,
    })
}

async fn note_kill(db: &str) -> anyhow::Result<()> {
    let mut bank = Bank::open(db).await?;
    bank.add_kill().await?;
    bank.close().await
}

//! 11,008 navaids as one run whose state grows with every page, and of which only what is new is ever written, however often the
//! working process is killed: `cargo run --release --example navaids -- --chaos 20 --seed 7`. See `--help`.
#![allow(clippy::disallowed_methods, reason = "an application is free to spawn and read clocks")]

mod door;
mod import;
mod verdict;
mod whole;
mod worker;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;
use lobster_core::{Client, Lobster};
use lobster_examples::database::Database;
use lobster_examples::ledger::wall_ms;
use lobster_examples::navaids::options::{self, Options, Role};
use lobster_examples::navaids::rows::{PAGE, all_rows};
use lobster_examples::navaids::tally::{Counts, Fact, Tally};
use lobster_examples::options::{default_folder, exit_code};
use lobster_examples::supervisor::{End, single};
use verdict::Verdict;

fn main() -> ExitCode {
    exit_code(play())
}

fn play() -> anyhow::Result<ExitCode> {
    let (role, options) = options::parse(std::env::args_os().skip(1), &default_folder("navaids")?)?;
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
    let tally = &options.tally;
    make_folders(options)?;
    let client = Lobster::open(&options.db).connect().await?;
    begin(&client, tally).await?;
    let program = std::env::current_exe().context("the path of this program")?;
    let work = |hold| {
        let mut command = Command::new(&program);
        command.args(options.work(hold));
        command
    };
    let begun = Counts::read(tally)?.unwrap_or_default().begun;
    let job = single::Job {
        unit: "rows",
        total: all_rows()?.len() as u64,
        step: PAGE as u64,
        done: begun.last_key_value().map_or(0, |(page, _)| *page),
        chaos: options.chaos,
        seed: options.seed,
        work: &work,
        killed: &|| Box::pin(async { Ok(Tally::open(tally)?.add(&Fact::Kill)?) }),
        words: &|| {
            let counts = Counts::read(tally)?.unwrap_or_default();
            Ok(format!("{} KiB written, {} kills", counts.written / 1024, counts.kills))
        },
    };
    let end = single::supervise(&job).await?;

    let verdict = Verdict::read(&client, Counts::read(tally)?.unwrap_or_default()).await?;
    let checked = verdict.check(end == End::Done);
    if let End::Failed(why) = &end {
        eprintln!("{why}");
    }
    if let Err(wrong) = &checked {
        eprintln!("{wrong:#}");
    }
    if end == End::Done && checked.is_ok() {
        Tally::open(tally)?.add(&Fact::Done)?;
    }
    println!("{verdict}");
    Ok(match end {
        _ if checked.is_err() => ExitCode::FAILURE,
        End::Done => ExitCode::SUCCESS,
        End::Interrupted(code) => ExitCode::from(code),
        End::Failed(_) => ExitCode::FAILURE,
    })
}

fn make_folders(options: &Options) -> anyhow::Result<()> {
    let files = Database::of(&options.db)?.file().into_iter().chain([options.tally.as_path()]);
    for folder in files.filter_map(Path::parent) {
        std::fs::create_dir_all(folder).with_context(|| format!("the folder {}", folder.display()))?;
    }
    Ok(())
}

/// Goes on with the import that the tally has, or begins the next: after one that has ended, and where its records are gone.
async fn begin(client: &Client, tally: &Path) -> anyhow::Result<()> {
    let goes_on = match Counts::read(tally)?.filter(|counts| !counts.done && !counts.import.is_empty()) {
        Some(counts) => client.find(counts.import).await?.is_some(),
        None => false,
    };
    if goes_on {
        return Ok(());
    }
    if tally.exists() {
        std::fs::remove_file(tally).with_context(|| tally.display().to_string())?;
    }
    Ok(Tally::open(tally)?.add(&Fact::Import(format!("navaids-{}", wall_ms())))?)
}

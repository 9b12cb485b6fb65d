//! 830 real orders through lobster, with a supervisor that kills the working process as often as you like:
//! `cargo run --release --example orders -- --chaos 20 --seed 7`. One program plays all parts, see `--help`.
#![allow(clippy::disallowed_methods, reason = "an application is free to spawn and read clocks")]

mod checkout;
mod worker;

use std::process::{Command, ExitCode};
use std::sync::Arc;

use anyhow::Context;
use lobster_examples::options::{self, Options, Role};
use lobster_examples::supervisor::{self, End, Job, Programs};
use lobster_examples::{book, ledger};

fn main() -> ExitCode {
    options::exit_code(play())
}

fn play() -> anyhow::Result<ExitCode> {
    let (role, options) = options::parse(std::env::args_os().skip(1), &options::default_folder("orders")?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match role {
        Role::Supervise => runtime.block_on(supervise(&options)),
        Role::Ledger => runtime.block_on(ledger::serve(&options.ledger, ledger::IDLE_MAX)).map(|()| ExitCode::SUCCESS),
        Role::Work => runtime.block_on(worker::work(&options)).map(|()| ExitCode::SUCCESS),
        Role::Report => runtime.block_on(worker::report(&options)).map(|()| ExitCode::SUCCESS),
        Role::Help => {
            print!("{}", options::HELP);
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn supervise(options: &Options) -> anyhow::Result<ExitCode> {
    options.make_folders()?;
    let program = std::env::current_exe().context("the path of this program")?;
    let for_parts = options.clone();
    let programs: Programs = Arc::new(move |role| {
        let mut command = Command::new(&program);
        command.args(for_parts.arguments(role));
        command
    });
    let orders = book::all_orders()?.into_iter().take(options.orders).map(|order| order.id).collect();
    let Options { ledger, nodes, chaos, seed, .. } = options.clone();
    let job = Job { ledger, orders, nodes, chaos, seed };
    let verdict = supervisor::supervise(&job, &programs).await?;
    if let End::Failed(why) = &verdict.end {
        eprintln!("{why}");
    }
    println!("{}", verdict.figures);
    Ok(ExitCode::from(verdict.exit_code()))
}

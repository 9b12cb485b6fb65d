//! Figures of the engine on this machine, each beside the bare store of the same minutes.
//!
//! Invariant: whatever the values are, each figure that was asked for prints its line, and the exit code is 0.
//!
//! `cargo run --release -p benches -- --store sqlite|postgres [figure ..]`

#![allow(clippy::disallowed_methods, reason = "a benchmark reads clocks and spawns its load")]

mod bare;
mod counters;
mod figures;
mod meter;
mod options;
mod report;
mod site;
mod work;

use options::{Command, Options};
use std::process::ExitCode;

/// What can go wrong in a benchmark: it is told, and the figure is left out.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let command = match options::parse() {
        Ok(command) => command,
        Err(error) => {
            eprintln!("{error}\n\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    // On a worker, as in a service: the thread that blocks on a runtime is not one of its workers.
    let done = match command {
        Command::Help => {
            println!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Command::Child(child) => runtime.block_on(runtime.spawn(figures::restart::child(child))),
        Command::Measure(options) => runtime.block_on(runtime.spawn(measure(options))),
    };
    match done.map_err(Into::into).and_then(|done| done) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: Options) -> Result<()> {
    let site = site::Site::make(&options)?;
    let machine = report::machine();
    let mut table = report::Table::new(&machine, options.store);
    for figure in &options.figures {
        match figures::measure(&site, &options, figure).await {
            Ok(Some(rounds)) => table.add(report::line(figure, &options, &machine, &rounds)),
            Ok(None) => eprintln!("{}: not on this store", figure.name),
            Err(error) => eprintln!("{}: {error}", figure.name),
        }
    }
    table.print();
    site.close().await
}

//! Rule: each planted bug is found within its budget of seeds; a simulation that sees nothing proves nothing.
//!
//! Empty unless built with `--cfg lobster_planted`; `tests/planted` does that, and chooses the bug by `LOBSTER_BUG`.

#![cfg(lobster_planted)]
#![allow(missing_docs, reason = "tests are named as sentences")]

use lobster_sim::run;

/// Seeds within which a planted bug must be found.
const BUDGET: u64 = 6000;

#[test]
fn the_chosen_bug_is_found() {
    let Ok(bug) = std::env::var("LOBSTER_BUG") else { return };
    // Bugs may well panic: that is a finding, and told by the report.
    std::panic::set_hook(Box::new(|_| {}));
    for seed in 0..BUDGET {
        let report = run(seed, false);
        if let Some(violation) = report.violations.first() {
            println!("{bug}: found by seed {seed}: {violation}");
            return;
        }
    }
    println!("{bug}: not found by {BUDGET} seeds");
    std::process::abort();
}

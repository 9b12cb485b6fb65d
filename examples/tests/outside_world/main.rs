//! The rule defended here: what the ledger has answered is true for ever, and the supervisor's last line tells what
//! really happened, whatever was killed meanwhile.
#![allow(clippy::disallowed_methods, reason = "an application is free to spawn and read clocks")]

mod ledger;
mod stand_in;
mod supervised;

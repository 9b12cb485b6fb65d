//! What the PostgreSQL tier promises beyond the contract, on real servers: races, plans, bad days, installations.
#![cfg(feature = "postgres")]
#![allow(clippy::disallowed_methods, reason = "tests of real servers live in real time")]

mod bad_days;
mod calendar;
mod codes;
mod contest;
mod hints;
mod installations;
mod kit;
mod network;
mod plans;
mod pooler;
mod races;
mod schema;
mod standby;
mod times;
mod tls;

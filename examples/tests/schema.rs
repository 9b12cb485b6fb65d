//! The rule defended here: what the program prints, and what it applies, is what a process wants to find. The `schema` example, as a person
//! starts it.
#![cfg(feature = "postgres")]

use std::process::Command;

use lobster_servers::{psql::sql, shared};

/// Whether it says that all is well, and what it says.
fn schema(arguments: &[&str]) -> (bool, String) {
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.ancestors().nth(2).expect("a test lies in <profile>/deps");
    let output = Command::new(profile.join("examples/schema")).args(arguments).output().expect("the example can be started");
    (output.status.success(), [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat())
}

#[test]
fn what_is_printed_makes_an_installation_on_postgres_that_a_worker_can_use() {
    let url = shared::postgres();
    let (empty, why) = schema(&["verify", &url, "worker"]);
    assert!(!empty && why.contains("has version 0, this code needs 1"), "{why}");
    let [tables, roles] = [["sql", "shop"], ["roles", "shop"]].map(|arguments| schema(&arguments));
    assert!(tables.0 && roles.0, "{} {}", tables.1, roles.1);
    let worker = shared::as_member(&url, "shop_worker", &format!("{}{}", tables.1, roles.1));
    let worker = format!("{worker}?lobster_schema=shop");
    for (role, fits) in [("worker", true), ("view", true), ("nobody", false)] {
        let (fitted, said) = schema(&["verify", &worker, role]);
        assert_eq!(fitted, fits, "{role}: {said}");
    }
    for (arguments, why) in [(["sql", "shop", "1"], "nothing is newer"), (["sql", "Shop", "0"], "lower-case")] {
        let (printed, said) = schema(&arguments);
        assert!(!printed && said.contains(why), "{said}");
    }
}

#[test]
fn what_is_applied_to_postgres_is_there_and_nothing_is_done_twice() {
    let url = shared::postgres();
    let tables = || sql(&url, "SELECT count(*), min(oid) FROM pg_class WHERE relnamespace = 'lobster'::regnamespace").unwrap();
    // Whatever processes are told to do by themselves.
    let (applied, said) = schema(&["migrate", &format!("{url}?lobster_migrate=false")]);
    assert!(applied, "{said}");
    let before = tables();
    assert!(schema(&["migrate", &url]).0);
    assert_eq!(tables(), before);
    let (nothing, help) = schema(&[]);
    assert!(!nothing && help.contains("schema migrate URL"), "{help}");
}

//! Every figure prints one line of the agreed form, whatever its value; sizes are scaled down, so no value means anything here.

use serde_json::Value;
use std::process::Command;

const KEYS: [&str; 11] = ["figure", "store", "machine", "value", "unit", "min", "max", "syncs", "bare", "ratio", "mode"];

fn lines(store: &str, options: &[&str]) -> Vec<Value> {
    let bench = Command::new(env!("CARGO_BIN_EXE_benches"))
        .args(["--store", store, "--scale", "100", "--rounds", "2"])
        .args(options)
        .output()
        .expect("the bench starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&bench.stdout), String::from_utf8_lossy(&bench.stderr));
    assert!(bench.status.success(), "{stderr}");
    stdout.lines().map(|line| check(line, store)).collect()
}

fn check(line: &str, store: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let object = value.as_object().unwrap_or_else(|| panic!("no object: {line}"));
    assert_eq!(object.len(), KEYS.len(), "{line}");
    let places: Vec<_> = KEYS.iter().map(|key| line.find(&format!("\"{key}\":"))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{line}");
    assert_eq!(value["store"], store, "{line}");
    for key in ["value", "min", "max"] {
        assert!(value[key].as_f64().is_some_and(|number| number > 0.0), "{key}: {line}");
    }
    if let (Some(ratio), Some(number), Some(bare)) = (value["ratio"].as_f64(), value["value"].as_f64(), value["bare"].as_f64()) {
        // Both were rounded for the line, to ones or tenths or less, and the ratio to thousandths.
        let half = |number: f64| if number.abs() >= 1_000.0 { 0.5 } else { 0.05 };
        let (least, most) =
            ((number - half(number)) / (bare + half(bare)), (number + half(number)) / (bare - half(bare)).max(0.0));
        assert!((least - 0.001..=most + 0.001).contains(&ratio), "{ratio} is not {number} / {bare}: {line}");
    }
    assert!(value["syncs"].is_u64() && value["machine"].is_string() && value["mode"].is_string(), "{line}");
    value
}

fn names(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["figure"].as_str()).collect()
}

#[test]
fn all_figures_on_sqlite_stand_beside_the_bare_store() {
    let lines = lines("sqlite", &[]);
    assert_eq!(
        names(&lines),
        [
            "W1", "W1L", "W1d", "W1i", "W2", "W2i", "W3", "W3b", "W5", "W6", "W6b", "W6log", "W6logb", "W6table", "W6tableb",
            "W11", "W12", "W12rows"
        ]
    );
    for line in &lines {
        assert!(line["bare"].as_f64().is_some_and(|bare| bare > 0.0), "{line}");
        assert_eq!(line["ratio"].is_null(), ["W5", "W11", "W12rows"].contains(&line["figure"].as_str().unwrap_or("")), "{line}");
    }
}

#[test]
fn all_figures_of_steps_and_submits_on_postgres_stand_beside_the_bare_store() {
    // The figures of state say nothing of a store that others do not, and take long to be quiet.
    let figures = ["W1", "W1d", "W1i", "W2", "W2i", "W2s", "W2c", "W2w", "W3", "W3b", "W5", "W7", "W8", "W16"];
    let lines = lines("postgres", &figures);
    assert_eq!(names(&lines), figures);
    for line in &lines {
        assert!(line["bare"].as_f64().is_some_and(|bare| bare > 0.0), "{line}");
        let alone = ["W2s", "W2c", "W2w", "W5", "W8", "W16"].contains(&line["figure"].as_str().unwrap_or(""));
        assert_eq!(line["ratio"].is_null(), alone, "{line}");
    }
}

#[test]
fn in_memory_there_is_no_bare_store() {
    let lines = lines("memory", &[]);
    assert_eq!(
        names(&lines),
        ["W1", "W1L", "W1d", "W1i", "W2", "W2i", "W3", "W3b", "W6", "W6b", "W6log", "W6logb", "W6table", "W6tableb", "W12"]
    );
    // The figures of state are set beside others of their own.
    let (own, bare): (Vec<Value>, Vec<Value>) =
        lines.into_iter().partition(|line| line["figure"].as_str().is_some_and(|name| name.starts_with("W6")));
    assert!(own.iter().all(|line| line["bare"].is_number() && line["ratio"].is_number()), "{own:?}");
    assert!(bare.iter().all(|line| line["bare"].is_null() && line["ratio"].is_null()), "{bare:?}");
}

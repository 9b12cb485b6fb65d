//! The tree keeps its own rules: what documents say of the code, who may import whom, what must not be left behind.
//!
//! Rule: whatever a person would have to remember in a review, a machine checks here; a check reads, it never mends.

#![allow(missing_docs, reason = "tests are named as sentences")]

#[path = "tidy/imports.rs"]
mod imports;

use serde_json::Value;
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

// ---- the tree -------------------------------------------------------------------------------------------------------

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in the workspace").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every text file of the tree, by its path from the root. Build results and hidden folders other than `.ci` are none of it.
fn tree() -> Vec<(String, String)> {
    fn walk(folder: &Path, root: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).expect("a folder of the tree can be read") {
            let path = entry.expect("an entry can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let hidden = name.starts_with('.') && name != ".ci" && name != ".gitignore" && name != ".cargo";
            if hidden || name.starts_with("target") {
                continue;
            }
            if path.is_dir() {
                walk(&path, root, found);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let path = path.strip_prefix(root).expect("it was found below the root");
                found.push((path.to_string_lossy().into_owned(), text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &root(), &mut found);
    found.sort();
    found
}

fn rust_below(folder: &str) -> Vec<(String, String)> {
    tree().into_iter().filter(|(path, _)| path.starts_with(folder) && path.ends_with(".rs")).collect()
}

fn documents() -> Vec<(String, String)> {
    tree().into_iter().filter(|(path, _)| path.ends_with(".md")).collect()
}

/// Lines of code with their numbers: without comments, and without what is compiled for unit tests only.
fn code(text: &str) -> Vec<(usize, &str)> {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default();
        if !line.trim().is_empty() {
            lines.push((at + 1, line));
        }
    }
    lines
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// Names of the variants of an enum in a file.
fn variants(path: &str, of: &str) -> Vec<String> {
    let text = read(path);
    let head = format!("pub enum {of} {{");
    let body = text.split(&head).nth(1).unwrap_or_else(|| panic!("{path} has no {of}")).split("\n}").next().unwrap_or_default();
    let is_variant = |line: &&str| line.starts_with("    ") && line[4..].starts_with(|c: char| c.is_ascii_uppercase());
    let name = |line: &str| line.trim().chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
    let found: Vec<String> = body.lines().filter(is_variant).map(name).collect();
    assert!(!found.is_empty(), "{path}: {of} has no variants");
    found
}

/// Texts between double quotes on lines of code.
fn literals(text: &str) -> Vec<&str> {
    code(text).into_iter().flat_map(|(_, line)| line.split('"').skip(1).step_by(2)).collect()
}

/// `AmbiguousStep`, but not `charge` nor `P13`.
fn is_code_word(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.chars().all(|c| c.is_ascii_alphabetic())
        && word.chars().filter(char::is_ascii_uppercase).count() >= 2
        && word.chars().any(|c| c.is_ascii_lowercase())
}

// ---- documents ------------------------------------------------------------------------------------------------------

#[test]
fn the_example_of_the_readme_is_the_program_that_is_built() {
    let program = read("examples/first_run.rs");
    let program: Vec<&str> = program.lines().skip_while(|line| line.starts_with("//!") || line.is_empty()).collect();
    let readme = read("README.md");
    let shown = readme.split("```rust,no_run\n").nth(1).and_then(|rest| rest.split("\n```").next());
    assert_eq!(shown, Some(program.join("\n").as_str()), "README.md and examples/first_run.rs differ");
}

#[test]
fn every_kind_reason_and_code_is_explained() {
    let errors = read("docs/errors.md");
    let mut words = BTreeSet::new();
    for (path, of) in [
        ("lobster-core/src/error.rs", "ErrorKind"),
        ("lobster-core/src/error.rs", "StepFailedKind"),
        ("lobster-core/src/error.rs", "RunFailed"),
        ("lobster-core/src/view.rs", "Reason"),
        ("lobster-store/src/contract/journal.rs", "RunState"),
    ] {
        words.extend(variants(path, of));
    }
    for (_, text) in
        ["call.rs", "irreversible.rs", "path/"].iter().flat_map(|file| rust_below(&format!("lobster-core/src/{file}")))
    {
        words.extend(literals(&text).into_iter().filter(|word| is_code_word(word)).map(str::to_owned));
    }
    for code in ["StepInsideStep", "DuplicateStepKey", "InDoubt"] {
        assert!(words.contains(code), "{code} was not found in the code: is this test still looking in the right place?");
    }
    let missing: Vec<_> = words.into_iter().filter(|word| !errors.contains(&format!("`{word}`"))).collect();
    assert_none("docs/errors.md does not explain", &missing);
}

#[test]
fn the_codes_told_by_the_kind_refused_are_those_of_the_code() {
    let text = read("lobster-core/src/error.rs");
    let told = text.split("/// The engine refused the call").nth(1).and_then(|rest| rest.split("Never recorded").next());
    let told: BTreeSet<_> = told.expect("the kind has its doc").split('`').filter(|word| is_code_word(word)).collect();
    let calls = read("lobster-core/src/call.rs");
    let used: BTreeSet<_> = literals(&calls).into_iter().filter(|word| is_code_word(word)).collect();
    assert_eq!(told, used);
}

#[test]
fn what_is_called_stable_is_what_the_code_has() {
    let stability = read("docs/stability.md");
    let mut missing = Vec::new();
    let schema = read("lobster-store/src/sqlite/schema.rs");
    for table in schema.lines().filter_map(|line| line.split("CREATE TABLE ").nth(1)) {
        let name = table.trim_start_matches("IF NOT EXISTS ").split(' ').next().unwrap_or_default();
        if !stability.contains(&format!("`{name}`")) {
            missing.push(format!("table {name}"));
        }
    }
    let names = read("lobster-core/src/name.rs");
    let golden = names.split("derivations_have_golden_values").nth(1).and_then(|rest| rest.split("#[test]").next());
    let values = golden.expect("the golden values are tested").split('"').skip(1).step_by(2);
    let values: Vec<_> = values.filter(|value| value.len() >= 32).collect();
    assert!(values.len() >= 5, "{values:?}");
    missing.extend(values.into_iter().filter(|value| !stability.contains(*value)).map(|value| format!("golden value {value}")));
    assert_none("docs/stability.md does not name", &missing);
}

#[test]
fn links_between_documents_lead_to_files() {
    let mut broken = Vec::new();
    for (path, text) in documents() {
        let folder = root().join(&path).parent().expect("a file lies in a folder").to_owned();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            // Links of rustdoc are checked by rustdoc.
            let elsewhere = target.contains("://") || target.contains("::") || !target.contains(['.', '/']);
            if !file.is_empty() && !elsewhere && !folder.join(file).exists() {
                broken.push(format!("{path}: {target}"));
            }
        }
    }
    assert_none("broken links", &broken);
}

#[test]
fn decisions_say_what_they_gave_up() {
    let decisions: Vec<_> = documents().into_iter().filter(|(path, _)| path.starts_with("docs/adr/")).collect();
    assert!(decisions.len() > 1);
    let mut missing = Vec::new();
    for (path, text) in decisions.iter().filter(|(path, _)| !path.ends_with("README.md")) {
        for section in ["Context", "Decision", "Consequences", "Non-goals", "Rejected"] {
            if !text.contains(&format!("\n## {section}")) {
                missing.push(format!("{path}: {section}"));
            }
        }
    }
    assert_none("sections missing", &missing);
}

#[test]
fn licences_and_changelog_are_there() {
    assert!(read("LICENSE-MIT").contains("The lobster authors"));
    assert!(read("LICENSE-APACHE").contains("Apache License"));
    let manifest = read("Cargo.toml");
    assert!(manifest.contains("license = \"MIT OR Apache-2.0\""));
    let version =
        manifest.split("\nversion = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("the workspace has a version");
    assert!(read("CHANGELOG.md").contains(version), "CHANGELOG.md does not mention {version}");
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let mut silent = Vec::new();
    for (path, text) in tree() {
        if !path.ends_with(".rs") || !path.contains("/src/") || code(&text).is_empty() {
            continue;
        }
        let told: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
        let told = told.join(" ");
        // Tests open with the one rule that they defend; everything else with what it is for and what must stay true.
        let tests = path.contains("/conformance/cases/") || path.ends_with("/tests.rs") || path.ends_with("/plans.rs");
        let sentences = told.split(". ").filter(|sentence| !sentence.trim().is_empty()).count();
        if sentences < if tests { 1 } else { 2 } {
            silent.push(path);
        }
    }
    assert_none("these do not open with what they are for and what must stay true", &silent);
}

// ---- what must not be left behind -----------------------------------------------------------------------------------

#[test]
fn no_test_is_switched_off_and_nothing_is_left_undone() {
    let words = [concat!("#[", "ignore"), concat!("to", "do!("), concat!("unimpl", "emented!(")];
    let mut found = Vec::new();
    for (path, text) in tree().into_iter().filter(|(path, _)| path.ends_with(".rs")) {
        let bad = |line: &&str| words.iter().any(|word| line.contains(word));
        found.extend(text.lines().filter(bad).map(|line| format!("{path}: {}", line.trim())));
    }
    assert_none("left behind", &found);
}

#[test]
fn only_a_proof_of_expiry_revokes_a_node() {
    let (mut found, mut revokes) = (Vec::new(), 0);
    for (path, text) in rust_below("lobster-core/src") {
        for (line, text) in code(&text) {
            let (revoked, stated) = (text.contains(".revoke("), text.contains("Evidence::"));
            revokes += usize::from(revoked);
            // Where the type is whose values are proofs; nobody else can make one.
            if (revoked || stated) && !path.ends_with("lobster-core/src/watch.rs") {
                found.push(format!("{path}:{line}: {text}"));
            }
        }
    }
    assert_none("revokes a node without a proof", &found);
    assert_eq!(revokes, 1, "one place asks for it");
}

#[test]
fn a_test_that_needs_a_server_says_so_in_its_name() {
    // `tests/run --skip-system` leaves it out by that, and a pooler is put before it by that.
    let mut found = Vec::new();
    for (path, text) in rust_below("tests/tests/engine").into_iter().filter(|(_, text)| text.contains("use lobster_servers::")) {
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            // At the left: what a macro makes has the name of its store.
            let test = line == "#[test]" || line.starts_with("#[tokio::test");
            if let Some(name) = lines.peek().filter(|name| test && !name.contains("postgres")) {
                found.push(format!("{path}: {name}"));
            }
        }
    }
    assert_none("these need a server, and their names do not say so", &found);
}

#[test]
fn a_sleeping_thread_says_why() {
    let word = concat!("thread::", "sleep(");
    let mut found = Vec::new();
    for (path, text) in tree().into_iter().filter(|(path, _)| path.ends_with(".rs")) {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.contains(word)) {
            let above = at.checked_sub(1).map_or("", |at| lines[at].trim());
            if !line.contains("//") && !above.starts_with("//") {
                found.push(format!("{path}:{}", at + 1));
            }
        }
    }
    assert_none("threads sleep without a reason", &found);
}

#[test]
fn no_machine_is_named() {
    let folders = ["home", "root", "work", "Users", "opt", "srv"].map(|folder| format!("/{folder}/"));
    let settings = ["replace-with", concat!("index", "-url"), concat!("extra-", "index")];
    let mut found = Vec::new();
    for (path, text) in tree() {
        if [".npmrc", "pip.conf", ".cargo/config"].iter().any(|name| path.contains(name)) {
            found.push(format!("{path}: a setting of one machine"));
        }
        if path.ends_with("tidy.rs") {
            continue;
        }
        for (at, line) in text.lines().enumerate() {
            let starts = |folder: &String| {
                line.match_indices(folder.as_str())
                    .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}*)>".contains(c)))
            };
            if folders.iter().any(starts) || settings.iter().any(|setting| line.contains(setting)) {
                found.push(format!("{path}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    assert_none("the tree names a machine", &found);
    let lock = read("Cargo.lock");
    let sources: BTreeSet<_> = lock.lines().filter_map(|line| line.strip_prefix("source = ")).collect();
    assert_eq!(sources, BTreeSet::from(["\"registry+https://github.com/rust-lang/crates.io-index\""]), "Cargo.lock");
}

// ---- dependencies ---------------------------------------------------------------------------------------------------

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().expect("cargo can be started");
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo speaks UTF-8")
}

#[test]
fn the_embedded_default_brings_no_tls_no_http_and_no_network_store() {
    assert_light("lobster-core", "normal");
    assert_light("lobster-examples", "normal,dev");
    // What `cargo run --example` builds, of all that is here: it names no package. Nor does that die at a word in its environment.
    let edges = "features,normal,dev,build";
    let built = cargo(&["tree", "-e", edges, "--offline", "--prefix", "none", "--format", "{p} {f}"]);
    let core: BTreeSet<_> = built.lines().filter(|line| line.starts_with("lobster-core v") && line.contains(") ")).collect();
    assert!(!core.is_empty() && !built.contains("sqlx-postgres v"), "{core:?}");
    assert!(core.iter().all(|line| line.contains("sqlite") && !line.contains("crash-points")), "{core:?}");
}

/// Without features that somebody asks for, a package brings nothing that speaks over a network.
fn assert_light(package: &str, edges: &str) {
    let tree = cargo(&["tree", "-p", package, "-e", edges, "--offline", "--prefix", "none", "--format", "{p}"]);
    let names: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains("sqlx-sqlite"), "the default has SQLite: {names:?}");
    let network = [
        "rustls",
        "ring",
        "aws-lc",
        "openssl",
        "native-tls",
        "schannel",
        "security-framework",
        "hyper",
        "h2",
        "reqwest",
        "ureq",
        "curl",
        "redis",
        "deadpool",
        "postgres",
        "tokio-postgres",
        "sqlx-postgres",
        "sqlx-mysql",
        "object_store",
    ];
    let found: Vec<_> = names
        .iter()
        .filter(|name| network.iter().any(|word| **name == *word || name.starts_with(&format!("{word}-"))))
        .map(|name| (*name).to_owned())
        .collect();
    assert_none(&format!("the default features of {package} bring"), &found);
}

#[test]
fn every_dependency_builds_with_the_stated_rust() {
    let host = cargo(&["-vV"]);
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo says where it runs");
    let metadata = cargo(&["metadata", "--format-version", "1", "--offline", "--filter-platform", host]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("there are packages");
    let version =
        |text: &str| -> Vec<u64> { text.split('.').map(|part| part.parse().unwrap_or(0)).chain([0, 0]).take(3).collect() };
    let stated = packages.iter().find(|package| package["name"] == "lobster-core").and_then(|core| core["rust_version"].as_str());
    let stated = stated.expect("lobster-core states its Rust");
    let mut newer = Vec::new();
    for package in packages {
        if let Some(needs) = package["rust_version"].as_str()
            && version(needs) > version(stated)
        {
            newer.push(format!("{} {} needs {needs}", package["name"], package["version"]));
        }
    }
    assert_none(&format!("these need a newer Rust than {stated}"), &newer);
    let clippy = read("clippy.toml");
    assert!(clippy.contains(&format!("msrv = \"{stated}")), "clippy.toml checks another Rust than {stated}");
    assert!(read("README.md").contains(stated), "README.md names another Rust than {stated}");
}

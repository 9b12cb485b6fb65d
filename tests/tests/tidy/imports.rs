//! Who may import whom.
//!
//! Rule: what a layer or a tier must not know, no line of its code names.

use super::{assert_none, code, read, rust_below};

/// Lines of code below `folder` that name something they must not.
fn offences(folder: &str, forbidden: impl Fn(&str) -> bool) -> Vec<String> {
    let files = rust_below(folder);
    assert!(!files.is_empty(), "{folder} is gone: is this test still looking in the right place?");
    let mut found = Vec::new();
    for (path, text) in files {
        found.extend(
            code(&text).into_iter().filter(|(_, line)| forbidden(line)).map(|(at, line)| format!("{path}:{at}: {}", line.trim())),
        );
    }
    found
}

/// What follows each `crate::` of a line.
fn of_crate(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::").skip(1)
}

#[test]
fn the_contract_stands_alone() {
    let outside = |line: &str| of_crate(line).any(|rest| !rest.starts_with("contract")) || line.contains("super::super");
    assert_none("the contract imports", &offences("lobster-store/src/contract/", outside));
}

#[test]
fn tiers_see_the_contract_and_never_each_other() {
    // Planted bugs are nothing in an ordinary build.
    let allowed = |name: &String| ["contract", "local", "planted"].iter().any(|module| name.starts_with(module));
    let mut found = Vec::new();
    for tier in ["memory", "sqlite", "postgres"] {
        let above = offences(&format!("lobster-store/src/{tier}/"), |line| line.contains("super::super"));
        found.extend(above);
        for (path, text) in rust_below(&format!("lobster-store/src/{tier}/")) {
            let outside = named(&text).into_iter().filter(|name| !name.is_empty() && !allowed(name));
            found.extend(outside.map(|name| format!("{path} names {name}")));
        }
    }
    assert_none("a tier imports", &found);
}

#[test]
fn pure_modules_know_no_runtime_no_clock_and_no_host() {
    for module in ["image", "spec", "name", "codec"] {
        let impure = |line: &str| {
            // Arithmetic on a number that was drawn elsewhere.
            ["tokio", "Instant", "SystemTime", "host::", "rustix", "getrandom", "std::fs", "std::env", "std::thread", "std::net"]
                .iter()
                .any(|word| line.contains(word))
        };
        assert_none("a pure module uses", &offences(&format!("lobster-core/src/{module}.rs"), impure));
    }
}

#[test]
fn stations_of_the_path_do_not_import_each_other() {
    let sibling = |line: &str| of_crate(line).any(|rest| rest.starts_with("path")) || line.contains("super::");
    assert_none("a station imports", &offences("lobster-core/src/path/", sibling));
}

/// What a file names behind `crate::`: `call::Call` and `path::commit` for `use crate::{call::Call, path::commit}`.
fn named(text: &str) -> Vec<String> {
    let text: Vec<&str> = code(text).into_iter().map(|(_, line)| line).collect();
    let text = text.join("\n");
    let mut found = Vec::new();
    for rest in of_crate(&text) {
        // The paths before the braces that are open.
        let mut open: Vec<String> = Vec::new();
        let mut word = String::new();
        for c in rest.chars() {
            match c {
                '{' => open.push(std::mem::take(&mut word)),
                ',' | '}' if !open.is_empty() => {
                    found.push(open.concat() + &std::mem::take(&mut word));
                    if c == '}' {
                        open.pop();
                    }
                }
                c if c.is_alphanumeric() || c == '_' || c == ':' => word.push(c),
                c if c.is_whitespace() && !open.is_empty() => {}
                _ => break,
            }
        }
        found.push(word);
    }
    found
}

/// The layers of lobster-core, from the top, each with its modules: as ARCHITECTURE.md shows them.
fn layers() -> Vec<Vec<String>> {
    let document = read("ARCHITECTURE.md");
    let shown = document.split("### Layers").nth(1).and_then(|rest| rest.split("```").nth(1));
    let lines = shown.expect("ARCHITECTURE.md shows the layers").lines().filter(|line| !line.trim().is_empty());
    lines.filter_map(|line| line.split_once(':')).map(|(_, all)| all.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn modules_of_the_engine_name_only_their_own_layer_and_those_below() {
    let layers = layers();
    // Of `path` and `path::commit` the longer one counts.
    let layer_of = |path: &str| {
        let named = |module: &str| path == module || path.starts_with(&format!("{module}::"));
        let all = layers.iter().enumerate().flat_map(|(at, modules)| modules.iter().map(move |module| (module, at)));
        all.filter(|(module, _)| named(module)).max_by_key(|(module, _)| module.len()).map(|(_, at)| at)
    };
    let (mut found, mut checked) = (Vec::new(), 0);
    for (path, text) in rust_below("lobster-core/src/") {
        let module =
            path.trim_start_matches("lobster-core/src/").trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
        if module == "lib" || module == "engine" {
            continue;
        }
        let Some(own) = layer_of(&module) else {
            found.push(format!("{module} has no layer"));
            continue;
        };
        // Types that the crate exports are named without their module.
        for name in named(&text).iter().filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())) {
            checked += 1;
            match layer_of(name) {
                _ if name.starts_with("engine::") => {}
                Some(at) if at >= own => {}
                Some(_) => found.push(format!("{module} names {name}, which is above it")),
                None => found.push(format!("{module} names {name}, which has no layer")),
            }
        }
    }
    assert!(checked > 200, "only {checked} names were found: is this test still looking in the right place?");
    assert_none("against the order of the layers", &found);
}

#[test]
fn only_the_builder_names_a_product() {
    let product = |line: &str| {
        ["store::memory", "store::sqlite", "memory::", "sqlite::", "postgres::", "Sqlite", "sqlx"]
            .iter()
            .any(|word| line.contains(word))
    };
    let found = offences("lobster-core/src/", product);
    // The types of their transactions are part of the face: whoever writes a transactional step names one.
    let face = |line: &String| line.starts_with("lobster-core/src/lib.rs") && line.contains("Tx;");
    let found: Vec<_> =
        found.into_iter().filter(|line| !line.starts_with("lobster-core/src/builder.rs") && !face(line)).collect();
    assert_none("products are named", &found);
}

// ---- other systems --------------------------------------------------------------------------------------------------

#[test]
fn what_only_linux_has_is_named_in_a_module_of_its_own() {
    let spelled = ["all(target_os = \"linux\", not(lobster_portable))", "not(all(target_os = \"linux\", not(lobster_portable)))"];
    let linux = ["target_os", "lobster_portable", "Boottime", "fstatfs", "prctl", "os::linux"];
    let mut found = Vec::new();
    for crate_ in ["lobster-store/src/", "lobster-core/src/", "lobster-macros/src/"] {
        for offence in offences(crate_, |line| linux.iter().any(|word| line.contains(word))) {
            let in_place = offence.split(':').next().is_some_and(|path| path.ends_with("/host.rs"));
            let selected =
                !offence.contains("target_os") || spelled.iter().any(|one| offence.ends_with(&format!("#[cfg({one})]")));
            if !in_place || !selected {
                found.push(offence);
            }
        }
    }
    assert_none("`tests/portable` would not see the other side of", &found);
}

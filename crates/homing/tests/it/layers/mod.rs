//! Does every crate keep to its layer?
//!
//! The table "Which crates are there?" in `ARCHITECTURE.md` is the rule; every `Cargo.toml` says its layer; the sources
//! of pure crates are read. What is checked is said in [`rules`], and that a breach of each rule is found is tested here.

mod paths;
mod rules;
mod workspace;

use rules::breaches;
use workspace::{CrateFacts, Facts};

#[test]
fn this_workspace_keeps_to_its_layers() {
    let facts = workspace::read();
    assert!(facts.crates.len() >= 3, "found only {:?}", facts.crates);
    let breaches = breaches(&facts);
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

/// Three crates that keep all rules; each test below breaks one.
fn good() -> Facts {
    let named = |name: &str, layer: &str, dependencies: &[&str], source: &str| CrateFacts {
        name: name.to_owned(),
        layer: Some(layer.to_owned()),
        dependencies: dependencies.iter().map(|&d| d.to_owned()).collect(),
        sources: vec![("src/lib.rs".to_owned(), source.to_owned())],
    };
    Facts {
        table: [
            ("domain", "pure"),
            ("index", "pure"),
            ("config", "adapter"),
            ("homing", "binary"),
        ]
        .map(|(name, layer)| (name.to_owned(), layer.to_owned()))
        .to_vec(),
        crates: vec![
            named("domain", "pure", &[], "use std::fmt; use std::time::Duration;"),
            named(
                "index",
                "pure",
                &["domain", "arc-swap"],
                "use std::sync::Arc; // std::net is only named",
            ),
            named(
                "config",
                "adapter",
                &["domain", "toml"],
                "fn f() { std::env::var(\"X\"); std::fs::read(p); }",
            ),
            named(
                "homing",
                "binary",
                &["domain", "index", "config", "tokio"],
                "use std::time::Instant;",
            ),
        ],
        locked: [("arc-swap", "rustversion"), ("toml", "winnow"), ("tokio", "mio")]
            .map(|(name, needs)| (name.to_owned(), vec![needs.to_owned()]))
            .into(),
    }
}

fn broken(change: impl FnOnce(&mut Facts)) -> String {
    let mut facts = good();
    change(&mut facts);
    breaches(&facts).join("\n")
}

fn found(change: impl FnOnce(&mut Facts), expected: &str) {
    let report = broken(change);
    assert!(report.contains(expected), "expected {expected:?} in {report:?}");
}

#[test]
fn what_keeps_the_rules_is_not_reported() {
    assert_eq!(broken(|_| ()), "");
}

#[test]
fn what_a_build_tool_needs_is_no_breach_but_what_stands_beside_it_is() {
    let needs = |needed: &'static [&str]| {
        move |facts: &mut Facts| {
            let needed = needed.iter().map(|&name| name.to_owned()).collect();
            facts.locked.insert("arc-swap".to_owned(), needed);
            facts.locked.insert("cc".to_owned(), vec!["getrandom".to_owned()]);
        }
    };
    assert_eq!(broken(needs(&["cc"])), "");
    found(needs(&["cc", "getrandom"]), "index is pure but needs getrandom");
}

#[test]
fn a_dependency_on_a_lower_row_is_found() {
    found(
        |facts| facts.crates[0].dependencies.push("index".to_owned()),
        "domain depends on index, which is not above it",
    );
}

#[test]
fn a_crate_that_is_not_in_the_table_is_found() {
    found(|facts| drop(facts.table.remove(1)), "index is not in the table");
}

#[test]
fn a_crate_without_a_layer_or_with_another_one_is_found() {
    found(|facts| facts.crates[1].layer = None, "index declares no layer");
    found(
        |facts| facts.crates[1].layer = Some("adapter".to_owned()),
        "index declares layer adapter, the table says pure",
    );
}

#[test]
fn layers_out_of_order_in_the_table_are_found() {
    found(
        |facts| facts.table.swap(1, 2),
        "index (pure) stands below config (adapter)",
    );
}

#[test]
fn a_runtime_in_a_pure_crate_is_found() {
    found(
        |facts| facts.crates[1].dependencies.push("tokio".to_owned()),
        "index is pure but needs tokio",
    );
}

#[test]
fn entropy_behind_other_crates_is_found() {
    found(
        |facts| {
            facts.locked.insert("rustversion".to_owned(), vec!["ahash".to_owned()]);
            facts.locked.insert("ahash".to_owned(), vec!["getrandom".to_owned()]);
        },
        "index is pure but needs getrandom (arc-swap > rustversion > ahash > getrandom)",
    );
}

#[test]
fn what_a_pure_crate_inherits_from_another_is_found_in_both() {
    let report = broken(|facts| facts.crates[0].dependencies.push("rand".to_owned()));
    assert!(report.contains("domain is pure but needs rand"), "{report}");
    assert!(
        report.contains("index is pure but needs rand (domain > rand)"),
        "{report}"
    );
}

#[test]
fn forbidden_names_in_the_sources_of_a_pure_crate_are_found() {
    for (source, name) in [
        ("use std::net::TcpStream;", "std::net"),
        ("use std::{fmt, time::{Duration, Instant}};", "std::time::Instant"),
        (
            "fn f() { let t = std::time::SystemTime::now(); }",
            "std::time::SystemTime",
        ),
        ("use std::time; fn f() { time::Instant::now(); }", "std::time::Instant"),
        ("use std::time::Instant as Clock;", "std::time::Instant"),
        ("use std::time::*;", "std::time::*"),
        (
            "use std::thread as t; fn f() { t::spawn(|| ()); }",
            "std::thread::spawn",
        ),
        ("fn f() { std::env::var(x); }", "std::env"),
        ("use std::fs::{self, File};", "std::fs"),
        ("fn f() { println!(\"x\"); }", "println!"),
        ("fn f() { rand::random(); }", "rand"),
        ("use std::hash::RandomState;", "std::hash::RandomState"),
        ("mod a { mod b { use ::std::process::Command; } }", "std::process"),
        ("#[cfg(not(test))] use std::net::TcpStream;", "std::net"),
        (
            "#[cfg(test)] mod tests { fn f() {} } use std::net::TcpStream;",
            "std::net",
        ),
    ] {
        found(
            |facts| source.clone_into(&mut facts.crates[1].sources[0].1),
            &format!("index: src/lib.rs names {name}"),
        );
    }
}

#[test]
fn names_in_tests_comments_and_texts_are_no_breach() {
    for source in [
        "// std::net\n/* std::fs /* nested */ std::env */ /// std::time::Instant\n",
        "const A: &str = \"std::net\"; const B: &str = r#\"std::\"fs\"#; const C: char = '\"'; // \"\n const D: u8 = b'\\'';",
        "#[cfg(test)] mod tests { use std::time::Instant; fn f() { if x { std::thread::spawn(y); } } }",
        "#[cfg(any(test, feature = \"testing\"))] pub mod oracle { use std::time::Instant; }",
        "#[cfg(test)] use std::time::Instant;",
        "#[cfg(test)]\n#[expect(dead_code)]\nfn f<'a>() { std::env::var(x); }",
        "use std::thread; fn f() { thread::yield_now(); }",
        "struct Brand; fn operand() {} mod random {}",
    ] {
        let report = broken(|facts| source.clone_into(&mut facts.crates[1].sources[0].1));
        assert_eq!(report, "", "in {source:?}");
    }
    let report = broken(|facts| {
        let oracle = ("src/testing/oracle.rs".to_owned(), "use std::time::Instant;".to_owned());
        facts.crates[1].sources.push(oracle);
    });
    assert_eq!(report, "");
}

#[test]
fn settings_read_outside_of_config_are_found() {
    found(
        |facts| "fn f() { std::env::var_os(x); }".clone_into(&mut facts.crates[3].sources[0].1),
        "homing: src/lib.rs names std::env::var_os",
    );
}

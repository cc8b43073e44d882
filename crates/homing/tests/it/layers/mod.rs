//! Does every crate keep to its layer?
//!
//! The table "Which crates are there?" in `ARCHITECTURE.md` is the rule; every `Cargo.toml` says its layer; clippy looks for what a layer
//! must not use. What is checked is said in [`rules`], and that a breach of each rule is found is tested here and in [`lints`].

mod lints;
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
    const FORBIDDEN: &str = "clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros";
    let named = |name: &str, layer: &str, dependencies: &[&str]| CrateFacts {
        name: name.to_owned(),
        layer: Some(layer.to_owned()),
        dependencies: dependencies.iter().map(|&d| d.to_owned()).collect(),
        root: match layer {
            _ if name == "homing" => "#![cfg_attr(not(test), deny(clippy::disallowed_methods))]".to_owned(),
            "pure" => format!("//! Doc.\n#![cfg_attr(not(test), forbid({FORBIDDEN}))]\nmod a;"),
            "adapter" => "mod a;".to_owned(),
            _ => "#![cfg_attr(\n    not(any(test, feature = \"testing\")),\n    forbid(clippy::disallowed_methods)\n)]"
                .to_owned(),
        },
        clippy: (layer == "pure").then(|| "the rules".to_owned()),
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
            named("domain", "pure", &[]),
            named("index", "pure", &["domain", "arc-swap"]),
            named("config", "adapter", &["domain", "toml"]),
            named("homing", "binary", &["domain", "index", "config", "tokio"]),
        ],
        locked: [("arc-swap", "rustversion"), ("toml", "winnow"), ("tokio", "mio")]
            .map(|(name, needs)| (name.to_owned(), vec![needs.to_owned()]))
            .into(),
        pure_clippy: "the rules".to_owned(),
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
fn a_pure_crate_with_other_lints_is_found() {
    for clippy in [None, Some("other rules".to_owned())] {
        found(
            |facts| facts.crates[1].clippy = clippy,
            "index is pure but its clippy.toml is not a link to crates/clippy-pure.toml",
        );
    }
    found(
        |facts| facts.crates[3].clippy = Some("the rules".to_owned()),
        "homing has a clippy.toml in place of that of the workspace",
    );
}

#[test]
fn a_crate_whose_code_could_allow_a_lint_is_found() {
    for root in [
        "mod a;",
        "// forbid(clippy::disallowed_types)",
        "#![cfg_attr(not(test), deny(clippy::disallowed_types))]",
        "#![cfg_attr(windows, forbid(clippy::disallowed_types))]",
        "#![cfg_attr(not(test), forbid(clippy::disallowed_methods))]",
    ] {
        found(
            |facts| root.clone_into(&mut facts.crates[1].root),
            "index does not forbid clippy::disallowed_types",
        );
    }
    found(
        |facts| facts.crates[3].root.clear(),
        "homing does not deny clippy::disallowed_methods",
    );
    assert_eq!(
        broken(|facts| facts.crates[2].root.clear()),
        "",
        "config reads the environment"
    );
}

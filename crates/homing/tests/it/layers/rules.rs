//! What is a breach of the layers?
//!
//! - every crate is in the table and declares the layer that the table gives it, and layers are in order;
//! - a crate depends only on rows above its own (development dependencies are free: tests may look down);
//! - a pure crate needs no runtime, socket, clock or entropy, directly or through what it depends on;
//! - a pure crate is linted with `crates/clippy-pure.toml`, which bans those of the standard library, and all others but `config` with the
//!   `clippy.toml` of the workspace, which bans reading the environment; no code can allow what they ban, tests aside.

use crate::layers::workspace::{CrateFacts, Facts};

const LAYERS: [&str; 4] = ["pure", "adapter", "service", "binary"];

/// Packages that bring a runtime, sockets, a clock or entropy.
const IMPURE_PACKAGES: &[&str] = &[
    "actix-rt",
    "async-executor",
    "async-io",
    "async-std",
    "axum",
    "chrono",
    "coarsetime",
    "crossbeam-channel",
    "fastrand",
    "futures-executor",
    "getrandom",
    "glommio",
    "h2",
    "hyper",
    "jiff",
    "mio",
    "monoio",
    "nanorand",
    "oorandom",
    "polling",
    "quanta",
    "quinn",
    "rand",
    "rayon",
    "reqwest",
    "smol",
    "socket2",
    "time",
    "tokio",
    "tokio-util",
    "tonic",
    "ureq",
    "uuid",
    "web-time",
    "zmq",
    "zeromq",
];

/// Packages that run while others are built and are never part of the product. What they need is not looked at: the lock
/// file does not tell what is needed for building apart.
const BUILD_TOOLS: &[&str] = &["cc", "pkg-config"];

/// What no code of a pure crate can allow.
const PURE_LINTS: &[&str] = &[
    "clippy::disallowed_macros",
    "clippy::disallowed_methods",
    "clippy::disallowed_types",
];

/// What no code of another crate can allow.
const LINTS: &[&str] = &["clippy::disallowed_methods"];

/// Everything that is wrong, one sentence each.
pub fn breaches(facts: &Facts) -> Vec<String> {
    let mut breaches = table_breaches(facts);
    for krate in &facts.crates {
        breaches.extend(order_breaches(facts, krate));
        let pure = krate.layer.as_deref() == Some("pure");
        if pure {
            breaches.extend(package_breaches(facts, krate));
        }
        breaches.extend(lint_breaches(facts, krate));
    }
    breaches
}

fn table_breaches(facts: &Facts) -> Vec<String> {
    let rank = |layer: &str| LAYERS.iter().position(|known| *known == layer);
    let mut breaches: Vec<String> = facts
        .table
        .iter()
        .filter(|(_, layer)| rank(layer).is_none())
        .map(|(name, layer)| format!("{name} has the unknown layer {layer} in the table"))
        .collect();
    for pair in facts.table.windows(2) {
        let [(above, higher), (below, lower)] = pair else {
            continue;
        };
        if rank(lower) < rank(higher) {
            breaches.push(format!(
                "{below} ({lower}) stands below {above} ({higher}) in the table"
            ));
        }
    }
    breaches
}

fn order_breaches(facts: &Facts, krate: &CrateFacts) -> Vec<String> {
    let place = |name: &str| facts.table.iter().position(|(known, _)| known == name);
    let name = &krate.name;
    let Some(own) = place(name) else {
        return vec![format!("{name} is not in the table of ARCHITECTURE.md")];
    };
    let mut breaches = Vec::new();
    let told = &facts.table[own].1;
    match &krate.layer {
        None => breaches.push(format!("{name} declares no layer in its Cargo.toml")),
        Some(layer) if layer != told => {
            breaches.push(format!("{name} declares layer {layer}, the table says {told}"));
        }
        Some(_) => {}
    }
    let members = krate
        .dependencies
        .iter()
        .filter(|dependency| facts.member(dependency).is_some());
    for dependency in members.filter(|dependency| place(dependency).is_none_or(|other| other >= own)) {
        breaches.push(format!(
            "{name} depends on {dependency}, which is not above it in the table"
        ));
    }
    breaches
}

/// Walks what the crate needs: members by their manifests, because the lock file does not tell development dependencies
/// apart; all others by the lock file.
fn package_breaches(facts: &Facts, krate: &CrateFacts) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    let mut open: Vec<(&str, String)> = krate.dependencies.iter().map(|d| (d.as_str(), d.clone())).collect();
    while let Some((package, way)) = open.pop() {
        if seen.contains(&package) {
            continue;
        }
        seen.push(package);
        if IMPURE_PACKAGES.contains(&package) {
            breaches.push(format!("{} is pure but needs {package} ({way})", krate.name));
            continue;
        }
        if BUILD_TOOLS.contains(&package) {
            continue;
        }
        let next = match facts.member(package) {
            Some(member) => &member.dependencies,
            None => facts.locked.get(package).map_or(&[][..], Vec::as_slice),
        };
        open.extend(next.iter().map(|needed| (needed.as_str(), format!("{way} > {needed}"))));
    }
    breaches
}

/// Whether clippy looks for what the layer must not use, wherever it is used.
fn lint_breaches(facts: &Facts, krate: &CrateFacts) -> Vec<String> {
    let name = &krate.name;
    let is_pure = krate.layer.as_deref() == Some("pure");
    let mut breaches = Vec::new();
    match (&krate.clippy, is_pure) {
        (Some(clippy), true) if *clippy == facts.pure_clippy => {}
        (_, true) => breaches.push(format!(
            "{name} is pure but its clippy.toml is not a link to crates/clippy-pure.toml"
        )),
        (Some(_), false) => breaches.push(format!("{name} has a clippy.toml in place of that of the workspace")),
        (None, false) => {}
    }
    let wanted = match (is_pure, name.as_str()) {
        (true, _) => PURE_LINTS,
        // What clap derives in the binary allows a group of lints, which `forbid` does not let it.
        (false, "config" | "homing") => &[],
        (false, _) => LINTS,
    };
    let forbidden = forbidden_outside_tests(&krate.root);
    let missing = wanted.iter().filter(|lint| !forbidden.contains(lint));
    breaches.extend(missing.map(|lint| format!("{name} does not forbid {lint}")));
    if name == "homing" {
        let missing = LINTS
            .iter()
            .filter(|lint| !krate.root.contains(&format!("deny({lint})")));
        breaches.extend(missing.map(|lint| format!("{name} does not deny {lint}")));
    }
    breaches
}

/// The lints that an attribute of the root of a crate forbids where it is not built for tests.
fn forbidden_outside_tests(root: &str) -> Vec<&str> {
    const ATTRIBUTE: &str = "#![cfg_attr(";
    const CONDITIONS: [&str; 2] = ["not(test)", "not(any(test, feature = \"testing\"))"];
    // In a comment it would not begin a line.
    let begins_line = |at: &usize| *at == 0 || root[..*at].ends_with('\n');
    let places = root.match_indices(ATTRIBUTE).map(|(at, _)| at).filter(begins_line);
    let lints = places.filter_map(|at| {
        let attribute = root[at + ATTRIBUTE.len()..].split(")]").next()?.trim();
        let rest = CONDITIONS
            .iter()
            .find_map(|condition| attribute.strip_prefix(condition))?;
        rest.trim_start_matches([',', ' ', '\n']).strip_prefix("forbid(")
    });
    lints.flat_map(|lints| lints.split([',', ')'])).map(str::trim).collect()
}

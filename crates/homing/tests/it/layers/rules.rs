//! What is a breach of the layers?
//!
//! - every crate is in the table and declares the layer that the table gives it, and layers are in order;
//! - a crate depends only on rows above its own (development dependencies are free: tests may look down);
//! - a pure crate needs no runtime, socket, clock or entropy, directly or through what it depends on;
//! - the sources of a pure crate do not name those of the standard library either, tests and test tools aside;
//! - only `config` reads the environment.

use crate::layers::paths::named_paths;
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

/// What a pure crate must not name. A path below one of these is one of these.
const IMPURE_PATHS: &[&str] = &[
    "dbg!",
    "eprint!",
    "eprintln!",
    "print!",
    "println!",
    "chrono",
    "fastrand",
    "getrandom",
    "rand",
    "std::collections::hash_map::RandomState",
    "std::env",
    "std::fs",
    "std::hash::RandomState",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net",
    "std::os::unix::net",
    "std::process",
    "std::thread::Builder",
    "std::thread::scope",
    "std::thread::sleep",
    "std::thread::spawn",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio",
];

/// What no crate but `config` must name.
const SETTINGS: &[&str] = &[
    "std::env::args",
    "std::env::args_os",
    "std::env::var",
    "std::env::var_os",
    "std::env::vars",
];

/// Everything that is wrong, one sentence each.
pub fn breaches(facts: &Facts) -> Vec<String> {
    let mut breaches = table_breaches(facts);
    for krate in &facts.crates {
        breaches.extend(order_breaches(facts, krate));
        let pure = krate.layer.as_deref() == Some("pure");
        if pure {
            breaches.extend(package_breaches(facts, krate));
        }
        let forbidden = match (pure, krate.name.as_str()) {
            (true, _) => IMPURE_PATHS,
            (false, "config") => &[],
            (false, _) => SETTINGS,
        };
        breaches.extend(source_breaches(krate, forbidden));
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

fn source_breaches(krate: &CrateFacts, forbidden: &[&str]) -> Vec<String> {
    let mut breaches = Vec::new();
    let production = krate.sources.iter().filter(|(file, _)| !is_for_tests(file));
    for (file, text) in production {
        for path in named_paths(text) {
            let hit = forbidden
                .iter()
                .any(|&bad| is_at_or_below(&path, bad) || is_glob_over(&path, bad));
            if hit {
                breaches.push(format!("{}: {file} names {path}", krate.name));
            }
        }
    }
    breaches
}

fn is_for_tests(file: &str) -> bool {
    file.split('/')
        .any(|part| matches!(part, "testing" | "testing.rs" | "tests" | "tests.rs"))
}

fn is_at_or_below(path: &str, bad: &str) -> bool {
    path.strip_prefix(bad)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn is_glob_over(path: &str, bad: &str) -> bool {
    path.strip_suffix("::*")
        .is_some_and(|module| is_at_or_below(bad, module))
}

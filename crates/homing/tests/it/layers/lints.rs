//! Does clippy, told what the layers tell it, find each kind of breach? It is run on small sources, as `cargo clippy` would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What a pure crate must not do, and what clippy says of it.
const IMPURE: &[(&str, &str)] = &[
    ("use std::net::TcpStream;", "std::net::TcpStream"),
    ("use std::{fmt, time::{Duration, Instant}};", "std::time::Instant"),
    (
        "fn f() { let _ = std::time::SystemTime::now(); }",
        "std::time::SystemTime",
    ),
    ("use std::time; fn f() { time::Instant::now(); }", "std::time::Instant"),
    ("use std::time::Instant as Clock;", "std::time::Instant"),
    ("use std::time::*; fn f(at: Instant) {}", "std::time::Instant"),
    ("type Clock = std::time::Instant;", "std::time::Instant"),
    (
        "macro_rules! now { () => { std::time::Instant::now() } } fn f() { now!(); }",
        "std::time::Instant",
    ),
    (
        "use std::thread as t; fn f() { t::spawn(|| ()); }",
        "std::thread::spawn",
    ),
    (
        "fn f() { std::thread::sleep(std::time::Duration::ZERO); }",
        "std::thread::sleep",
    ),
    ("fn f() { let _ = std::env::var(\"X\"); }", "std::env::var"),
    (
        "fn f(names: &[&str]) { names.iter().map(std::env::var_os).count(); }",
        "std::env::var_os",
    ),
    ("use std::fs::{self, File};", "std::fs::File"),
    ("fn f() { let _ = std::fs::read(\"x\"); }", "std::fs::read"),
    (
        "fn f(path: &std::path::Path) -> bool { path.exists() }",
        "std::path::Path::exists",
    ),
    ("fn f() { println!(\"x\"); }", "std::println"),
    ("fn f() { let _ = std::io::stdout(); }", "std::io::stdout"),
    ("use std::hash::RandomState;", "std::hash::RandomState"),
    (
        "fn f() { let _: std::collections::HashMap<u8, u8> = std::collections::HashMap::new(); }",
        "HashMap::new",
    ),
    (
        "mod a { mod b { use ::std::process::Command; } }",
        "std::process::Command",
    ),
    ("fn f() -> Option<core::net::IpAddr> { None }", "std::net::IpAddr"),
    ("#[cfg(not(test))] use std::net::TcpStream;", "std::net::TcpStream"),
];

const PURE_LINTS: &str = "clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros";

#[test]
fn everything_impure_is_found_in_a_pure_crate() {
    for (source, what) in IMPURE {
        let said = lint("crates/domain", PURE_LINTS, source);
        assert!(
            said.contains(&format!("`{what}`")) || said.contains(what),
            "{source}: {said}"
        );
        assert!(said.contains("error: use of a disallowed"), "{source}: {said}");
    }
}

#[test]
fn what_is_pure_is_not_reported() {
    let source = "// std::net\nconst A: &str = \"std::fs\";\nuse std::time::Duration;\nfn f() { std::thread::yield_now(); }\n\
        #[cfg(test)] mod tests { use std::time::Instant; }";
    assert_eq!(lint("crates/domain", PURE_LINTS, source), "");
}

#[test]
fn a_pure_crate_cannot_allow_what_is_forbidden() {
    let source = "#[allow(clippy::disallowed_types)] fn f(at: std::time::Instant) {}";
    let said = lint("crates/domain", PURE_LINTS, source);
    assert!(said.contains("incompatible with previous forbid"), "{said}");
}

#[test]
fn settings_read_outside_of_config_are_found() {
    for name in ["args", "args_os", "vars", "vars_os"] {
        let said = lint(
            "",
            "clippy::disallowed_methods",
            &format!("fn f() {{ let _ = std::env::{name}(); }}"),
        );
        assert!(said.contains(&format!("`std::env::{name}`")), "{said}");
    }
    for name in ["var", "var_os"] {
        let said = lint(
            "",
            "clippy::disallowed_methods",
            &format!("fn f() {{ let _ = std::env::{name}(\"X\"); }}"),
        );
        assert!(said.contains(&format!("`std::env::{name}`")), "{said}");
    }
    let other = "fn f() -> std::time::Instant { std::time::Instant::now() }";
    assert_eq!(lint("", "clippy::disallowed_methods", other), "");
}

/// What clippy says of a crate with this source whose rules are those of a folder of the workspace.
fn lint(folder: &str, lints: &str, source: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lints");
    std::fs::create_dir_all(&scratch).expect("a folder for the sources");
    // Tests run at the same time, some in processes of their own.
    let (process, number) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
    let file = scratch.join(format!("source{process}_{number}.rs"));
    let text = format!("#![forbid({lints})]\n#![allow(unused, dead_code)]\n{source}\n");
    std::fs::write(&file, text).expect("a source");
    let sysroot = said(
        Command::new("rustc")
            .current_dir(&workspace)
            .args(["--print", "sysroot"])
            .output(),
    );
    let sysroot = sysroot.trim();
    let output = Command::new(format!("{sysroot}/bin/clippy-driver"))
        .env("CLIPPY_CONF_DIR", workspace.join(folder))
        .env("LD_LIBRARY_PATH", format!("{sysroot}/lib"))
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "lib",
            "--emit",
            "metadata",
            "--sysroot",
            sysroot,
        ])
        .arg("--out-dir")
        .arg(&scratch)
        .arg(&file)
        .output();
    said(output)
}

fn said(output: std::io::Result<Output>) -> String {
    let output = output.expect("the toolchain of this workspace has rustc and clippy");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

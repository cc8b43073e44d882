//! Files that are cut while they are read: no save takes the whole fleet or all keys away.

use std::fs;
use std::path::Path;

use super::harness::{FakeEngine, Process, TempDir, get, wait_until};

const KEY: &str = "homing-sk-attack-tests";
/// SHA-256 of it.
const DIGEST: &str = "1ee1df709a0dc4ed9eb0ea1839fc9f948e7c0440adff349408aea56c5905af89";

fn workers(process: &Process) -> usize {
    let fleet = get(&process.operators(), "/admin/fleet", &[]).json();
    fleet["workers"].as_array().map_or(0, Vec::len)
}

fn models_status(process: &Process) -> u16 {
    let authorization = format!("Bearer {KEY}");
    get(&process.address(), "/v1/models", &[("authorization", &authorization)]).status
}

fn cut(path: &Path) {
    fs::write(path, "").unwrap();
}

#[test]
fn an_empty_settings_file_takes_no_worker_away() {
    let (engine, directory) = (FakeEngine::start("tiny"), TempDir::new("reload"));
    let settings = format!(
        "[discovery]\nfile-interval = \"50ms\"\n\n[[worker]]\nurl = \"{}\"\n",
        engine.url()
    );
    let path = directory.write("homing.toml", &settings);
    let gateway = Process::serve(&[], &["--config", &path.display().to_string()]);
    gateway.wait_ready();
    cut(&path);
    wait_until("the empty file is refused, or used", || {
        gateway.stderr().contains("workers = []") || workers(&gateway) == 0
    });
    assert_eq!(workers(&gateway), 1, "{}", gateway.stderr());
    // Written in so many words, it is meant.
    fs::write(&path, "workers = []\n").unwrap();
    wait_until("all workers are gone", || workers(&gateway) == 0);
    fs::write(&path, &settings).unwrap();
    wait_until("the worker is back", || workers(&gateway) == 1);
}

#[test]
fn an_empty_key_file_locks_no_client_out() {
    let (engine, directory) = (FakeEngine::start("tiny"), TempDir::new("reload"));
    let keys = format!("[[key]]\nsha256 = \"{DIGEST}\"\ntenant = \"acme\"\n");
    let path = directory.write("keys.toml", &keys);
    let name = path.display().to_string();
    let gateway = Process::serve(
        &[&engine.url()],
        &["--keys", &name, "--discovery-file-interval", "50ms"],
    );
    assert_eq!(models_status(&gateway), 200);
    cut(&path);
    wait_until("the empty file is refused, or used", || {
        gateway.stderr().contains("key = []") || models_status(&gateway) != 200
    });
    assert_eq!(models_status(&gateway), 200, "{}", gateway.stderr());
    fs::write(&path, "key = []\n").unwrap();
    wait_until("no key is known", || models_status(&gateway) == 401);
    fs::write(&path, &keys).unwrap();
    wait_until("the key is known again", || models_status(&gateway) == 200);
}

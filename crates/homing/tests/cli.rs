//! Does the binary do what its help says? Runs it as a person would.

use std::path::PathBuf;
use std::process::{Command, Output};

fn homing(arguments: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(arguments.split_whitespace());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOMING_")) {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    command.output().expect("the binary was built for this test")
}

fn out(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn error(output: &Output) -> String {
    assert!(!output.status.success());
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("the folder for tests is ours");
    path
}

const SMALL: &str = "--workers 2 --sessions 6 --turns 2";

#[test]
fn the_demo_prints_plain_lines_into_a_pipe() {
    let story = out(&homing(&format!("demo {SMALL}"), &[]));
    assert!(
        story.contains("12 requests") && story.contains("wrong answers: 0"),
        "{story}"
    );
    assert!(!story.contains('\x1b'), "{story}");
}

#[test]
fn the_demo_prints_one_object_for_scripts() {
    let printed = out(&homing(&format!("demo {SMALL} --seed 3 --json"), &[]));
    let object: serde_json::Value = serde_json::from_str(&printed).expect("one JSON object");
    assert_eq!(object["seed"], 3);
    assert_eq!(object["wrong_answers"], 0);
    assert_eq!(object["fleet"]["workers"], 2);
}

#[test]
fn the_demo_prints_metrics_for_a_scraper() {
    let text = out(&homing(&format!("demo {SMALL} --metrics"), &[]));
    assert!(text.contains("\nhoming_index_live_ranks 2\n"), "{text}");
}

#[test]
fn a_view_that_has_to_forget_is_no_wrong_answer() {
    let settings = "--index-capacity-blocks 1024 --index-orphans-per-rank 64";
    let story = out(&homing(&format!("demo --workers 3 --sessions 20 {settings}"), &[]));
    assert!(story.contains("wrong answers: 0"), "{story}");
}

#[test]
fn the_demo_runs_with_every_view_of_the_caches() {
    let story = |view: &str| out(&homing(&format!("demo {SMALL} --index-cache-view {view}"), &[]));
    assert!(story("events").contains("Which prefixes are hot?"));
    let guessed = story("approximate");
    assert!(guessed.contains("a guess") && guessed.contains("too high"), "{guessed}");
    let blind = story("none");
    assert!(blind.contains("nothing is stored or looked up"), "{blind}");

    let object = |view: &str| -> serde_json::Value {
        let printed = out(&homing(&format!("demo {SMALL} --json --index-cache-view {view}"), &[]));
        serde_json::from_str(&printed).expect("one JSON object")
    };
    assert!(object("events")["hot_prefixes"][0]["recent_uses"].as_u64() > Some(0));
    let guessed = object("approximate");
    assert_eq!(guessed["approximate"]["answers"], 24);
    assert_eq!(guessed["homing"]["requests"], 12);
    assert_eq!(guessed["wrong_answers"], 0);
    assert_eq!(object("none")["checked_answers"], 0);
}

#[test]
fn settings_come_from_flag_variable_and_file() {
    let path = file(
        "settings.toml",
        "block-size = 32\n[index]\nmax-ranks = 64\ncopies = \"set\"\n",
    );
    let variables = [
        ("HOMING_CONFIG", path.to_str().expect("UTF-8")),
        ("HOMING_INDEX_MAX_RANKS", "128"),
        ("HOMING_BLOCK_SIZE", "64"),
        ("HOMING_SERVICE_PORT", "tcp://10.0.0.1:80"),
        ("HOMING_HASH_SEED", "c0ffee"),
    ];
    let listed = out(&homing("config --block-size 128", &variables));
    let line = |name: &str| {
        let found = listed.lines().find(|line| line.starts_with(name)).expect(name);
        found.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("block-size"), "128 from flag --block-size");
    assert_eq!(line("index.max-ranks"), "128 from variable HOMING_INDEX_MAX_RANKS");
    assert_eq!(line("index.copies"), format!("set from file {}", path.display()));
    assert_eq!(line("index.heat-window"), "60s the default");
    assert_eq!(line("hash.seed"), "(secret) from variable HOMING_HASH_SEED");
    assert!(!listed.contains("c0ffee"));
}

#[test]
fn settings_that_are_wrong_stop_it_with_all_reasons() {
    let path = file("wrong.toml", "block-sise = 32\n");
    let arguments = format!("demo --config {} --workers 1 --index-max-ranks 0", path.display());
    let said = error(&homing(&arguments, &[]));
    assert!(said.contains("did you mean `block-size`?"), "{said}");
    assert!(said.contains("`demo.workers` = \"1\", from flag --demo-workers: out of range, must be 2 to 256 workers"));
    assert!(
        said.contains("`index.max-ranks` = \"0\", from flag --index-max-ranks"),
        "{said}"
    );
    let said = error(&homing("config --config nowhere.toml", &[]));
    assert!(said.contains("nowhere.toml"), "{said}");
}

#[test]
fn reference_pages_are_printed() {
    assert!(out(&homing("config --reference", &[])).starts_with("# Settings\n"));
    assert!(out(&homing("metrics", &[])).starts_with("# Metrics\n"));
}

#[test]
fn one_simulated_world_is_repeated_by_its_seed() {
    let trace = || out(&homing("sim feed --seed 3 --trace", &[]));
    let first = trace();
    assert!(
        first.starts_with("Setup {") && first.contains("Discovered"),
        "{first:.200}"
    );
    assert_eq!(first, trace());
}

#[test]
fn the_simulation_prints_one_object_with_targets() {
    let printed = out(&homing("sim feed --seeds 4 --bug stale-applied --json", &[]));
    let object: serde_json::Value = serde_json::from_str(&printed).expect("one JSON object");
    let target = &object["targets"][0];
    assert_eq!(target["name"], "planted bugs found");
    assert_eq!(
        (&target["ours"], &target["goal"], &target["met"]),
        (&1.into(), &1.into(), &true.into())
    );
    assert_eq!(object["planted_bugs"][0]["bug"], "stale-applied");
}

#[test]
fn a_bug_that_is_not_known_is_an_error_that_names_those_that_are() {
    let error = error(&homing("sim feed --bug nonsense", &[]));
    assert!(
        error.contains("nonsense") && error.contains("restart-taken-for-gap"),
        "{error}"
    );
}

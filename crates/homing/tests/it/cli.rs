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
fn workers_come_from_flag_variable_and_file() {
    let path = file(
        "workers.toml",
        "[[worker]]\nurl = \"http://f\"\nagent = \"http://f:7600\"\n",
    );
    let of_file = format!("config --config {}", path.display());
    let workers = |arguments: &str, variables: &[(&str, &str)]| {
        let listed = out(&homing(arguments, variables));
        let lines = listed.lines().filter(|line| line.starts_with("worker "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(workers("config", &[]).is_empty());
    let listed = workers(&of_file, &[]);
    assert_eq!(listed.len(), 1);
    assert!(listed[0].starts_with("worker  http://f,agent=http://f:7600,role=both,model=default,"));
    assert!(
        listed[0].ends_with(&format!("  from file {}", path.display())),
        "{listed:?}"
    );
    let two = [("HOMING_WORKER", "http://a,agent=http://z\nhttp://b,agent=http://z")];
    let listed = workers(&of_file, &two);
    assert_eq!(listed.len(), 2);
    assert!(listed[1].ends_with("  from variable HOMING_WORKER"), "{listed:?}");
    let listed = workers(&format!("{of_file} --worker http://c,events=tcp://c:5557"), &two);
    assert_eq!(listed.len(), 1);
    assert!(listed[0].ends_with("  from flag --worker"), "{listed:?}");
    let said = error(&homing("config --worker http://c,evnts=tcp://c:5557", &[]));
    assert!(said.contains("worker 1 (http://c), from flag --worker: there is no key `evnts`; did you mean `events`?"));
}

#[test]
fn settings_that_are_wrong_stop_it_with_all_reasons() {
    let path = file("wrong.toml", "block-sise = 32\n");
    let arguments = format!("demo --config {} --workers 1 --index-max-ranks 0", path.display());
    let said = error(&homing(&arguments, &[]));
    assert!(said.contains("did you mean `block-size`?"), "{said}");
    assert!(said.contains("`demo.workers` = \"1\", from flag --demo-workers: out of range, must be 2 to 32 workers"));
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
fn profiles_are_listed_and_shown() {
    let listed = out(&homing("profile list", &[]));
    assert_eq!(listed.lines().count(), 2);
    assert!(
        listed.starts_with("h200-llama-3.1-8b  llama-3.1-8b on NVIDIA H200\n"),
        "{listed}"
    );

    let shown = out(&homing("profile show h200-qwen3-32b", &[]));
    assert!(
        shown.contains("qwen3-32b on NVIDIA H200") && shown.contains("of which cached"),
        "{shown}"
    );
    let printed = out(&homing("profile show h200-llama-3.1-8b --overhead-ms 0 --json", &[]));
    let object: serde_json::Value = serde_json::from_str(&printed).expect("one JSON object");
    assert_eq!(object["kv_bytes_per_token"], 131_072);
    let prefill = object["prefill"].as_array().expect("a table");
    let whole = prefill
        .iter()
        .find(|row| row["tokens"] == 8192 && row["cached"] == 0)
        .expect("it is there");
    assert!(
        (200.0..250.0).contains(&whole["ms"].as_f64().expect("a number")),
        "{whole}"
    );
    let decode = object["decode"].as_array().expect("a table");
    assert!(
        decode
            .iter()
            .any(|row| row["sequences"] == 64 && row["context"] == 2048),
        "{object}"
    );
}

#[test]
fn a_profile_of_ones_own_is_shown_or_refused_with_its_place() {
    let text = include_str!("../../../profile/profiles/h200-qwen3-32b.json");
    let own = file("own.json", &text.replace("\"qwen3-32b\"", "\"my-model\""));
    let shown = out(&homing(&format!("profile show --file {}", own.display()), &[]));
    assert!(shown.contains("my-model on NVIDIA H200"), "{shown}");
    let wrong = file("wrong.json", &text.replace("\"layers\": 64", "\"layers\": 0"));
    let said = error(&homing(&format!("profile show --file {}", wrong.display()), &[]));
    assert!(said.contains("wrong.json: shape.layers is 0"), "{said}");
    assert!(error(&homing("profile show h100", &[])).contains("there is no profile named \"h100\""));
    assert!(error(&homing("profile show --file nowhere.json", &[])).contains("nowhere.json"));
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

#[test]
fn the_whole_router_is_simulated_and_one_fleet_is_repeated_by_its_seed() {
    let trace = || out(&homing("sim run --seed 3 --trace", &[]));
    let (one, other) = (trace(), trace());
    assert!(one.contains(" routers: ") && one.contains(" goes to "), "{one}");
    assert_eq!(one, other);
    let printed = out(&homing("sim run --seed 3 --faults crash,loss --json", &[]));
    let object: serde_json::Value = serde_json::from_str(&printed).expect("one object");
    let targets = object["targets"].as_array().expect("a list");
    let named = |name: &str| {
        let target = targets.iter().find(|target| target["name"] == name);
        target.unwrap_or_else(|| panic!("{name} in {object}"))["ours"].as_u64()
    };
    assert_eq!(named("violations"), Some(0), "{object}");
    assert_eq!(named("seeds that were not deterministic"), Some(0), "{object}");
}

#[test]
fn a_planted_bug_of_the_router_is_found_and_told_how_to_repeat() {
    let printed = out(&homing("sim run --seeds 20 --bug load-fence-ignored", &[]));
    assert!(
        printed.contains("repeat: homing sim run --seed ") && printed.contains("--bug load-fence-ignored"),
        "{printed}"
    );
    let unknown = error(&homing("sim run --bug nonsense", &[]));
    assert!(unknown.contains("there is no bug"), "{unknown}");
    let unknown = error(&homing("sim run --faults storm", &[]));
    assert!(
        unknown.contains("there is no fault `storm`; there are crash, "),
        "{unknown}"
    );
}

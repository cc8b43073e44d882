//! Do `homing replay` and `homing tune` do what they say? Runs them as a person would.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn homing(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(arguments.split_whitespace());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOMING_")) {
        command.env_remove(name);
    }
    command
}

fn output(arguments: &str) -> Output {
    homing(arguments).output().expect("the binary was built for this test")
}

fn out(arguments: &str) -> String {
    let output = output(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The object that is printed, without what differs from run to run.
fn object(arguments: &str) -> Value {
    let mut object: Value = serde_json::from_str(&out(arguments)).expect("one JSON object");
    let fields = object.as_object_mut().expect("an object");
    assert!(
        fields
            .remove("elapsed_s")
            .is_some_and(|seconds| seconds.as_f64() > Some(0.0))
    );
    assert!(
        fields
            .remove("peak_rss_mib")
            .is_some_and(|mib| mib.as_f64() > Some(1.0))
    );
    object
}

fn error(arguments: &str) -> String {
    let output = output(arguments);
    assert!(!output.status.success(), "{arguments}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("UTF-8")
}

fn place(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn file(name: &str, text: &str) -> String {
    let path = place(name);
    std::fs::write(&path, text).expect("the folder for tests is ours");
    path.to_str().expect("UTF-8").to_owned()
}

const CHAT: &str = "chat:rate=4,requests=120,turns=3,answer=40 --workers 3 --blocks 4000";

#[test]
fn one_object_has_all_figures_and_is_the_same_again() {
    let arguments = format!("replay {CHAT} --policy time,round-robin --json");
    let first = object(&arguments);
    let policies = first["policies"].as_array().expect("a list");
    let names: Vec<&str> = policies.iter().filter_map(|policy| policy["policy"].as_str()).collect();
    assert_eq!(names, ["time", "round-robin"]);
    for policy in policies {
        assert_eq!(policy["completed"], 120);
        assert_eq!(policy["failed"], 0);
        for latency in ["ttft_ms", "itl_ms", "e2e_ms"] {
            let of = |name: &str| policy[latency][name].as_f64().expect(name);
            assert!(
                of("mean") > 0.0 && of("p50") <= of("p90") && of("p90") <= of("p99"),
                "{policy}"
            );
        }
        assert!(policy["goodput_rps"].as_f64() > Some(0.0));
        let ladder = |name: &str| policy["ladder"][name].as_f64().expect(name);
        assert!(ladder("infinite_cache") >= ladder("pooled_capacity"));
        assert!(
            ladder("pooled_capacity") >= ladder("actual") && ladder("actual") > 0.0,
            "{policy}"
        );
        assert!(ladder("predicted") >= 0.0);
        assert_eq!(policy["cached_share"], policy["ladder"]["actual"]);
        assert!(policy["mean_ttft_over_bound"].as_f64() >= Some(1.0), "{policy}");
    }
    assert_eq!(first, object(&arguments));
    assert_ne!(first, object(&format!("{arguments} --seed 2")));
    // The number of threads changes nothing.
    assert_eq!(first, object(&format!("{arguments} --threads 1")));
}

#[test]
fn people_get_a_table_with_the_ladder_and_the_bound() {
    let said = out(&format!("replay {CHAT} --policy all --seeds 2 --warmup 10%"));
    for words in [
        "fleet  ",
        "prefix-affinity",
        "goodput/s",
        "cached at most",
        "mean TTFT at least",
        "over 2 seeds",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("direct") && !said.contains('\x1b'), "{said}");
}

#[test]
fn the_share_of_an_infinite_cache_is_that_of_the_trace() {
    // Nine blocks of 512 tokens, five of which came before.
    let lines = [(0, "[1,2,3]"), (60_000, "[1,2,4]"), (120_000, "[1,2,3]")].map(|(at, ids)| {
        format!("{{\"timestamp\":{at},\"input_length\":1536,\"output_length\":5,\"hash_ids\":{ids}}}\n")
    });
    let path = file("shares.jsonl", &lines.concat());
    let object = object(&format!("replay {path} --policy time --workers 1 --json"));
    let share = object["trace"]["cached_share_of_blocks"].as_f64().expect("a number");
    assert!((share - 5.0 / 9.0).abs() < 1e-12, "{share}");
    let infinite = object["policies"][0]["ladder"]["infinite_cache"]
        .as_f64()
        .expect("a number");
    assert!((infinite - (1024.0 + 1535.0) / 4608.0).abs() < 1e-12, "{infinite}");
    // An engine computes at least one token, so the last block of a prompt that is all there is computed again.
    let actual = object["policies"][0]["cached_share"].as_f64().expect("a number");
    assert!((actual - (1024.0 + 1520.0) / 4608.0).abs() < 1e-12, "{actual}");
}

#[test]
fn load_is_asked_for_and_told() {
    let object = object("replay documents:rate=5,requests=400 --workers 4 --load 0.5 --policy time --json");
    let load = object["traffic"]["load"].as_f64().expect("a number");
    assert!((load / 0.5 - 1.0).abs() < 0.03, "{load}");
    assert_eq!(object["traffic"]["load_asked"], 0.5);
    let requests = object["traffic"]["requests"].as_u64().expect("a number");
    let policy = &object["policies"][0];
    assert_eq!(policy["completed"].as_u64().expect("a number"), requests, "{object}");
}

#[test]
fn faults_happen_as_planned() {
    let busy = "replay unrelated:rate=20,requests=200,answer=200 --workers 3 --policy time --json";
    let calm = object(busy);
    let plan = file("faults.txt", "# one dies\ncrash:1@3s+5s\nslow:0x3@1s+10s\n");
    let hurt = object(&format!("{busy} --faults {plan}"));
    assert_eq!(hurt["fleet"]["faults"][0]["kind"], "slow");
    assert_eq!(calm["policies"][0]["retries"], 0);
    assert!(hurt["policies"][0]["retries"].as_u64() > Some(0), "{hurt}");
    let mean = |of: &Value| of["policies"][0]["e2e_ms"]["mean"].as_f64();
    assert!(mean(&hurt) > mean(&calm), "{hurt}");
}

#[test]
fn what_is_wrong_is_said() {
    let right = "{\"timestamp\":0,\"input_length\":600,\"output_length\":5,\"hash_ids\":[1,2]}\n";
    let malformed = file("malformed.jsonl", &format!("{right}{right}{{\"timestamp\":1\n"));
    let wrong_blocks = file("blocks.jsonl", &format!("{right}{}", right.replace("[1,2]", "[1]")));
    let unknown = file("unknown.txt", "hello\n");
    let empty = file("empty.jsonl", "");
    for (arguments, words) in [
        (
            "nothing.jsonl".to_owned(),
            "the trace \"nothing.jsonl\" cannot be read".to_owned(),
        ),
        (malformed.clone(), format!("{malformed}:3: ")),
        (
            wrong_blocks.clone(),
            format!("{wrong_blocks}:2: 1 blocks of 512 tokens do not fit"),
        ),
        (unknown.clone(), format!("{unknown}:1: no known format")),
        (empty.clone(), format!("{empty}:0: there is nothing in it")),
        (
            "chat --policy fast".to_owned(),
            "there is no policy `fast`; there are time, blocks".to_owned(),
        ),
        (
            "chat --policy direct".to_owned(),
            "the policy `direct` chooses nothing by itself".to_owned(),
        ),
        (
            "chat --slo ttft=soon".to_owned(),
            "--slo ttft is \"soon\", expected a time".to_owned(),
        ),
        ("chat --slo tpot=1s".to_owned(), "--slo has \"tpot=1s\"".to_owned()),
        (
            "chat --load 0".to_owned(),
            "--load is 0, expected a number above 0".to_owned(),
        ),
        (
            "chat --slice 1 --load 0.5".to_owned(),
            "no number of copies makes a load of it".to_owned(),
        ),
        ("chat --load 1 --copies 2".to_owned(), "cannot be used with".to_owned()),
        ("chat --workers 0".to_owned(), "0 is not in 1..=4096".to_owned()),
        ("chat --blocks 2".to_owned(), "give it more --blocks".to_owned()),
        ("chat --blocks x".to_owned(), "--blocks is \"x\"".to_owned()),
        ("chat --profile a100".to_owned(), "h200-llama-3.1-8b".to_owned()),
        ("chat --believed-profile none.json".to_owned(), "none.json".to_owned()),
        (
            "chat --faults crash:99@1s".to_owned(),
            "there is no worker 99".to_owned(),
        ),
        ("chat --faults none.txt".to_owned(), "none.txt".to_owned()),
        (
            "chat --cache-view x".to_owned(),
            "expected events, guess or nothing".to_owned(),
        ),
        ("chat --slice 9m".to_owned(), "--slice is \"9m\"".to_owned()),
        (
            "chat:requests=5 --warmup 9h".to_owned(),
            "nothing would be counted".to_owned(),
        ),
    ] {
        let said = error(&format!("replay {arguments}"));
        assert!(said.contains(&words), "{arguments}: {said}");
        assert!(said.lines().count() <= 8, "{said}");
    }
}

#[test]
fn the_best_that_is_found_is_no_worse_than_where_it_began() {
    let arguments = format!("replay {CHAT} --policy round-robin,time --best-found 12 --slo ttft=60ms --json");
    let object_of = object(&arguments);
    let policies = object_of["policies"].as_array().expect("a list");
    let good = |name: &str| {
        let found = policies.iter().find(|policy| policy["policy"] == name).expect(name);
        found["good_share"].as_f64().expect("a number")
    };
    assert!(
        good("best-found") >= good("time") && good("best-found") >= good("round-robin"),
        "{object_of}"
    );
    assert_eq!(object_of["best_found"]["tries"], 12);
    assert_eq!(object_of, object(&arguments));
}

#[test]
fn tuning_is_the_same_again_and_finds_fewer_workers() {
    let arguments =
        "tune chat:rate=4,requests=120,turns=3,answer=40 --blocks 4000 --workers 6 --tries 14 --slo ttft=2s --json";
    let tuned = object(arguments);
    assert_eq!(tuned["tries"], 14);
    assert_eq!(tuned["best"]["keeps_promise"], true);
    assert!(tuned["best"]["workers"].as_u64() < Some(6), "{tuned}");
    assert!(!tuned["frontier"].as_array().expect("a list").is_empty());
    assert_eq!(tuned, object(arguments));
    let said = out("tune chat:requests=40 --workers 2 --budget 0s");
    assert!(
        said.contains("frontier of 1 tries") && said.contains("--tries 1"),
        "{said}"
    );
    let said = error("tune chat --promise 2");
    assert!(said.contains("--promise is 2"), "{said}");
}

/// Killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn the_same_traffic_goes_to_a_running_endpoint() {
    let mock = homing("mock --port 0 --model m --blocks 4000 --speedup 20 --dialect vllm")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut mock = Running(mock.expect("the binary was built for this test"));
    let mut greeting = String::new();
    BufReader::new(mock.0.stdout.take().expect("its output is ours"))
        .read_line(&mut greeting)
        .expect("it says something");
    let url = greeting
        .trim()
        .strip_prefix("listening on ")
        .expect("it says where")
        .to_owned();
    let traffic = "chat:rate=20,requests=40,turns=3,answer=20 --speed 20 --workers 1 --blocks 4000";
    let live = object(&format!("replay {traffic} --live {url} --json"));
    let policies = live["policies"].as_array().expect("a list");
    assert_eq!(policies.len(), 1, "{live}");
    let policy = &policies[0];
    assert_eq!(
        (&policy["policy"], &policy["completed"], &policy["failed"]),
        (&"live".into(), &40.into(), &0.into()),
        "{live}"
    );
    assert!(policy["ttft_ms"]["p50"].as_f64() > Some(0.0) && policy["itl_ms"]["p50"].as_f64() > Some(0.0));
    // Turns extend what the engine said, so its cache has them, as the simulated one does.
    let simulated = object(&format!("replay {traffic} --policy time --json"));
    let share = |of: &Value| of["policies"][0]["cached_share"].as_f64().expect("a number");
    assert!(
        (share(&live) - share(&simulated)).abs() < 0.1,
        "{} {}",
        share(&live),
        share(&simulated)
    );

    let table = out(&format!(
        "replay chat:requests=5,turns=1,answer=5 --speed 100 --live {url}/v1/ --policy time --concurrency 2"
    ));
    assert!(table.contains("\nlive ") && table.contains("\ntime "), "{table}");
    for (arguments, words) in [
        ("--live http://127.0.0.1:9", "does not tell its models"),
        ("--live http://127.0.0.1:9 --live-model m", "no request was answered"),
        ("--live http://127.0.0.1:9 --live-header x", "--live-header is \"x\""),
    ] {
        let said = error(&format!("replay chat:requests=2 --speed 100 {arguments}"));
        assert!(said.contains(words), "{said}");
    }
}

/// Names the browser that `./test` finds or installs.
const BROWSER: &str = "HOMING_TEST_BROWSER";

/// What a real browser makes of a page, as text.
fn browsed(page: &str, more: &[&str]) -> String {
    let browser = std::env::var_os(BROWSER).unwrap_or_else(|| {
        panic!("{BROWSER} is not set: this test needs Chromium. Run ./test, which installs it and sets it")
    });
    let folder = format!("--user-data-dir={}", place("browser").display());
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=2000",
        "--enable-logging=stderr",
        &folder,
    ];
    let mut command = Command::new(browser);
    let output = command
        .args(arguments)
        .args(more)
        .args(["--dump-dom", page])
        .output()
        .expect("it starts");
    let log = String::from_utf8_lossy(&output.stderr);
    // What a script says goes to the log; a page that works says nothing.
    assert!(!log.contains("CONSOLE"), "{log}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_report_works_in_a_real_browser() {
    let path = place("report.html");
    let path = path.to_str().expect("UTF-8");
    out(&format!(
        "replay {CHAT} --policy time,blocks,round-robin --report {path}"
    ));
    let page = std::fs::read_to_string(path).expect("it was written");
    let dom = browsed(&format!("file://{path}"), &[]);
    assert!(
        dom.contains("data-ready=\"yes\""),
        "the script did not come to its end: {}",
        &dom[dom.len().saturating_sub(2_000)..]
    );
    // What is in the page without the script, and what it draws.
    let drawn = |what: &str| dom.matches(what).count() - page.matches(what).count();
    assert!(drawn("<path") >= 6, "a line for each policy in both plots");
    assert!(
        drawn("scope=\"row\"") > 3,
        "a row for each policy, and the candidates of a request"
    );
    assert!(drawn("<option") == 6, "policies to choose, twice");
    assert!(dom.contains("Decided by time among 3 workers"));
    // As a person would: the next request, another policy, another latency, one line less.
    let used = "<script>byId('after').click(); const policy = byId('req-policy'); policy.value = 1; \
                policy.dispatchEvent(new Event('change')); byId('load-policy').value = 2; \
                byId('load-policy').dispatchEvent(new Event('change')); byId('which').children[2].click(); \
                byId('latency-legend').querySelector('button').click();</script></body>";
    let path = file("report-used.html", &page.replace("</body>", used));
    let after = browsed(&format!("file://{path}"), &["--blink-settings=preferredColorScheme=0"]);
    assert!(after.contains("Decided by blocks among 3 workers") && after.contains("3 workers under round-robin"));
    assert!(after.contains("End to end by share of requests"));
    assert_eq!(
        dom.matches("<path").count() - after.matches("<path").count(),
        2,
        "one policy less in both plots"
    );
    let said = error(&format!("replay {CHAT} --policy random --report /nowhere/at/all.html"));
    assert!(
        said.contains("the report cannot be written to /nowhere/at/all.html"),
        "{said}"
    );
}

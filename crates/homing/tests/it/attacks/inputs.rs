//! Files of operators that are damaged: traces to replay, and settings.
//!
//! Of each the command ends by itself with an error of a few lines that says where it is, without a panic.

use std::process::Output;

use super::harness::{Process, TempDir, check_all};

struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    /// What the error says, besides the name of the file.
    words: &'static str,
}

fn case(name: &'static str, bytes: impl AsRef<[u8]>, words: &'static str) -> Case {
    Case {
        name,
        bytes: bytes.as_ref().to_vec(),
        words,
    }
}

/// A request of Mooncake's format, and a field more.
fn mooncake(fields: &str) -> String {
    format!("{{\"timestamp\":0,\"input_length\":9,\"output_length\":1,\"hash_ids\":[1]{fields}}}\n")
}

fn traces() -> Vec<Case> {
    let good = mooncake("");
    let session = |fields: &str| format!("{{\"session_id\":\"a\",\"input_length\":5,{fields}}}\n");
    let log = |fields: &str| format!("{{\"homing\":1,\"at_us\":1,\"output\":1,{fields}}}\n");
    let csv = |row: &str| format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{row}\n");
    let long = format!(
        "{{\"timestamp\":0,\"hash_ids\":[1],\"input_length\":\"{}\"}}",
        "x".repeat(1 << 20)
    );
    vec![
        case("nothing", "", "there is nothing in it"),
        case("empty lines", "\n\r\n\n", "there is nothing in it"),
        case("words", "no trace\n", ":1: no known format"),
        case("bytes", b"\x00\xff\xfe\x80\n", ":1: no known format"),
        case(
            "compressed bytes",
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\n\x00",
            ":1: no known format",
        ),
        case("a line without an end", "x".repeat(5 << 20), ":1: the line is longer"),
        case(
            "an object that is cut off",
            format!("{good}{{\"timestamp\":0"),
            ":2: EOF",
        ),
        case(
            "a list in place of a line",
            format!("{good}[1]\n"),
            ":2: expected an object",
        ),
        case(
            "null in place of a line",
            format!("{good}null\n"),
            ":2: expected an object",
        ),
        case(
            "a deep line",
            format!("{good}{{\"a\":{}\n", "[".repeat(200_000)),
            ":2: ",
        ),
        case(
            "a prompt of no tokens",
            "{\"timestamp\":0,\"input_length\":0,\"output_length\":1,\"hash_ids\":[]}",
            ":1: input_length",
        ),
        case(
            "a prompt of 2^22 tokens and one",
            "{\"timestamp\":0,\"input_length\":4194305,\"output_length\":1,\"hash_ids\":[1]}",
            ":1: input_length",
        ),
        case(
            "a prompt of 10^20 tokens",
            "{\"timestamp\":0,\"input_length\":99999999999999999999,\"hash_ids\":[1]}",
            ":1: invalid type",
        ),
        case("a prompt of a megabyte of letters", long, ":1: invalid type"),
        case(
            "a prompt below zero",
            "{\"timestamp\":0,\"input_length\":-1,\"output_length\":1,\"hash_ids\":[1]}",
            ":1: invalid value",
        ),
        case(
            "more blocks than the prompt has",
            "{\"timestamp\":0,\"input_length\":9,\"output_length\":1,\"hash_ids\":[1,2,3]}",
            ":1: 3 blocks of 512 tokens",
        ),
        case(
            "a block below zero",
            "{\"timestamp\":0,\"input_length\":9,\"output_length\":1,\"hash_ids\":[-1]}",
            ":1: invalid value",
        ),
        case(
            "no time",
            "{\"input_length\":9,\"output_length\":1,\"hash_ids\":[1]}",
            ":1: there is no timestamp",
        ),
        case(
            "a time below zero",
            format!("{good}{}", good.replace(":0,", ":-5,")),
            ":2: timestamp",
        ),
        case("a time of 10^300", good.replace(":0,", ":1e300,"), ":1: timestamp"),
        case(
            "a pause below zero",
            mooncake(",\"session_id\":\"a\",\"delay\":-1"),
            ":1: delay",
        ),
        case(
            "a session that is an object",
            mooncake(",\"session_id\":{\"a\":1}"),
            ":1: ",
        ),
        case(
            "a priority of 10^99",
            mooncake(",\"priority\":1e99"),
            ":1: invalid type",
        ),
        case(
            "a deadline below zero",
            mooncake(",\"deadline_ms\":-1"),
            ":1: deadline_ms",
        ),
        case(
            "a session longer than any cache",
            session("\"timestamp\":0,\"output_length\":4000000").repeat(3),
            "cache has room",
        ),
        case(
            "an answer of 2^22 tokens and one",
            session("\"timestamp\":0,\"output_length\":4194305"),
            ":1: output_length",
        ),
        case(
            "a log of another version",
            "{\"homing\":2,\"at_us\":1,\"prompt\":1,\"output\":1,\"block\":16}",
            ":1: homing",
        ),
        case(
            "a log whose blocks have no tokens",
            log("\"prompt\":1,\"block\":0"),
            ":1: block",
        ),
        case(
            "a log whose keys are no digits",
            log("\"prompt\":16,\"block\":16,\"keys\":\"zz\""),
            ":1: keys",
        ),
        case(
            "a log whose key is cut off",
            log("\"prompt\":16,\"block\":16,\"keys\":\"0123\""),
            ":1: keys",
        ),
        case(
            "a log whose time is below zero",
            "{\"homing\":1,\"at_us\":-1,\"prompt\":1,\"output\":1,\"block\":16}",
            ":1: invalid value",
        ),
        case(
            "CSV without rows",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n",
            "there is no request",
        ),
        case(
            "CSV without a column",
            "TIMESTAMP,ContextTokens\n",
            ":1: no known format",
        ),
        case(
            "a row that is too short",
            csv("2023-11-16 18:15:46.68,1"),
            ":2: there are 2 columns",
        ),
        case(
            "a day that there is not",
            csv("2023-13-46 18:15:46,1,1"),
            ":2: TIMESTAMP",
        ),
        case(
            "a cell that does not end",
            csv("\"2023-11-16 18:15:46,1,1"),
            ":2: a quoted cell",
        ),
        case(
            "tokens that are no number",
            csv("2023-11-16 18:15:46,many,1"),
            ":2: ContextTokens",
        ),
    ]
}

fn settings() -> Vec<Case> {
    let worker = |keys: &str| format!("[[worker]]\nurl = \"http://a\"\n{keys}\n");
    vec![
        case("words", "junk", ":1: not TOML"),
        case("bytes", b"\xff\xfe\x00", "UTF-8"),
        case("an open table", "[serve", ":1: not TOML"),
        case("an open text", "model = \"a", ":1: not TOML"),
        case("a lone surrogate", "model = \"\\ud800\"", ":1: not TOML"),
        case(
            "lists 200,000 deep",
            format!("a = {}", "[".repeat(200_000)),
            ":1: not TOML",
        ),
        case(
            "a key of 20,000 parts",
            format!("a{} = 1", ".a".repeat(20_000)),
            ":1: not TOML",
        ),
        case("tables 20,000 deep", format!("[a{}]", ".a".repeat(20_000)), "not TOML"),
        case("a key twice", "model = \"a\"\nmodel = \"b\"", ":2: not TOML"),
        case("a table twice", "[serve]\n[serve]\n", "not TOML"),
        case(
            "a number of 20 digits",
            "block-size = 99999999999999999999",
            ":1: not TOML",
        ),
        case("an unknown setting", "sudo = true", "sudo"),
        case("an unknown setting of a table", "[serve]\nsudo = true", "serve.sudo"),
        case("a table in place of a value", "[block-size]\na = 1", "block-size"),
        case("a value in place of a table", "serve = 1", "serve"),
        case("an address that is a number", "[serve]\nlisten = 1", "serve.listen"),
        case(
            "an address with a port of 99999",
            "[serve]\nlisten = \"127.0.0.1:99999\"",
            "serve.listen",
        ),
        case(
            "an address that is a name",
            "[serve]\nlisten = \"localhost:80\"",
            "serve.listen",
        ),
        case(
            "connections below zero",
            "[serve]\nmax-connections = -1",
            "serve.max-connections",
        ),
        case(
            "connections with a fraction",
            "[serve]\nmax-connections = 1.5",
            "serve.max-connections",
        ),
        case(
            "a petabyte",
            "[serve]\nmax-request-bytes = \"1PiB\"",
            "serve.max-request-bytes",
        ),
        case("a time that is no number", "[serve]\nidle = \"nan\"", "serve.idle"),
        case("a time below zero", "[serve]\nidle = \"-1s\"", "serve.idle"),
        case("blocks of no tokens", "block-size = 0", "block-size"),
        case("a share of 2", "[health]\nmost-out = 2", "health."),
        case("a model that is empty", "model = \"\"", "model"),
        case("a model with a line end", "model = \"a\\r\\nb\"", "model"),
        case("a seed of letters", "[hash]\nseed = \"zz\"", "hash.seed"),
        case(
            "a token that is too short",
            "[serve]\nadmin-token = \"secret\"",
            "serve.admin-token",
        ),
        case("a level that there is not", "[log]\nlevel = \"loud\"", "log.level"),
        case("a worker without an address", "[[worker]]\n", "url"),
        case("a worker that is a text", "worker = [\"http://a\"]", "worker 1"),
        case(
            "a worker of another protocol",
            "[[worker]]\nurl = \"file:///etc/passwd\"",
            "url",
        ),
        case(
            "a worker with a password",
            "[[worker]]\nurl = \"http://user:secret-word@a\"",
            "url",
        ),
        case(
            "a worker with a port of 99999",
            "[[worker]]\nurl = \"http://a:99999\"",
            "url",
        ),
        case("a worker twice", worker("").repeat(2), "worker 2"),
        case("a worker with an unknown key", worker("sudo = 1"), "sudo"),
        case("a role that there is not", worker("role = \"king\""), "role"),
        case("a worker of no ranks", worker("ranks = 0"), "ranks"),
        case("events of nobody", worker("events = \"tcp://\""), "events"),
        case(
            "events of another protocol",
            worker("events = \"file:///etc/passwd\""),
            "events",
        ),
        case(
            "5,000 workers",
            (0..5_000)
                .map(|at| format!("[[worker]]\nurl = \"http://w{at}\"\n"))
                .collect::<String>(),
            "4096",
        ),
    ]
}

/// What is wrong with how a command ended.
fn failure(case: &Case, file: &str, output: &Output) -> Result<(), String> {
    let error = String::from_utf8_lossy(&output.stderr);
    let short: String = error.chars().take(300).collect();
    let is_told = error.contains(file) && error.contains(case.words) || case.words.contains("cache has room");
    let is_short = error.len() < 4096 && error.lines().count() < 10;
    if output.status.code() == Some(1)
        && is_told
        && is_short
        && !error.contains("panicked")
        && !error.contains("secret")
    {
        return Ok(());
    }
    Err(format!(
        "{}: {} with {} bytes: {short}",
        case.name,
        output.status,
        error.len()
    ))
}

#[test]
fn a_damaged_trace_is_refused_with_its_line() {
    let cases = traces();
    assert!(cases.len() >= 25, "{}", cases.len());
    let directory = TempDir::new("traces");
    let numbered: Vec<(usize, &Case)> = cases.iter().enumerate().collect();
    check_all(&numbered, |(number, case)| {
        let name = format!("{number}.trace");
        let path = directory.write(&name, &case.bytes);
        let path = path.to_str().unwrap();
        let output = Process::run(&[
            "replay",
            path,
            "--workers",
            "1",
            "--policy",
            "round-robin",
            "--threads",
            "1",
        ]);
        failure(case, &name, &output)
    });
}

#[test]
fn damaged_settings_are_refused_with_their_name() {
    let cases = settings();
    assert!(cases.len() >= 33, "{}", cases.len());
    let directory = TempDir::new("settings");
    let numbered: Vec<(usize, &Case)> = cases.iter().enumerate().collect();
    check_all(&numbered, |(number, case)| {
        let name = format!("{number}.toml");
        let path = directory.write(&name, &case.bytes);
        // Half of them by the command that would serve.
        let command = if number % 2 == 0 { "config" } else { "serve" };
        let output = Process::run(&[command, "--config", path.to_str().unwrap()]);
        failure(case, &name, &output)
    });
}

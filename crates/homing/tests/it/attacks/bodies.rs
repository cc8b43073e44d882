//! Bodies that are no JSON, or JSON that is deep, wide, long or of other types than expected.
//!
//! Each gets one answer: that of the engine, which sees at most this one request, or an error that says why and repeats little of the body.

use serde_json::{Value, json};

use super::harness::{FakeEngine, Process, check_all, post_json, request, try_exchange};

/// What must become of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The engine gets it: what is wrong with it is for the engine to say.
    Passed,
    Refused(u16),
}
use Expected::{Passed, Refused};

struct Case {
    name: &'static str,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
    expected: Expected,
}

#[derive(Default)]
struct Table(Vec<Case>);

impl Table {
    fn add(&mut self, name: &'static str, path: &'static str, body: impl AsRef<[u8]>, expected: Expected) {
        self.0.push(Case {
            name,
            path,
            headers: vec![("content-type", "application/json")],
            body: body.as_ref().to_vec(),
            expected,
        });
    }

    /// A body of `/v1/completions`.
    fn completion(&mut self, name: &'static str, body: impl AsRef<[u8]>, expected: Expected) {
        self.add(name, "/v1/completions", body, expected);
    }

    /// A chat that is good but for these fields.
    fn chat(&mut self, name: &'static str, fields: &str, expected: Expected) {
        let body = format!(r#"{{"model":"tiny","messages":[{{"role":"user","content":"a"}}],{fields}}}"#);
        self.add(name, "/v1/chat/completions", body, expected);
    }
}

fn no_json(table: &mut Table) {
    for (name, body) in [
        ("nothing", ""),
        ("white space", " \r\n\t "),
        ("null", "null"),
        ("a list", "[]"),
        ("a text", r#""{}""#),
        ("a number", "1"),
        ("an open brace", "{"),
        ("an end in a key", r#"{"mod"#),
        ("an end in an escape", r#"{"model":"\u12"#),
        ("an end in a number", r#"{"max_tokens":1"#),
        ("two objects", r#"{"model":"tiny"}{"model":"tiny"}"#),
        ("words behind the object", r#"{"model":"tiny"} x"#),
        ("a comma before the end", r#"{"model":"tiny",}"#),
        ("no comma", r#"{"model":"tiny" "prompt":"a"}"#),
        ("no colon", r#"{"model" "tiny"}"#),
        ("single quotes", "{'model':'tiny'}"),
        ("no quotes", "{model:1}"),
        ("a comment", r#"{"model":"tiny"/* x */}"#),
        ("NaN", r#"{"model":"tiny","temperature":NaN}"#),
        ("an infinity", r#"{"model":"tiny","temperature":-Infinity}"#),
        ("a number that begins with 0", r#"{"max_tokens":01}"#),
        ("a number that begins with a point", r#"{"max_tokens":.5}"#),
        ("a number that ends with a point", r#"{"max_tokens":1.}"#),
        ("a number without an exponent", r#"{"max_tokens":1e}"#),
        ("a number with two signs", r#"{"max_tokens":--1}"#),
        ("a number in hexadecimal digits", r#"{"max_tokens":0x10}"#),
        ("an unknown escape", r#"{"model":"\x41"}"#),
        ("a word in capitals", r#"{"stream":True}"#),
    ] {
        table.completion(name, body, Refused(400));
    }
    table.completion("a line end in a text", "{\"model\":\"ti\nny\"}", Refused(400));
    table.completion("a NUL in a text", "{\"model\":\"ti\0ny\"}", Refused(400));
    table.completion("a mark of byte order", "\u{feff}{\"model\":\"tiny\"}", Refused(400));
    let wide: Vec<u8> = "{\"model\":\"tiny\"}"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    table.completion("UTF-16", wide, Refused(400));
    table.completion(
        "bytes that are no UTF-8",
        b"{\"model\":\"tiny\",\"prompt\":\"\xff\xfe\"}",
        Refused(400),
    );
    table.completion(
        "an overlong slash",
        b"{\"model\":\"tiny\",\"prompt\":\"\xc0\xaf\"}",
        Refused(400),
    );
    table.completion(
        "a surrogate in UTF-8",
        b"{\"model\":\"tiny\",\"prompt\":\"\xed\xa0\x80\"}",
        Refused(400),
    );
    table.completion(
        "compressed bytes",
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\x56",
        Refused(400),
    );
}

fn shapes(table: &mut Table) {
    let nested = |open: &str, close: &str, depth: usize| {
        let (open, close) = (open.repeat(depth), close.repeat(depth));
        format!(r#"{{"model":"tiny","prompt":"a","x":{open}1{close}}}"#)
    };
    table.completion("lists 120 deep", nested("[", "]", 120), Passed);
    table.completion("lists 200 deep", nested("[", "]", 200), Refused(400));
    table.completion("lists 200,000 deep", nested("[", "]", 200_000), Refused(400));
    table.completion("objects 200,000 deep", nested(r#"{"a":"#, "}", 200_000), Refused(400));
    table.completion("a million open lists", "[".repeat(1_000_000), Refused(400));
    table.completion("a million open objects", r#"{"a":"#.repeat(1_000_000), Refused(400));
    let keys = |count: usize| {
        let fields: Vec<String> = (0..count).map(|number| format!(r#""k{number}":0"#)).collect();
        fields.join(",")
    };
    table.completion(
        "1,000 fields",
        format!(r#"{{"model":"tiny","prompt":"a",{}}}"#, keys(1_000)),
        Passed,
    );
    table.completion(
        "2,000 fields",
        format!(r#"{{"model":"tiny",{}}}"#, keys(2_000)),
        Refused(400),
    );
    table.completion(
        "200,000 fields",
        format!(r#"{{"model":"tiny",{}}}"#, keys(200_000)),
        Refused(400),
    );
    let inner = format!(r#"{{"model":"tiny","prompt":"a","x":{{{}}}}}"#, keys(200_000));
    table.completion("200,000 fields inside", inner, Passed);
    let same = format!(r#"{{"model":"tiny","prompt":"a"{}}}"#, r#","a":1"#.repeat(1_000));
    table.completion("one field a thousand times", same, Passed);
    table.completion(
        "a model twice, the second is known",
        r#"{"model":"no","model":"tiny","prompt":"a"}"#,
        Passed,
    );
    table.completion(
        "a model twice, the first is known",
        r#"{"model":"tiny","model":"no","prompt":"a"}"#,
        Refused(404),
    );
    let escaped = r#"{"model":"tiny","mod\u0065l":"no","prompt":"a"}"#;
    table.completion("a model twice, once with an escape", escaped, Refused(404));
    let spaces = format!(
        r#"{}{{"model":"tiny","prompt":"a"}}{}"#,
        " ".repeat(1 << 20),
        "\n".repeat(1 << 20)
    );
    table.completion("a megabyte of white space", spaces, Passed);
}

fn models(table: &mut Table) {
    let with = |model: &str| format!(r#"{{"model":{model},"prompt":"a"}}"#);
    let long = |piece: &str, count: usize| with(&format!("\"{}\"", piece.repeat(count)));
    table.completion("a model of a megabyte", long("m", 1 << 20), Refused(404));
    table.completion(
        "a model of a megabyte beyond ASCII",
        long("\u{20ac}", 350_000),
        Refused(404),
    );
    table.completion(
        "a model of a megabyte of escapes",
        long("\\u0000", 175_000),
        Refused(404),
    );
    table.completion("a model of quotes", long("\\\"", 100_000), Refused(404));
    table.completion("a model with a line end", with(r#""tiny\r\nx: y""#), Refused(404));
    table.completion("a model with a NUL", with(r#""tiny\u0000""#), Refused(404));
    table.completion("a model that is a path", with(r#""../../etc/passwd""#), Refused(404));
    table.completion("a model that is empty", with("\"\""), Passed);
    table.completion("a model that is a number", with("1"), Refused(400));
    table.completion("a model that is an object", with(r#"{"a":1}"#), Refused(400));
    let list = format!("[{}\"tiny\"]", "\"m\",".repeat(100_000));
    table.completion("a list of 100,000 models", with(&list), Refused(400));
    // What is no text is no name: the engine says so.
    table.completion("a lone surrogate in a model", with(r#""\ud800""#), Passed);
    table.completion(
        "surrogates the wrong way round in a model",
        with(r#""\udc00\ud800""#),
        Passed,
    );
}

fn fields(table: &mut Table) {
    for (name, fields) in [
        ("a lone surrogate in a prompt", r#""prompt":"\ud800""#),
        ("a surrogate and a letter in a prompt", r#""prompt":"\ud83dx""#),
        ("a NUL in a prompt", r#""prompt":"\u0000""#),
        ("a prompt that is a number", r#""prompt":5"#),
        ("a prompt that is null", r#""prompt":null"#),
        ("an empty prompt", r#""prompt":[]"#),
        ("tokens below zero", r#""prompt":[-1,-2]"#),
        ("tokens of 33 bits", r#""prompt":[4294967296]"#),
        ("tokens with fractions", r#""prompt":[1.5,2e3]"#),
        ("tokens and texts", r#""prompt":[1,"a",[2]]"#),
        ("lists of tokens and of lists", r#""prompt":[[1],[[2]]]"#),
        ("a limit below zero", r#""prompt":"a","max_tokens":-1"#),
        (
            "a limit of 65 bits",
            r#""prompt":"a","max_tokens":18446744073709551616"#,
        ),
        ("a limit of 10^400", r#""prompt":"a","max_tokens":1e400"#),
        ("a limit with a fraction", r#""prompt":"a","max_tokens":0.5"#),
        ("a limit that is a text", r#""prompt":"a","max_tokens":"5""#),
        ("answers below zero", r#""prompt":"a","n":-5"#),
        (
            "four billion answers",
            r#""prompt":"a","n":4294967296,"best_of":4294967297"#,
        ),
        ("a stream that is a number", r#""prompt":"a","stream":1.5"#),
        ("a stream that is a word", r#""prompt":"a","stream":"perhaps""#),
        (
            "options of a stream that are a list",
            r#""prompt":"a","stream":false,"stream_options":[1]"#,
        ),
        (
            "a least length beyond the most",
            r#""prompt":"a","min_tokens":9999999,"max_tokens":1"#,
        ),
        ("a temperature of 10^308", r#""prompt":"a","temperature":1e308"#),
        ("a seed of 2^63", r#""prompt":"a","seed":9223372036854775808"#),
        ("an empty key", r#""prompt":"a","":{"":[""]}"#),
    ] {
        table.completion(name, format!(r#"{{"model":"tiny",{fields}}}"#), Passed);
    }
    let digits = format!(
        r#"{{"model":"tiny","prompt":"a","max_tokens":{}}}"#,
        "9".repeat(100_000)
    );
    table.completion("a limit of 100,000 digits", digits, Passed);
    let tokens = format!(r#"{{"model":"tiny","prompt":[{}1]}}"#, "1,".repeat(100_000));
    table.completion("a prompt of 100,001 tokens", tokens, Passed);
    let prompts = format!(r#"{{"model":"tiny","prompt":[{}"a"]}}"#, "\"a\",".repeat(100_000));
    table.completion("100,001 prompts", prompts, Passed);
    for (name, fields) in [
        ("messages that are a text", r#""messages":"a""#.to_owned()),
        ("a message that is a number", r#""messages":[1]"#.into()),
        ("messages without fields", r#""messages":[{},{}]"#.into()),
        (
            "contents of other types",
            r#""messages":[{"role":1,"content":{"a":[null]}}]"#.into(),
        ),
        (
            "an image of this machine",
            r#""messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}]"#
                .into(),
        ),
        (
            "an image that is no text",
            r#""messages":[{"role":"user","content":[{"type":"image_url","image_url":5}]}]"#.into(),
        ),
        (
            "100,000 messages",
            format!(r#""messages":[{}{{}}]"#, "{},".repeat(100_000)),
        ),
        (
            "10,000 tools",
            format!(r#""tools":[{}{{}}]"#, r#"{"type":"function"},"#.repeat(10_000)),
        ),
        (
            "100,000 texts that end an answer",
            format!(r#""stop":[{}"a"]"#, "\"b\",".repeat(100_000)),
        ),
        (
            "a text of a megabyte that ends an answer",
            format!(r#""stop":"{}""#, "b".repeat(1 << 20)),
        ),
        ("a user of a megabyte", format!(r#""user":"{}""#, "u".repeat(1 << 20))),
        ("a user that is a list", r#""user":[1,2]"#.into()),
    ] {
        table.chat(name, &fields, Passed);
    }
}

fn hints(table: &mut Table) {
    for (name, hints) in [
        ("hints that are a number", "5".to_owned()),
        ("hints that are a list", "[]".into()),
        ("an unknown hint", r#"{"sudo":true}"#.into()),
        (
            "a hint whose name has a megabyte",
            format!(r#"{{"{}":1}}"#, "h".repeat(1 << 20)),
        ),
        (
            "a worker of a megabyte",
            format!(r#"{{"worker":"{}"}}"#, "w".repeat(1 << 20)),
        ),
        (
            "a worker of 250 bytes",
            format!(r#"{{"worker":"{}"}}"#, "w".repeat(250)),
        ),
        (
            "100,000 workers",
            format!(r#"{{"workers":[{}"a"]}}"#, "\"a\",".repeat(100_000)),
        ),
        (
            "1,000 workers of 250 bytes",
            format!(
                r#"{{"workers":[{}"a"]}}"#,
                format!("\"{}\",", "w".repeat(250)).repeat(1_000)
            ),
        ),
        (
            "100,000 labels",
            format!(
                r#"{{"labels":{{{}"a":"b"}}}}"#,
                (0..100_000).map(|at| format!("\"l{at}\":\"\",")).collect::<String>()
            ),
        ),
        ("labels that are numbers", r#"{"labels":{"a":1}}"#.into()),
        ("a priority of 64 bits", r#"{"priority":9223372036854775807}"#.into()),
        ("a deadline below zero", r#"{"deadline":-1}"#.into()),
        ("a deadline of 10^300 s", r#"{"deadline":1e300}"#.into()),
        ("overrides that are a text", r#"{"overrides":"x"}"#.into()),
        ("an override below zero", r#"{"overrides":{"temperature":-1}}"#.into()),
        ("a session of a line end", r#"{"session":"a\r\nb"}"#.into()),
    ] {
        table.chat(name, &format!(r#""homing":{hints}"#), Refused(400));
    }
}

fn endpoints(table: &mut Table) {
    let megabyte = "x".repeat(1 << 20);
    let previous = format!(r#"{{"model":"tiny","input":"a","previous_response_id":"{megabyte}"}}"#);
    table.add(
        "a response of a megabyte to go on from",
        "/v1/responses",
        previous,
        Refused(404),
    );
    let deep = format!(r#"{{"model":"tiny","input":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    table.add("a deep input", "/v1/responses", deep, Refused(400));
    let unknown = format!(r#"{{"model":"{megabyte}","max_tokens":1,"messages":[]}}"#);
    table.add(
        "a model of a megabyte, in Anthropic's words",
        "/v1/messages",
        unknown,
        Refused(404),
    );
    table.add(
        "a system that is a number",
        "/v1/messages",
        r#"{"model":"tiny","system":5,"messages":[],"max_tokens":1}"#,
        Passed,
    );
    table.add("no JSON, in Anthropic's words", "/v1/messages", "{", Refused(400));
    table.add("tokens of nothing", "/v1/messages/count_tokens", "[]", Refused(400));
    let inputs = format!(r#"{{"model":"tiny","input":[{}"a"]}}"#, "\"a\",".repeat(100_000));
    table.add("100,001 inputs", "/v1/embeddings", inputs, Passed);
    table.add(
        "an input that is an object",
        "/v1/embeddings",
        r#"{"model":"tiny","input":{"a":1}}"#,
        Passed,
    );
    table.add(
        "documents that are a number",
        "/v1/rerank",
        r#"{"model":"tiny","query":1,"documents":2}"#,
        Passed,
    );
    table.add("a list to be tokenized", "/tokenize", "[]", Refused(400));
    table.add(
        "tokens that are texts",
        "/detokenize",
        r#"{"model":"tiny","tokens":["a"]}"#,
        Passed,
    );
    // What is in a form is the engine's to read, but for the model.
    let form =
        |model: &str| format!("--x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--x--\r\n");
    for (name, body, expected) in [
        ("a form that is none", "junk".to_owned(), Refused(400)),
        ("a form with a model of a megabyte", form(&megabyte), Passed),
        ("a form with an unknown model", form(&"m".repeat(1_000)), Refused(404)),
    ] {
        table.add(name, "/v1/audio/transcriptions", body, expected);
        table.0.last_mut().unwrap().headers = vec![("content-type", "multipart/form-data; boundary=x")];
    }
    table.completion(
        "JSON that says it is compressed",
        r#"{"model":"tiny","prompt":"a"}"#,
        Passed,
    );
    table.0.last_mut().unwrap().headers.push(("content-encoding", "gzip"));
    for (name, header, value) in [
        ("an unknown hint in a header", "x-homing-sudo", "1"),
        ("a worker in a header", "x-homing-worker", "http://169.254.169.254"),
        ("a deadline in a header", "x-homing-deadline", "NaN"),
        ("a label in a header", "x-homing-labels", "=,=,="),
    ] {
        table.completion(name, r#"{"model":"tiny","prompt":"a"}"#, Refused(400));
        table.0.last_mut().unwrap().headers.push((header, value));
    }
}

fn table() -> Vec<Case> {
    let mut table = Table::default();
    no_json(&mut table);
    shapes(&mut table);
    models(&mut table);
    fields(&mut table);
    hints(&mut table);
    endpoints(&mut table);
    table.0
}

/// Sends one case, and says what is wrong with its answer.
fn check(gateway: &str, case: &Case) -> Result<(), String> {
    let failed = |why: String| Err(format!("{} ({}): {why}", case.name, case.path));
    let response = match try_exchange(gateway, request("POST", case.path, &case.headers, &case.body)) {
        Ok(response) => response,
        Err(error) => return failed(format!("no answer: {error}")),
    };
    let short: String = response.text().chars().take(300).collect();
    match case.expected {
        Passed if response.status == 200 => {}
        Refused(status) if response.status == status => {
            if response.error_message().is_none_or(|message| message.is_empty()) {
                return failed(format!("no error in JSON: {short:?}"));
            }
            // An escaped byte takes six.
            if response.body.len() > 2048 {
                return failed(format!("an error of {} bytes: {short}", response.body.len()));
            }
        }
        _ => return failed(format!("{} {short}", response.status)),
    }
    let good = json!({ "model": "tiny", "prompt": "usual", "max_tokens": 1 });
    let usual = post_json(gateway, "/v1/completions", &[], &good);
    if usual.status != 200 {
        return failed(format!("a good request afterwards: {}", usual.status));
    }
    Ok(())
}

#[test]
fn a_hostile_body_gets_one_answer_and_a_short_error() {
    let cases = table();
    assert!(cases.len() >= 57, "{}", cases.len());
    let engine = FakeEngine::start("tiny");
    let mut gateway = Process::serve(&[&engine.url()], &[]);
    let address = gateway.wait_ready().address();
    check_all(&cases, |case| check(&address, case));
    let requests = engine.requests();
    // Prompts are tokenized by the engine, once each.
    let served = |path: &str| requests.iter().filter(|request| request.target == path).count();
    for path in [
        "/v1/chat/completions",
        "/v1/embeddings",
        "/v1/rerank",
        "/v1/audio/transcriptions",
    ] {
        let passed = |case: &&Case| case.path == path && case.expected == Passed;
        assert_eq!(served(path), cases.iter().filter(passed).count(), "{path}");
    }
    let completions = cases
        .iter()
        .filter(|case| case.path == "/v1/completions" && case.expected == Passed);
    assert_eq!(served("/v1/completions"), completions.count() + cases.len());
    assert!(gateway.is_running(), "{}", gateway.stderr());
    assert!(!gateway.stderr().contains("panicked"), "{}", gateway.stderr());
}

/// Errors of operators and of proxies, whose requests are answered without an engine.
#[test]
fn errors_of_other_listeners_are_short_too() {
    let engine = FakeEngine::start("tiny");
    let gateway = Process::serve(&[&engine.url()], &["--route", "127.0.0.1:0"]);
    gateway.wait_ready();
    let megabyte = "x".repeat(1 << 20);
    let short = |address: &str, path: &str, body: &Value| {
        let response = post_json(address, path, &[], body);
        assert!((400..500).contains(&response.status), "{path}: {}", response.status);
        assert!(response.error_message().is_some(), "{path}: {}", response.text());
        assert!(
            response.body.len() < 2048,
            "{path}: an error of {} bytes",
            response.body.len()
        );
    };
    let proxies = gateway.proxies();
    for (path, body) in [
        ("/homing/v1/route", json!({ "model": megabyte, "prompt": "a" })),
        (
            "/homing/v1/route",
            json!({ "model": "tiny", "prompt": "a", "book": megabyte }),
        ),
        (
            "/homing/v1/route",
            json!({ "model": "tiny", "tokens": [1], "media": megabyte }),
        ),
        (
            "/homing/v1/route",
            json!({ "model": "tiny", "tokens": [1], "media": [{ "id": "a", megabyte.as_str(): 1 }] }),
        ),
        (
            "/homing/v1/route",
            json!({ "model": "tiny", "prompt": "a", "homing": { "worker": "w".repeat(250) } }),
        ),
        ("/homing/v1/route/x/book", json!({ megabyte.as_str(): 1 })),
        ("/homing/v1/route/x/output", json!({ "tokens": megabyte })),
        ("/homing/v1/loads", json!({ "model": megabyte })),
        ("/homing/v1/overlap", json!({ "model": megabyte, "tokens": [1] })),
        ("/homing/v1/nothing", json!({})),
    ] {
        short(&proxies, path, &body);
    }
    let operators = gateway.operators();
    let name = "x".repeat(30_000);
    for path in [
        format!("/admin/drain?worker={name}"),
        "/admin/nothing".to_owned(),
        "/metrics".to_owned(),
    ] {
        short(&operators, &path, &json!({}));
    }
}

//! Is nothing of a prompt, and no key, in anything that `homing serve` writes or tells, however much it is asked to log?

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a client asks. It must be nowhere.
const PROMPT: &str = "mellifluous-tamarind-prompt";
/// What stands in the API key, the tokens and the key of the engines. It must be nowhere.
const SECRET: &str = "zanzibar-petrichor-secret";
/// A test that hangs is to fail and not to be waited for.
const GUARD: Duration = Duration::from_mins(1);

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("quiet");
    fs::create_dir_all(&folder).expect("a folder for the files of this test");
    folder.join(name)
}

fn homing(arguments: &[&str], errors: &Path) -> (Running, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(arguments).stdout(Stdio::piped());
    command.stderr(File::create(errors).expect("a file for its errors"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HOMING_")) {
        command.env_remove(name);
    }
    let mut process = command.spawn().expect("the binary was built for this test");
    let mut line = String::new();
    let out = process.stdout.take().expect("its output is ours");
    BufReader::new(out).read_line(&mut line).expect("it speaks text");
    let address = line.trim_end().strip_prefix("listening on http://");
    let said = fs::read_to_string(errors).unwrap_or_default();
    let address = address.unwrap_or_else(|| panic!("it said {line:?} and {said}"));
    (Running(process), address.to_owned())
}

/// An engine that repeats what it was asked in every error, as real ones do.
fn parrot() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || repeat(stream));
        }
    });
    address
}

fn repeat(stream: TcpStream) {
    let mut out = stream.try_clone().expect("a second handle");
    let mut input = BufReader::new(stream);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if input.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if first.is_empty() {
                first.clone_from(&line);
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        if input.read_exact(&mut body).is_err() {
            return;
        }
        let asked = String::from_utf8_lossy(&body).replace(['"', '\\'], "'");
        let streams = asked.contains("'stream':true") || asked.contains("'stream': true");
        let (status, kind, said) = match first.split(' ').nth(1).unwrap_or_default() {
            "/v1/models" => ("200 OK", "application/json", r#"{"data":[{"id":"parrot"}]}"#.to_owned()),
            path if path.starts_with("/v1/") && streams => {
                let begun = r#"data: {"choices":[{"index":0,"text":"a"}]}"#;
                let error = format!(r#"data: {{"error":{{"message":"cannot compute {asked}","code":500}}}}"#);
                ("200 OK", "text/event-stream", format!("{begun}\n\n{error}\n\n"))
            }
            path if path.starts_with("/v1/") => {
                let error = format!(r#"{{"error":{{"message":"cannot compute {asked}","code":500}}}}"#);
                ("500 Internal Server Error", "application/json", error)
            }
            _ => ("200 OK", "application/json", "{}".to_owned()),
        };
        let length = said.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{said}");
        if out.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn ask(address: &str, first: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(GUARD)).expect("it can be set");
    let length = body.len();
    let request = format!(
        "{first} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("it takes requests");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// Bodies in which the marker stands wherever a prompt can.
fn bodies(model: &str) -> Vec<(&'static str, String)> {
    let chat =
        |message: &str, more: &str| format!(r#"{{"model":"{model}","max_tokens":4,"messages":[{message}]{more}}}"#);
    let user = format!(r#"{{"role":"user","content":"{PROMPT}"}}"#);
    let odd_role = format!(r#"{{"role":"{PROMPT}","content":"x"}}"#);
    let odd_part = format!(r#"{{"role":"user","content":[{{"type":"{PROMPT}","{PROMPT}":1}}]}}"#);
    let picture = format!(
        r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{PROMPT}"}}}}]}}"#
    );
    let tool = format!(r#","tools":[{{"type":"function","function":{{"name":"{PROMPT}","description":"{PROMPT}"}}}}]"#);
    vec![
        ("/v1/chat/completions", chat(&user, "")),
        ("/v1/chat/completions", chat(&user, r#","stream":true"#)),
        ("/v1/chat/completions", chat(&user, &tool)),
        ("/v1/chat/completions", chat(&odd_role, "")),
        ("/v1/chat/completions", chat(&odd_part, "")),
        ("/v1/chat/completions", chat(&picture, "")),
        (
            "/v1/chat/completions",
            chat(&user, &format!(r#","{PROMPT}":"{PROMPT}""#)),
        ),
        (
            "/v1/completions",
            format!(r#"{{"model":"{model}","prompt":"{PROMPT}","max_tokens":4}}"#),
        ),
        (
            "/v1/completions",
            format!(r#"{{"model":"{model}","prompt":"{PROMPT}","stream":true}}"#),
        ),
        (
            "/v1/completions",
            format!(r#"{{"model":"{model}","prompt":["{PROMPT}","{PROMPT}"],"suffix":"{PROMPT}"}}"#),
        ),
        ("/v1/messages", chat(&user, &format!(r#","system":"{PROMPT}""#))),
        (
            "/v1/responses",
            format!(r#"{{"model":"{model}","input":"{PROMPT}","instructions":"{PROMPT}"}}"#),
        ),
        ("/v1/embeddings", format!(r#"{{"model":"{model}","input":"{PROMPT}"}}"#)),
        ("/tokenize", format!(r#"{{"model":"{model}","prompt":"{PROMPT}"}}"#)),
        // What cannot be read.
        ("/v1/completions", format!(r#"{{"model":"{model}","prompt":"{PROMPT}"#)),
        ("/v1/completions", format!(r#"{{"model":"{model}","prompt":{PROMPT}}}"#)),
        (
            "/v1/completions",
            format!(r#"{{"model":"{model}","max_tokens":"{PROMPT}","prompt":"{PROMPT}"}}"#),
        ),
        (
            "/v1/chat/completions",
            format!(r#"{{"model":"{model}","messages":"{PROMPT}"}}"#),
        ),
        ("/v1/chat/completions", PROMPT.to_owned()),
    ]
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one gateway is asked in every way, and then everything it wrote is read"
)]
fn neither_prompts_nor_keys_are_written_or_told() {
    let key = format!("homing-sk-{SECRET}");
    let keys = file("keys.toml");
    let made = Command::new(env!("CARGO_BIN_EXE_homing"))
        .args(["keys", "new", "--tenant", "acme"])
        .output()
        .expect("the binary was built for this test");
    assert!(made.status.success());
    let table = String::from_utf8(made.stdout).expect("text");
    let own = format!("[[key]]\nsha256 = \"{}\"\ntenant = \"own\"\n", sha256(key.as_bytes()));
    fs::write(&keys, format!("{table}\n{own}")).expect("a file of keys");
    let fresh = String::from_utf8(made.stderr).expect("text");
    let fresh = fresh.trim().rsplit(' ').next().expect("the key").to_owned();
    assert!(
        fresh.starts_with("homing-sk-") && !table.contains(&fresh),
        "{fresh} {table}"
    );

    let token = file("token");
    fs::write(&token, format!("operators-{SECRET}\n")).expect("a file of the token");
    let (engine_errors, errors, log) = (file("mock.err"), file("serve.err"), file("requests.jsonl"));
    let _ = fs::remove_file(&log);
    let mock = [
        "mock",
        "--port",
        "0",
        "--model",
        "tiny",
        "--answer-tokens",
        "0",
        "--speedup",
        "1000",
    ];
    let (_engine, engine) = homing(&mock, &engine_errors);
    let workers = [
        format!("http://{engine},model=tiny,cache-view=approximate"),
        format!("http://{},model=parrot,cache-view=approximate", parrot()),
    ];
    let path = |path: &Path| path.to_str().expect("a path").to_owned();
    let (keys, token, logged) = (path(&keys), format!("file:{}", path(&token)), path(&log));
    let engine_key = format!("engines-{SECRET}");
    let serve = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--log-level",
        "trace",
        "--keys",
        &keys,
        "--admin-token",
        &token,
        "--worker-key",
        &engine_key,
        "--log",
        &logged,
        "--worker",
        &workers[0],
        "--worker",
        &workers[1],
        "--tries",
        "2",
        "--health-failures",
        "1000",
        "--health-failure-rate",
        "1",
        "--tokenize-timeout",
        "5s",
    ];
    let (mut gateway, address) = homing(&serve, &errors);
    let told = || fs::read_to_string(&errors).unwrap_or_default();
    let admin = told();
    let admin = admin.lines().find_map(|line| line.strip_prefix("operators: http://"));
    let admin = admin.expect("it says where operators ask").to_owned();
    let operator = format!("authorization: Bearer operators-{SECRET}\r\n");
    let until = Instant::now() + GUARD;
    while !ask(&admin, "GET /metrics", &operator, "").contains("homing_gateway_known_workers 2") {
        assert!(Instant::now() < until, "no workers: {}", told());
        std::thread::sleep(Duration::from_millis(20));
    }

    let mut statuses = Vec::new();
    for model in ["tiny", "parrot"] {
        for (target, body) in bodies(model) {
            for header in [
                format!("authorization: Bearer {key}\r\n"),
                format!("x-api-key: {key}\r\n"),
            ] {
                let answer = ask(&address, &format!("POST {target}"), &header, &body);
                statuses.push(status(&answer).to_owned());
            }
        }
    }
    for (first, headers) in [
        (
            "POST /v1/completions".to_owned(),
            format!("authorization: Bearer wrong-{SECRET}\r\n"),
        ),
        (
            "POST /v1/completions".to_owned(),
            format!("authorization: Basic {SECRET}\r\n"),
        ),
        (
            format!("GET /v1/{PROMPT}?key={SECRET}"),
            format!("x-api-key: {key}\r\n"),
        ),
        (
            format!("POST /v1/completions?prompt={PROMPT}"),
            format!("x-api-key: {fresh}\r\ncookie: {SECRET}\r\n"),
        ),
        (
            "POST /v1/completions".to_owned(),
            format!("x-api-key: {key}\r\nx-odd: {PROMPT}\r\n folded: {SECRET}\r\n"),
        ),
    ] {
        let body = format!(r#"{{"model":"tiny","prompt":"{PROMPT}","max_tokens":2}}"#);
        statuses.push(status(&ask(&address, &first, &headers, &body)).to_owned());
    }
    for wanted in ["200", "400", "401", "404", "500"] {
        assert!(
            statuses.iter().any(|found| found == wanted),
            "no {wanted} among {statuses:?}"
        );
    }
    ask(
        &admin,
        "GET /metrics",
        &format!("authorization: Bearer wrong-{SECRET}\r\n"),
        "",
    );

    let mut outputs = Vec::new();
    for target in [
        "/metrics",
        "/admin/fleet",
        "/admin/decisions?limit=1000",
        "/admin/workers",
    ] {
        let answer = ask(&admin, &format!("GET {target}"), &operator, "");
        assert_eq!(status(&answer), "200", "{target}: {answer}");
        outputs.push((target, answer));
    }
    assert!(
        outputs[2].1.contains("said that it failed"),
        "the engine's words are kept back: {}",
        outputs[2].1
    );
    let ended = Command::new("kill")
        .args(["-TERM", &gateway.0.id().to_string()])
        .status();
    assert!(ended.expect("signals can be sent").success());
    gateway.0.wait().expect("it is our child");
    outputs.push(("standard error", told()));
    outputs.push(("the request log", fs::read_to_string(&log).expect("it was written")));
    assert!(outputs[4].1.contains("DEBUG"), "everything is logged: {}", outputs[4].1);
    assert!(outputs[5].1.lines().count() > 3, "requests are logged");
    for (place, text) in outputs {
        for secret in [PROMPT, SECRET, &fresh] {
            let found = text
                .find(secret)
                .map(|at| text[at.saturating_sub(200)..].chars().take(400).collect::<String>());
            assert_eq!(found, None, "{secret} is in {place}");
        }
    }
}

/// By the system's own tool, so that ours is compared with another's.
fn sha256(bytes: &[u8]) -> String {
    let mut tool = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a tool for digests");
    tool.stdin
        .take()
        .expect("its input is ours")
        .write_all(bytes)
        .expect("it reads");
    let output = tool.wait_with_output().expect("it ends");
    String::from_utf8(output.stdout)
        .expect("text")
        .split(' ')
        .next()
        .expect("a digest")
        .to_owned()
}

#[test]
fn keys_are_made_and_written_where_they_are_wanted() {
    let path = file("made.toml");
    let _ = fs::remove_file(&path);
    let path = path.to_str().expect("a path");
    let make = |more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_homing"))
            .args(["keys", "new"])
            .args(more)
            .output()
            .expect("the binary was built for this test");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
    let (well, key, errors) = make(&[
        "--tenant",
        "acme",
        "--file",
        path,
        "--requests-per-minute",
        "60",
        "--priority",
        "-2",
        "--name",
        "ci",
    ]);
    assert!(well, "{errors}");
    let (well, second, _) = make(&["--tenant", "other", "--file", path]);
    assert!(well && second != key);
    let written = fs::read_to_string(path).expect("it was written");
    assert_eq!(written.matches("[[key]]").count(), 2);
    for part in [
        "tenant = \"acme\"",
        "requests-per-minute = 60",
        "priority = -2",
        "name = \"ci\"",
        &sha256(key.trim().as_bytes()),
    ] {
        assert!(written.contains(part), "{part} is missing in {written}");
    }
    assert!(!written.contains(key.trim()));
    for wrong in [
        &["--tenant", "a b"][..],
        &[],
        &["--tenant", "a", "--requests-per-minute", "0"],
    ] {
        let (well, out, _) = make(wrong);
        assert!(!well && out.is_empty(), "{wrong:?}");
    }
}

#[test]
fn it_says_what_to_do_where_it_must_not_start() {
    for (arguments, words) in [
        (
            &["--listen", "0.0.0.0:0", "--admin", "127.0.0.1:0"][..],
            "homing keys new --tenant NAME",
        ),
        (
            &["--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0"],
            "HOMING_SERVE_ADMIN_TOKEN",
        ),
        (
            &[
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--admin-token",
                "short",
            ],
            "serve.admin-token",
        ),
        (&["--tls-cert", "a.pem"], "serve.tls-key"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_homing"))
            .arg("serve")
            .args(arguments)
            .output()
            .expect("the binary was built for this test");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(words),
            "{arguments:?}: {said}"
        );
        assert!(!said.contains("short"), "{said}");
    }
}

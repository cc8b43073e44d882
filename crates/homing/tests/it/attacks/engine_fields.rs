//! Fields of bodies that reach past the gateway into engines, and salts that name the cache of another tenant.

use serde_json::{Value, json};

use super::harness::{
    FakeEngine, Process, ReceivedRequest, Reply, Response, TempDir, answer_json, check_all, get, post_json, request,
    try_exchange, wait_until,
};

/// A file of keys, and the keys of its tenants.
struct Keys {
    directory: TempDir,
    keys: Vec<String>,
}

impl Keys {
    fn new(test: &str, tenants: &[&str]) -> Self {
        let directory = TempDir::new(test);
        let file = directory.path().join("keys.toml");
        let keys = tenants.iter().map(|tenant| {
            let arguments = ["keys", "new", "--tenant", tenant, "--file", file.to_str().unwrap()];
            String::from_utf8(Process::run(&arguments).stdout)
                .unwrap()
                .trim()
                .to_owned()
        });
        let keys = keys.collect();
        Self { directory, keys }
    }

    fn path(&self) -> String {
        self.directory.path().join("keys.toml").display().to_string()
    }
}

/// A gateway in front of engines, of which nothing is asked when they come.
fn serve(engines: &[&str], more: &[&str]) -> Process {
    let gateway = Process::serve(engines, &[&["--check-workers", "none"], more].concat());
    gateway.wait_ready();
    gateway
}

/// What reached an engine at this path since the last time. The gateway asks for the tokens of prompts besides.
fn forwarded(engine: &FakeEngine, path: &str) -> Vec<ReceivedRequest> {
    let mut requests = engine.take_requests();
    requests.retain(|request| request.target == path);
    requests
}

fn with_key<'a>(key: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&[("x-api-key", key)], more].concat()
}

/// What each endpoint takes besides.
fn endpoints() -> Vec<(&'static str, Value)> {
    let messages = json!([{ "role": "user", "content": "a" }]);
    vec![
        ("/v1/chat/completions", json!({ "model": "tiny", "messages": messages })),
        ("/v1/completions", json!({ "model": "tiny", "prompt": "a" })),
        ("/v1/completions", json!({ "model": "tiny", "prompt": ["a", "b"] })),
        ("/v1/responses", json!({ "model": "tiny", "input": "a" })),
        (
            "/v1/messages",
            json!({ "model": "tiny", "max_tokens": 1, "messages": messages }),
        ),
        ("/v1/embeddings", json!({ "model": "tiny", "input": ["a", "b"] })),
        (
            "/v1/rerank",
            json!({ "model": "tiny", "query": "a", "documents": ["b"] }),
        ),
        (
            "/v1/messages/count_tokens",
            json!({ "model": "tiny", "messages": messages }),
        ),
        ("/tokenize", json!({ "model": "tiny", "prompt": "a" })),
    ]
}

/// Fields that no client may set: what is merged into a body, and the path that an answer must name.
fn engine_fields() -> Vec<(Value, &'static str)> {
    let fetch =
        json!({ "do_remote_prefill": true, "remote_host": "10.9.9.9", "remote_port": 1, "remote_engine_id": "e" });
    vec![
        (json!({ "kv_transfer_params": fetch }), "kv_transfer_params"),
        (
            json!({ "kv_transfer_params": { "do_remote_decode": true } }),
            "kv_transfer_params",
        ),
        (json!({ "ec_transfer_params": { "x": 1 } }), "ec_transfer_params"),
        (
            json!({ "vllm_xargs": { "kv_transfer_params": fetch } }),
            "vllm_xargs.kv_transfer_params",
        ),
        (
            json!({ "extra_body": { "kv_transfer_params": fetch } }),
            "extra_body.kv_transfer_params",
        ),
        (
            json!({ "sampling_params": [{ "extra_args": { "kv_transfer_params": fetch } }] }),
            "sampling_params.extra_args.kv_transfer_params",
        ),
        (json!({ "bootstrap_host": "10.9.9.9" }), "bootstrap_host"),
        (json!({ "bootstrap_port": [8998, 8998] }), "bootstrap_port"),
        (json!({ "bootstrap_room": [1, 2] }), "bootstrap_room"),
        (
            json!({ "custom_params": { "bootstrap_room": 1 } }),
            "custom_params.bootstrap_room",
        ),
        (json!({ "disagg_prefill_dp_rank": 1 }), "disagg_prefill_dp_rank"),
        (
            json!({ "disaggregated_params": { "ctx_request_id": 1 } }),
            "disaggregated_params",
        ),
        (
            json!({ "extra_body": { "data_parallel_rank": 1 } }),
            "extra_body.data_parallel_rank",
        ),
        (
            json!({ "nvext": { "backend_instance_id": 1 } }),
            "nvext.backend_instance_id",
        ),
        (json!({ "nvext": { "cache_salt": "b" } }), "nvext.cache_salt"),
    ]
}

/// Fields that never reach an engine, and are no reason to refuse a request.
fn removed_fields() -> Value {
    json!({
        "priority": -2_147_483_648_i64, "request_id": "resp_of_b", "rid": "of-b", "data_parallel_rank": 0, "routed_dp_rank": 0,
        "kv_transfer_params": null,
    })
}

fn merged(body: &Value, more: &Value) -> Value {
    let mut body = body.clone();
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn fields_of_the_engine_are_refused_by_name_with_keys() {
    let keys = Keys::new("refuse", &["acme"]);
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&[&engine.url()], &["--keys", &keys.path()]);
    let mut cases = Vec::new();
    for (path, body) in endpoints() {
        for (fields, name) in engine_fields() {
            cases.push((path, merged(&body, &fields), name));
        }
    }
    check_all(&cases, |(path, body, name)| {
        let response = post_json(&gateway.address(), path, &with_key(&keys.keys[0], &[]), body);
        let message = response.error_message().unwrap_or_default();
        if response.status == 400 && message.contains(&format!("`{name}`")) && message.contains("serve.engine-fields") {
            return Ok(());
        }
        Err(format!("{path} with {name}: {} {}", response.status, response.text()))
    });
    for (path, _) in endpoints() {
        assert_eq!(forwarded(&engine, path).len(), 0, "{path}");
    }
}

#[test]
fn fields_of_the_engine_are_removed_without_keys() {
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&[&engine.url()], &[]);
    for (path, body) in endpoints() {
        for (fields, name) in engine_fields() {
            let response = post_json(&gateway.address(), path, &[], &merged(&body, &fields));
            assert_eq!(response.status, 200, "{path} with {name}: {}", response.text());
            let sent = forwarded(&engine, path).pop().expect("it is forwarded");
            let last = name.rsplit('.').next().unwrap();
            assert!(!sent.text().contains(last), "{path} with {name}: {}", sent.text());
            // All else is as it was.
            let kept = body
                .as_object()
                .unwrap()
                .keys()
                .filter(|key| sent.json().get(key) != body.get(key));
            assert_eq!(kept.count(), 0, "{path} with {name}: {}", sent.text());
        }
    }
}

#[test]
fn priority_ids_and_ranks_of_clients_never_reach_an_engine() {
    let keys = Keys::new("priority", &["acme"]);
    let engine = FakeEngine::start("tiny");
    for more in [vec![], vec!["--keys".to_owned(), keys.path()]] {
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let gateway = serve(&[&engine.url()], &more);
        for (path, body) in endpoints() {
            let mut fields = removed_fields();
            if !more.is_empty() {
                // With keys, a rank is a pin, which this key may not set.
                fields.as_object_mut().unwrap().retain(|name, _| !name.contains("rank"));
            }
            let response = post_json(
                &gateway.address(),
                path,
                &with_key(&keys.keys[0], &[]),
                &merged(&body, &fields),
            );
            assert_eq!(response.status, 200, "{path}: {}", response.text());
            let sent = forwarded(&engine, path).pop().expect("it is forwarded").json();
            for name in removed_fields().as_object().unwrap().keys() {
                assert!(sent.get(name).is_none(), "{path}: {name} in {sent}");
            }
        }
    }
}

#[test]
fn forms_with_files_hide_no_field_of_the_engine() {
    let keys = Keys::new("forms", &["acme"]);
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&[&engine.url()], &["--keys", &keys.path()]);
    let send = |extra: &str, kind: &str| {
        let body = format!(
            "--x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\ntiny\r\n{extra}--x\r\ncontent-disposition: form-data; \
             name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--x--\r\n"
        );
        let headers = with_key(&keys.keys[0], &[("content-type", kind)]);
        let bytes = request("POST", "/v1/audio/transcriptions", &headers, body.as_bytes());
        try_exchange(&gateway.address(), bytes).unwrap()
    };
    let kind = "multipart/form-data; boundary=x";
    for (extra, status) in [
        ("", 200),
        (
            "--x\r\ncontent-disposition: form-data; name=\"language\"\r\n\r\nen\r\n",
            200,
        ),
        (
            "--x\r\ncontent-disposition: form-data; name=\"kv_transfer_params\"\r\n\r\n{\"remote_host\":\"h\"}\r\n",
            400,
        ),
        (
            "--x\r\nContent-Disposition: form-data; NAME=bootstrap_host\r\n\r\nh\r\n",
            400,
        ),
        (
            "--x\r\ncontent-disposition: form-data; name=\"vllm_xargs\"\r\n\r\n{\"kv_transfer_params\":{\"a\":1}}\r\n",
            400,
        ),
        (
            "--x\r\ncontent-disposition: form-data; name=\"vllm_xargs[kv_transfer_params]\"\r\n\r\n1\r\n",
            400,
        ),
        (
            "--x\r\ncontent-disposition: form-data; name*=utf-8''kv_transfer_params\r\n\r\n1\r\n",
            400,
        ),
        (
            "--x\r\ncontent-disposition: form-data; name=\"a\"; name=\"kv_transfer_params\"\r\n\r\n1\r\n",
            400,
        ),
    ] {
        let response = send(extra, kind);
        assert_eq!(response.status, status, "{extra}: {}", response.text());
    }
    assert_eq!(send("", "multipart/form-data; boundary=y").status, 400);
    for sent in engine.requests() {
        assert!(
            !sent.text().contains("kv_transfer") && !sent.text().contains("bootstrap"),
            "{}",
            sent.text()
        );
    }
}

/// What an engine with a connector answers.
fn handing_over() -> Value {
    json!({
        "id": "cmpl-1", "object": "text_completion", "model": "tiny", "created": 5,
        "choices": [{ "index": 0, "text": "\"kv_transfer_params\":{\"a\":1}", "finish_reason": "length" }],
        "usage": { "prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4 },
        "kv_transfer_params": {
            "do_remote_prefill": true, "remote_engine_id": "engine-7-secret", "remote_host": "10.1.2.3", "remote_block_ids": [1, 2]
        },
    })
}

#[test]
fn answers_tell_nothing_of_the_engines_inside() {
    let whole = handing_over();
    let mut clean = whole.clone();
    clean["kv_transfer_params"] = Value::Null;
    let streamed = format!(
        "data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"text\":\"a\",\"finish_reason\":null}}]}}\n\ndata: {whole}\n\ndata: [DONE]\n\n"
    );
    let engine = FakeEngine::start_with("tiny", move |request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        if request.is_probe() || !body.contains("prompt") {
            return Reply::Usual;
        }
        if !body.contains("\"stream\":true") {
            return Reply::Bytes(answer_json(200, &handing_over()));
        }
        let mut bytes =
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        // In pieces of five bytes, so that names are cut.
        for piece in streamed.as_bytes().chunks(5) {
            bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        Reply::Bytes(bytes)
    });
    let gateway = serve(&[&engine.url()], &[]);
    let body = json!({ "model": "tiny", "prompt": "a", "max_tokens": 1, "stream": false });
    let answer = post_json(&gateway.address(), "/v1/completions", &[], &body);
    assert_eq!(answer.text(), clean.to_string(), "all else is as it was");
    let body = json!({ "model": "tiny", "prompt": "a", "max_tokens": 1, "stream": true });
    let answer = post_json(&gateway.address(), "/v1/completions", &[], &body);
    for secret in ["engine-7-secret", "10.1.2.3", "remote_block_ids"] {
        assert!(!answer.text().contains(secret), "{secret} in {}", answer.text());
    }
    assert!(
        answer.text().contains(&format!("data: {clean}\n\n")),
        "{}",
        answer.text()
    );
}

#[test]
fn a_long_answer_that_is_not_kept_whole_tells_nothing_either() {
    let engine = FakeEngine::start_with("tiny", |request| {
        if request.is_probe() || request.target != "/v1/completions" {
            return Reply::Usual;
        }
        let mut answer = handing_over();
        answer["choices"][0]["text"] = json!("x".repeat(300_000));
        Reply::Bytes(answer_json(200, &answer))
    });
    let gateway = serve(&[&engine.url()], &["--max-answer-bytes", "64KiB"]);
    let body = json!({ "model": "tiny", "prompt": "a", "max_tokens": 1 });
    let answer = post_json(&gateway.address(), "/v1/completions", &[], &body);
    assert_eq!(answer.status, 200);
    assert!(!answer.text().contains("engine-7-secret") && answer.json()["kv_transfer_params"].is_null());
    assert_eq!(
        answer.json()["choices"][0]["text"].as_str().map(str::len),
        Some(300_000)
    );
}

/// The tokens of the prompt that came from the engine's cache, and those that were predicted to.
fn cached(response: &Response) -> (u64, u64) {
    assert_eq!(response.status, 200, "{}", response.text());
    let reported = response.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    let predicted = response
        .header("x-homing-cached-tokens")
        .and_then(|tokens| tokens.parse().ok());
    (reported.unwrap_or(0), predicted.unwrap_or(0))
}

#[test]
fn no_tenant_uses_the_cache_of_another_by_naming_its_salt() {
    let keys = Keys::new("salts", &["a", "a:1", "b"]);
    let (_mock, worker) = Process::mock_with_events(&["--speedup", "1000"]);
    let gateway = serve(&[&worker], &["--keys", &keys.path()]);
    let prompt = |salt: Value| {
        let tokens: Vec<u32> = (0..640).map(|at| at * 7 % 250).collect();
        json!({ "model": "tiny", "prompt": tokens, "max_tokens": 1, "cache_salt": salt })
    };
    let ask = |key: usize, salt: Value| {
        let headers = with_key(&keys.keys[key], &[]);
        cached(&post_json(
            &gateway.address(),
            "/v1/completions",
            &headers,
            &prompt(salt),
        ))
    };
    assert_eq!(ask(0, json!("s")).0, 0);
    // What is predicted for the tenant itself is what the engine reports.
    wait_until("the tenant's own cache is predicted", || {
        ask(0, json!("s")) == (624, 624)
    });
    for (key, salts) in [(2, &["s", "a:s", "1:a:s", "a", ":s"][..]), (1, &["s", "1:a:s", "a:s"])] {
        for salt in salts {
            assert_eq!(ask(key, json!(salt)), (0, 0), "{salt}");
            // Its own cache, and no other: it has it from now on.
            wait_until("its own cache", || ask(key, json!(salt)) == (624, 624));
        }
    }
    for bad in [json!(["s"]), json!(["1:a:s"]), json!({ "a": 1 }), json!(1)] {
        let response = post_json(
            &gateway.address(),
            "/v1/completions",
            &with_key(&keys.keys[2], &[]),
            &prompt(bad),
        );
        assert_eq!(response.status, 400, "{}", response.text());
    }
    // Without a salt, tenants share the model's cache.
    assert_eq!(ask(0, Value::Null).0, 0);
    wait_until("the shared cache is predicted", || ask(2, Value::Null) == (624, 624));
}

#[test]
fn extra_keys_are_salts_of_the_tenant_too() {
    let keys = Keys::new("extra-keys", &["a", "b"]);
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&[&engine.url()], &["--keys", &keys.path()]);
    let sent = |key: usize, fields: Value| {
        let body = merged(&json!({ "model": "tiny", "prompt": "x" }), &fields);
        let response = post_json(
            &gateway.address(),
            "/v1/completions",
            &with_key(&keys.keys[key], &[]),
            &body,
        );
        assert_eq!(response.status, 200, "{}", response.text());
        let sent = forwarded(&engine, "/v1/completions").pop().unwrap().json();
        assert!(sent.get("extra_key").is_none(), "{sent}");
        sent["cache_salt"].as_str().unwrap().to_owned()
    };
    let of_a = sent(0, json!({ "extra_key": "s" }));
    for fields in [
        json!({ "extra_key": "s" }),
        json!({ "extra_key": of_a }),
        json!({ "cache_salt": "", "extra_key": of_a }),
    ] {
        assert_ne!(sent(1, fields), of_a);
    }
}

#[test]
fn only_a_key_with_the_right_names_workers_and_ranks() {
    let keys = Keys::new("pins", &["acme"]);
    let engine = FakeEngine::start("tiny");
    let url = engine.url();
    let gateway = serve(&[&url], &["--keys", &keys.path()]);
    let body = json!({ "model": "tiny", "prompt": "a", "max_tokens": 1 });
    for (header, value) in [
        ("x-homing-worker", url.as_str()),
        ("x-homing-prefill-worker", &url),
        ("x-homing-workers", &url),
        ("x-homing-exclude-workers", &url),
        ("x-data-parallel-rank", "0"),
    ] {
        let headers = with_key(&keys.keys[0], &[(header, value)]);
        let response = post_json(&gateway.address(), "/v1/completions", &headers, &body);
        assert_eq!(response.status, 403, "{header}: {}", response.text());
        assert!(
            response.error_message().unwrap().contains("pin = true"),
            "{}",
            response.text()
        );
    }
    for fields in [
        json!({ "homing": { "worker": url } }),
        json!({ "data_parallel_rank": 0 }),
        json!({ "routed_dp_rank": 0 }),
    ] {
        let response = post_json(
            &gateway.address(),
            "/v1/completions",
            &with_key(&keys.keys[0], &[]),
            &merged(&body, &fields),
        );
        assert_eq!(response.status, 403, "{fields}: {}", response.text());
    }
    assert_eq!(forwarded(&engine, "/v1/completions").len(), 0);
}

#[test]
fn callers_of_the_route_api_are_told_what_to_remove() {
    let keys = Keys::new("route", &["acme"]);
    let engine = FakeEngine::start("tiny");
    for with_keys in [false, true] {
        let path = keys.path();
        let more: &[&str] = if with_keys { &["--keys", &path] } else { &[] };
        let gateway = serve(&[&engine.url()], &[&["--route", "127.0.0.1:0"][..], more].concat());
        let route = |body: &Value| post_json(&gateway.proxies(), "/homing/v1/route", &[], body);
        let body = json!({
            "model": "tiny", "tokens": [1, 2, 3], "book": false, "priority": 5, "cache_salt": "s", "homing": { "tenant": "acme" }
        });
        let routed = route(&body);
        assert_eq!(routed.status, 200, "{}", routed.text());
        let edits = &routed.json()["body_edits"];
        assert_eq!(edits["remove"], json!(["priority"]), "{}", routed.text());
        let salt = if with_keys { json!("4:acme:s") } else { Value::Null };
        assert_eq!(edits["cache_salt"], salt, "{}", routed.text());
        let body = merged(
            &body,
            &json!({ "vllm_xargs": { "kv_transfer_params": { "remote_host": "h" } } }),
        );
        let routed = route(&body);
        if with_keys {
            assert_eq!(routed.status, 400, "{}", routed.text());
            assert!(
                routed
                    .error_message()
                    .unwrap()
                    .contains("vllm_xargs.kv_transfer_params")
            );
        } else {
            assert_eq!(
                routed.json()["body_edits"]["remove"],
                json!(["priority", "vllm_xargs.kv_transfer_params"])
            );
        }
        assert_eq!(get(&gateway.operators(), "/health/live", &[]).status, 200);
    }
}

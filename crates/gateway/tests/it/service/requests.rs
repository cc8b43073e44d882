//! Does what a client sends reach the engine, and what the engine says the client?

use serde_json::{Value, json};

use crate::harness::{Engine, Gateway, events, prompt, text_of};

fn chat(text: &str, tokens: u32) -> Value {
    json!({ "model": "tiny", "messages": [{ "role": "user", "content": text }], "max_tokens": tokens, "temperature": 0 })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_one_piece_is_the_engines() {
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[]).await;
    let asked = chat("Hello, who are you?", 24);
    let through = gateway.ok("/v1/chat/completions", &asked).await;
    let direct = gateway
        .client
        .post(format!("{}/v1/chat/completions", engines[0].url()))
        .json(&asked);
    let direct: Value = direct.send().await.unwrap().json().await.unwrap();
    assert_eq!(
        through["choices"][0]["message"]["content"],
        direct["choices"][0]["message"]["content"]
    );
    assert_eq!(through["usage"]["completion_tokens"], 24);
    assert!(!through["choices"][0]["message"]["content"].as_str().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_what_the_client_asked_for_and_no_more() {
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[]).await;
    let asked = chat("Count to ten.", 16);
    let plain = gateway.stream("/v1/chat/completions", &asked).await;
    for event in &plain {
        assert!(event.get("usage").is_none_or(Value::is_null), "{event}");
        assert!(
            event["choices"].as_array().is_some_and(|choices| !choices.is_empty()),
            "{event}"
        );
        assert!(
            event["choices"][0].get("token_ids").is_none_or(Value::is_null),
            "{event}"
        );
    }
    let mut asked = asked;
    asked["stream_options"] = json!({ "include_usage": true });
    let with_usage = gateway.stream("/v1/chat/completions", &asked).await;
    let last = with_usage.last().unwrap();
    assert_eq!(last["usage"]["completion_tokens"], 16, "{last}");
    assert_eq!(text_of(&plain), text_of(&with_usage));
    let whole = gateway.ok("/v1/chat/completions", &chat("Count to ten.", 16)).await;
    assert_eq!(text_of(&plain), whole["choices"][0]["message"]["content"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_protocol_of_the_engines_goes_through() {
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[]).await;
    let completion = json!({ "model": "tiny", "prompt": "Once upon", "max_tokens": 4 });
    assert_eq!(
        gateway.ok("/v1/completions", &completion).await["usage"]["completion_tokens"],
        4
    );
    let embeddings = gateway
        .ok("/v1/embeddings", &json!({ "model": "tiny", "input": "text" }))
        .await;
    assert!(embeddings["data"][0]["embedding"].is_array(), "{embeddings}");
    let responses = json!({ "model": "tiny", "input": "Hi", "max_output_tokens": 4 });
    assert_eq!(gateway.ok("/v1/responses", &responses).await["object"], "response");
    let messages = json!({ "model": "tiny", "max_tokens": 4, "messages": [{ "role": "user", "content": "Hi" }] });
    assert_eq!(gateway.ok("/v1/messages", &messages).await["type"], "message");
    let tokens = gateway
        .ok("/tokenize", &json!({ "model": "tiny", "prompt": "Hi" }))
        .await;
    assert!(tokens["tokens"].is_array(), "{tokens}");
    let models: Value = gateway
        .client
        .get(format!("{}/v1/models", gateway.url))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(models["data"][0]["id"], "tiny");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_answers_and_tools_go_through() {
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[]).await;
    let mut several = chat("Again!", 8);
    several["n"] = json!(3);
    let answer = gateway.ok("/v1/chat/completions", &several).await;
    assert_eq!(answer["choices"].as_array().unwrap().len(), 3);
    let mut forced = chat("What is the weather?", 32);
    forced["tools"] =
        json!([{ "type": "function", "function": { "name": "weather", "parameters": { "type": "object" } } }]);
    forced["tool_choice"] = json!({ "type": "function", "function": { "name": "weather" } });
    let answer = gateway.ok("/v1/chat/completions", &forced).await;
    let called = &answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"];
    assert_eq!(called, "weather", "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_in_the_protocols_own_words() {
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[("serve.max-request-bytes", "64KiB")]).await;
    let (status, answer) = gateway
        .post("/v1/chat/completions", &json!({ "model": "huge", "messages": [] }))
        .await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (404, &json!("model_not_found")),
        "{answer}"
    );
    let (status, answer) = gateway
        .post(
            "/v1/messages",
            &json!({ "model": "huge", "messages": [], "max_tokens": 1 }),
        )
        .await;
    assert_eq!((status, &answer["type"]), (404, &json!("error")), "{answer}");
    let broken = gateway
        .client
        .post(format!("{}/v1/chat/completions", gateway.url))
        .body("{\"model\": ");
    let response = broken.send().await.unwrap();
    assert_eq!(response.status(), 400);
    assert!(response.headers().contains_key("x-homing-request-id"));
    let (status, _) = gateway
        .post(
            "/v1/completions",
            &json!({ "model": "tiny", "prompt": prompt(1, 70_000) }),
        )
        .await;
    assert_eq!(status, 413);
    for path in [
        "/v1/load_lora_adapter",
        "/reset_prefix_cache",
        "/sleep",
        "/mock/faults",
        "/metrics",
    ] {
        assert_eq!(gateway.post(path, &json!({})).await.0, 404, "{path}");
    }
    let answer = gateway
        .client
        .get(format!("{}/v1/completions", gateway.url))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 405);
    // An engine's own refusal is passed on as it is.
    let (status, answer) = gateway
        .post(
            "/v1/completions",
            &json!({ "model": "tiny", "prompt": "x", "max_tokens": -3 }),
        )
        .await;
    assert_eq!(status, 400, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_and_headers_arrive_and_ours_do_not() {
    let (address, written) = parrot().await;
    let workers = [format!("http://{address},model=tiny,cache-view=none")];
    let gateway = Gateway::start(&workers, &[("serve.policy", "round-robin")]).await;
    gateway.wait_workers(1).await;
    let body =
        r#"{ "model":"tiny" , "homing": {"session": "s1"},"prompt":"x","brand_new" : {"a":[1, 2]},"é":"\u00e9"}"#;
    let request = gateway.client.post(format!("{}/v1/completions?debug=1", gateway.url));
    let request = request
        .header("x-mine", "1")
        .header("x-homing-priority", "3")
        .header("authorization", "Bearer secret");
    let response = request
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.headers().get("x-theirs").is_none());
    let (head, sent) = written.lock().unwrap().last().cloned().unwrap();
    assert_eq!(
        sent,
        r#"{ "model":"tiny","prompt":"x","brand_new" : {"a":[1, 2]},"é":"\u00e9"}"#
    );
    let head = head.to_lowercase();
    assert!(head.starts_with("post /v1/completions?debug=1 http/1.1\r\n"), "{head}");
    for line in [
        "content-type: application/json\r\n",
        "authorization: bearer secret\r\n",
        "x-request-id: ",
    ] {
        assert!(head.contains(line), "{line} in {head}");
    }
    assert!(!head.contains("x-homing") && !head.contains("x-mine"), "{head}");
}

type Written = std::sync::Arc<std::sync::Mutex<Vec<(String, String)>>>;

/// A worker that writes down what it is sent.
async fn parrot() -> (std::net::SocketAddr, Written) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let written = Written::default();
    let notes = written.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let notes = notes.clone();
            tokio::spawn(async move {
                let mut all = Vec::new();
                loop {
                    let end = all.windows(4).position(|four| four == b"\r\n\r\n");
                    if let Some(end) = end {
                        let head = String::from_utf8_lossy(&all[..end + 4]).into_owned();
                        let length = head
                            .to_lowercase()
                            .split("content-length: ")
                            .nth(1)
                            .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
                        if all.len() >= end + 4 + length {
                            let body = String::from_utf8_lossy(&all[end + 4..end + 4 + length]).into_owned();
                            all.drain(..end + 4 + length);
                            let answer = if head.starts_with("GET /v1/models") {
                                r#"{"object":"list","data":[{"id":"tiny","object":"model"}]}"#
                            } else {
                                "{}"
                            };
                            if head.starts_with("POST") {
                                notes.lock().unwrap().push((head, body));
                            }
                            let answer = format!(
                                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-theirs: 2\r\ncontent-length: {}\r\n\r\n{answer}",
                                answer.len()
                            );
                            stream.write_all(answer.as_bytes()).await.unwrap();
                            continue;
                        }
                    }
                    match stream.read_buf(&mut all).await {
                        Ok(0) | Err(_) => return,
                        Ok(_) => {}
                    }
                }
            });
        }
    });
    (address, written)
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropics_streams_go_through() {
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[]).await;
    let asked = json!({
        "model": "tiny", "max_tokens": 6, "stream": true, "messages": [{ "role": "user", "content": "Hi" }]
    });
    let text = gateway.send("/v1/messages", &asked).await.text().await.unwrap();
    assert!(text.starts_with("event: message_start\n"), "{text}");
    assert!(text.trim_end().ends_with("data: {\"type\":\"message_stop\"}"), "{text}");
    let responses = json!({ "model": "tiny", "input": "Hi", "max_output_tokens": 4, "stream": true });
    let text = gateway.send("/v1/responses", &responses).await.text().await.unwrap();
    assert!(text.contains("response.completed"), "{text}");
    let completion = json!({ "model": "tiny", "prompt": "Hi", "max_tokens": 4, "stream": true });
    let text = gateway.send("/v1/completions", &completion).await.text().await.unwrap();
    assert_eq!(events(&text).len(), 4, "{text}");
}

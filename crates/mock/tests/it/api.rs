//! The API as vLLM has it.

use serde_json::{Value, json};

use crate::mock::Mock;

fn text(choice: &Value) -> &str {
    choice["text"].as_str().expect("a text")
}

#[tokio::test]
async fn a_completion_in_one_piece_and_in_many_is_the_same() {
    let mock = Mock::start(&[]).await;
    let ask = json!({"model": "tiny", "prompt": "Once upon a time", "max_tokens": 20, "return_token_ids": true});
    let whole = mock.ok("/v1/completions", &ask).await;
    assert_eq!(whole["object"], "text_completion");
    assert!(whole["id"].as_str().unwrap().starts_with("cmpl-"));
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["token_ids"].as_array().unwrap().len(), 20);
    assert_eq!(choice["prompt_token_ids"].as_array().unwrap().len(), 16);
    assert_eq!(
        whole["usage"],
        json!({
            "prompt_tokens": 16, "completion_tokens": 20, "total_tokens": 36,
            "prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": null, "multimodal_tokens": null},
            "completion_tokens_details": null,
        })
    );
    let mut ask = ask;
    ask["stream_options"] = json!({"include_usage": true});
    let pieces = mock.stream("/v1/completions", &ask).await;
    let (last, pieces) = pieces.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 20);
    assert_eq!(pieces.len(), 20);
    let said: String = pieces.iter().map(|piece| text(&piece["choices"][0])).collect();
    assert_eq!(said, text(choice));
    assert_eq!(pieces[18]["choices"][0]["finish_reason"], Value::Null);
    assert_eq!(pieces[19]["choices"][0]["finish_reason"], "length");
    mock.stop().await;
}

#[tokio::test]
async fn a_continuation_is_what_an_undisturbed_answer_goes_on_with() {
    let mock = Mock::start(&[("mock.workers", "2")]).await;
    let prompt: Vec<u32> = (1_000..1_050).collect();
    let ask = |prompt: &[u32], tokens: usize| json!({"prompt": prompt, "max_tokens": tokens, "return_token_ids": true});
    let ids = |answer: &Value| serde_json::from_value::<Vec<u32>>(answer["choices"][0]["token_ids"].clone()).unwrap();
    let undisturbed = ids(&mock.ok("/v1/completions", &ask(&prompt, 30)).await);
    let begun = [&prompt[..], &undisturbed[..12]].concat();
    let other = format!("http://{}/v1/completions", mock.places[1].address);
    let rest = mock.client.post(other).json(&ask(&begun, 18)).send().await.unwrap();
    assert_eq!(ids(&rest.json().await.unwrap()), undisturbed[12..]);
}

#[tokio::test]
async fn what_was_asked_before_comes_from_the_cache() {
    let mock = Mock::start(&[]).await;
    let prompt: Vec<u32> = (0..64).collect();
    let cached = async |salt: Option<&str>| {
        let ask = json!({"prompt": prompt, "max_tokens": 2, "cache_salt": salt});
        let answer = mock.ok("/v1/completions", &ask).await;
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(cached(None).await, 0);
    // All four blocks are there, and the last is computed all the same.
    assert_eq!(cached(None).await, 48);
    assert_eq!(cached(Some("tenant")).await, 0);
    assert_eq!(cached(Some("tenant")).await, 48);
    assert_eq!(
        mock.ok("/reset_prefix_cache", &Value::Null).await,
        json!({"success": true})
    );
    assert_eq!(cached(None).await, 0);
}

#[tokio::test]
async fn stops_lengths_and_several_answers() {
    let mock = Mock::start(&[]).await;
    let whole = mock
        .ok("/v1/completions", &json!({"prompt": "x", "max_tokens": 40}))
        .await;
    let said = text(&whole["choices"][0]);
    let stop = &said[10..12];
    let at = said.find(stop).unwrap();
    let ask = json!({"prompt": "x", "max_tokens": 40, "stop": [stop]});
    let stopped = mock.ok("/v1/completions", &ask).await;
    let choice = &stopped["choices"][0];
    assert_eq!((text(choice), &choice["finish_reason"]), (&said[..at], &json!("stop")));
    assert_eq!(choice["stop_reason"], stop);
    let streamed = mock.stream("/v1/completions", &ask).await;
    let streamed: String = streamed.iter().map(|piece| text(&piece["choices"][0])).collect();
    assert_eq!(streamed, said[..at]);
    let several = json!({"prompt": ["x", "yy"], "max_tokens": 4, "n": 2});
    let several = mock.ok("/v1/completions", &several).await;
    let choices = several["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    assert_eq!(text(&choices[0]), &said[..4]);
    assert_ne!(text(&choices[0]), text(&choices[1]));
    assert_eq!(several["usage"]["prompt_tokens"], 3);
    assert_eq!(several["usage"]["completion_tokens"], 16);
}

#[tokio::test]
async fn answers_end_by_themselves_unless_all_of_it_is_asked_for() {
    let mock = Mock::start(&[("mock.answer-tokens", "4")]).await;
    let generated = async |ignore: bool| {
        let ask = json!({"prompt": "x", "max_tokens": 500, "ignore_eos": ignore});
        let answer = mock.ok("/v1/completions", &ask).await;
        let reason = answer["choices"][0]["finish_reason"].as_str().unwrap().to_owned();
        (answer["usage"]["completion_tokens"].as_u64().unwrap(), reason)
    };
    let (tokens, reason) = generated(false).await;
    assert!(tokens < 500 && reason == "stop", "{tokens} {reason}");
    assert_eq!(generated(true).await, (500, "length".to_owned()));
}

#[tokio::test]
async fn a_chat_with_tools_and_images() {
    let mock = Mock::start(&[]).await;
    let messages = json!([
        {"role": "system", "content": "You are kind."},
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ]},
    ]);
    let tools = json!([{"type": "function", "function": {"name": "look", "parameters": {}}}]);
    let ask = json!({"model": "tiny", "messages": messages, "tools": tools, "max_tokens": 8});
    let answer = mock.ok("/v1/chat/completions", &ask).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["role"], "assistant");
    assert_eq!(message["content"].as_str().unwrap().len(), 8);
    let asked = json!({"messages": messages, "tools": tools});
    let tokens = mock.ok("/tokenize", &asked).await;
    assert_eq!(tokens["count"], answer["usage"]["prompt_tokens"]);
    let pieces = mock.stream("/v1/chat/completions", &ask).await;
    assert_eq!(
        pieces[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    let said: String = pieces[1..]
        .iter()
        .map(|piece| piece["choices"][0]["delta"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(said, message["content"].as_str().unwrap());
}

#[tokio::test]
async fn texts_and_tokens_and_what_it_says_of_itself() {
    let mock = Mock::start(&[]).await;
    let tokens = mock
        .ok("/tokenize", &json!({"prompt": "häh", "return_token_strs": true}))
        .await;
    assert_eq!(tokens["tokens"], json!([104, 195, 164, 104]));
    let back = mock.ok("/detokenize", &json!({"tokens": tokens["tokens"]})).await;
    assert_eq!(back, json!({"prompt": "häh"}));
    assert_eq!(mock.get_json("/version").await["version"], "0.32.0");
    assert_eq!(
        (mock.get("/health").await, mock.get("/ping").await),
        (String::new(), String::new())
    );
    let models = mock.get_json("/v1/models").await;
    assert_eq!(models["data"][0]["id"], "tiny");
    assert_eq!(models["data"][0]["max_model_len"], 131_072);
}

#[tokio::test]
async fn what_cannot_be_done_is_said_as_vllm_says_it() {
    let mock = Mock::start(&[("mock.blocks", "8")]).await;
    for (path, body, status, words) in [
        (
            "/v1/completions",
            json!({"prompt": "x", "model": "other"}),
            404,
            "The model `other` does not exist.",
        ),
        (
            "/v1/completions",
            json!({"prompt": "x", "max_tokens": 0}),
            400,
            "max_tokens must be at least 1",
        ),
        (
            "/v1/completions",
            json!({"prompt": "x", "max_tokens": 128}),
            400,
            "maximum context length is 128 tokens",
        ),
        ("/v1/completions", json!({"prompt": ""}), 400, "not be empty"),
        (
            "/v1/completions",
            json!({"prompt": [4_000_000]}),
            400,
            "out of vocabulary",
        ),
        ("/v1/completions", json!({"prompt": "x", "n": 5000}), 400, "and no more"),
        (
            "/v1/completions",
            json!({"prompt": "x", "stop": ""}),
            400,
            "empty string",
        ),
        ("/v1/completions", json!({}), 400, "prompt"),
        ("/v1/chat/completions", json!({"messages": []}), 400, "messages"),
        ("/v1/load_lora_adapter", json!({}), 400, "lora_name"),
        ("/v1/unload_lora_adapter", json!({"lora_name": "a"}), 404, "'a'"),
    ] {
        let (found, answer) = mock.post(path, &body).await;
        assert_eq!(found, status, "{path} {body}: {answer}");
        let error = &answer["error"];
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{path} {body}: {answer}"
        );
        assert_eq!(error["code"], status);
    }
    for (body, kind, param) in [
        (
            json!({"prompt": "x", "max_tokens": "many"}),
            "Bad Request",
            json!("body.max_tokens"),
        ),
        (
            json!({"prompt": "x", "max_tokens": 0}),
            "BadRequestError",
            json!("max_tokens"),
        ),
        (json!({"prompt": "x", "top_p": 7}), "BadRequestError", json!("top_p")),
        (
            json!({"prompt": "x", "temperature": -1}),
            "BadRequestError",
            json!("temperature"),
        ),
        (
            json!({"prompt": "x", "logprobs": 21}),
            "BadRequestError",
            json!("logprobs"),
        ),
        (json!({"prompt": "x", "n": 0}), "BadRequestError", Value::Null),
        (
            json!({"prompt": "x", "stream_options": {"include_usage": true}}),
            "BadRequestError",
            json!("stream_options"),
        ),
        (json!([]), "Bad Request", json!("body")),
    ] {
        let (found, answer) = mock.post("/v1/completions", &body).await;
        let error = &answer["error"];
        assert_eq!(
            (found, &error["type"], &error["param"]),
            (400, &json!(kind), &param),
            "{body}"
        );
    }
    let (status, answer) = mock
        .post(
            "/v1/messages",
            &json!({"model": "other", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}),
        )
        .await;
    assert_eq!((status, &answer["type"]), (404, &json!("error")));
    assert_eq!(mock.get_json("/nowhere").await, json!({"detail": "Not Found"}));
    assert_eq!(
        mock.get_json("/v1/completions").await,
        json!({"detail": "Method Not Allowed"})
    );
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let mock = Mock::start(&[]).await;
    let ask = json!({"prompt": (0..64).collect::<Vec<u32>>(), "max_tokens": 5});
    for _ in 0..2 {
        mock.ok("/v1/completions", &ask).await;
    }
    let labels = "{engine=\"0\",model_name=\"tiny\"";
    for (name, value) in [
        ("vllm:num_requests_running", 0.0),
        ("vllm:num_requests_waiting", 0.0),
        ("vllm:kv_cache_usage_perc", 0.0),
        ("vllm:prefix_cache_queries_total", 128.0),
        ("vllm:prefix_cache_hits_total", 48.0),
        ("vllm:prompt_tokens_total", 128.0),
        ("vllm:generation_tokens_total", 10.0),
        ("vllm:time_to_first_token_seconds_count", 2.0),
        ("vllm:inter_token_latency_seconds_count", 8.0),
        ("vllm:e2e_request_latency_seconds_count", 2.0),
    ] {
        let found = mock.metric(&format!("{name}{labels}")).await;
        assert!((found - value).abs() < 1e-9, "{name}: {found}");
    }
    let finished = format!("vllm:request_success_total{labels},finished_reason=\"length\"");
    assert!((mock.metric(&finished).await - 2.0).abs() < 1e-9);
    assert!(mock.metric("process_start_time_seconds ").await > 1e9);
    assert!(mock.metric("vllm:lora_requests_info{max_lora=\"4\"").await > 1e9);
}

#[tokio::test]
async fn adapters_come_and_go_and_keep_caches_apart() {
    let mock = Mock::start(&[]).await;
    let ask = |model: &str| json!({"model": model, "prompt": (0..64).collect::<Vec<u32>>(), "max_tokens": 2});
    mock.ok("/v1/completions", &ask("tiny")).await;
    assert_eq!(mock.post("/v1/completions", &ask("poet")).await.0, 404);
    let poet = json!({"lora_name": "poet", "lora_path": "/adapters/poet"});
    mock.ok("/v1/load_lora_adapter", &poet).await;
    assert_eq!(mock.post("/v1/load_lora_adapter", &poet).await.0, 400);
    assert_eq!(mock.get_json("/v1/models").await["data"][1]["parent"], "tiny");
    let answer = mock.ok("/v1/completions", &ask("poet")).await;
    assert_eq!(answer["model"], "poet");
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    mock.ok("/v1/unload_lora_adapter", &poet).await;
    assert_eq!(mock.post("/v1/completions", &ask("poet")).await.0, 404);
}

#[tokio::test]
async fn ranks_have_caches_of_their_own() {
    let mock = Mock::start(&[("mock.dp-size", "2")]).await;
    let prompt: Vec<u32> = (0..64).collect();
    let cached = async |rank: &str| {
        let request = mock.client.post(format!("{}/v1/completions", mock.url()));
        let request = request
            .header("X-data-parallel-rank", rank)
            .json(&json!({"prompt": prompt, "max_tokens": 2}));
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let answer: Value = response.json().await.unwrap();
        (
            status,
            answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64(),
        )
    };
    assert_eq!(cached("1").await, (200, Some(0)));
    assert_eq!(cached("1").await, (200, Some(48)));
    assert_eq!(cached("0").await, (200, Some(0)));
    assert_eq!(cached("2").await, (400, None));
    let queries = mock.metric("vllm:prefix_cache_queries_total{engine=\"1\"").await;
    assert!((queries - 128.0).abs() < 1e-9);
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing_behind() {
    let mock = Mock::start(&[("mock.speedup", "1")]).await;
    let ask = json!({"prompt": "x", "max_tokens": 100_000, "stream": true});
    let mut response = mock.send("/v1/completions", &ask).await.unwrap();
    response.chunk().await.unwrap().expect("it begins");
    mock.wait_metric("vllm:num_requests_running", |running| running > 0.0)
        .await;
    drop(response);
    mock.wait_metric("vllm:num_requests_running", |running| running < 1.0)
        .await;
}

#[tokio::test]
async fn embeddings_responses_and_messages() {
    let mock = Mock::start(&[]).await;
    let embeddings = mock.ok("/v1/embeddings", &json!({"input": ["a", "b"]})).await;
    assert_eq!(embeddings["data"].as_array().unwrap().len(), 2);
    assert_ne!(embeddings["data"][0]["embedding"], embeddings["data"][1]["embedding"]);
    assert_eq!(embeddings["usage"]["prompt_tokens"], 2);
    let ask = json!({"input": "hello", "instructions": "Be kind.", "max_output_tokens": 5});
    let response = mock.ok("/v1/responses", &ask).await;
    assert_eq!(response["output"][0]["content"][0]["text"].as_str().unwrap().len(), 5);
    assert_eq!(response["usage"]["output_tokens"], 5);
    let ask = json!({"messages": [{"role": "user", "content": "hello"}], "system": "Be kind.", "max_tokens": 5});
    let message = mock.ok("/v1/messages", &ask).await;
    assert_eq!(
        message["content"][0]["text"],
        response["output"][0]["content"][0]["text"]
    );
    assert_eq!(message["stop_reason"], "max_tokens");
    let mut ask = ask;
    ask["stream"] = json!(true);
    let stream = mock.send("/v1/messages", &ask).await.unwrap().text().await.unwrap();
    let names: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names[..2], ["message_start", "content_block_start"]);
    assert_eq!(names[2..7], ["content_block_delta"; 5]);
    assert_eq!(names[7..], ["content_block_stop", "message_delta", "message_stop"]);
}

#[tokio::test]
async fn a_tool_that_must_be_called_is_called() {
    let mock = Mock::start(&[]).await;
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tools = json!([{"type": "function", "function": {"name": "weather", "parameters": parameters}}]);
    let messages = json!([{"role": "user", "content": "Is it warm?"}]);
    for (choice, finish) in [
        (json!("required"), "tool_calls"),
        (json!({"type": "function", "function": {"name": "weather"}}), "stop"),
    ] {
        let ask = json!({"messages": messages, "tools": tools, "tool_choice": choice});
        let answer = mock.ok("/v1/chat/completions", &ask).await;
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], finish);
        let function = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(function, &json!({"name": "weather", "arguments": r#"{"city":"text"}"#}));
        let pieces = mock.stream("/v1/chat/completions", &ask).await;
        let calls: Vec<&Value> = pieces
            .iter()
            .map(|piece| &piece["choices"][0]["delta"]["tool_calls"][0]["function"])
            .collect();
        assert_eq!(calls[1]["name"], "weather");
        let arguments: String = calls.iter().filter_map(|call| call["arguments"].as_str()).collect();
        assert_eq!(arguments, r#"{"city":"text"}"#);
        assert_eq!(pieces.last().unwrap()["choices"][0]["finish_reason"], finish);
    }
    // What may be called or not is not.
    let ask = json!({"messages": messages, "tools": tools, "tool_choice": "auto", "max_tokens": 3});
    let answer = mock.ok("/v1/chat/completions", &ask).await;
    assert_eq!(answer["choices"][0]["message"]["tool_calls"], Value::Null);
}

#[tokio::test]
async fn log_probabilities_have_their_form() {
    let mock = Mock::start(&[]).await;
    let ask = json!({"prompt": "x", "max_tokens": 5, "logprobs": 3});
    let whole = mock.ok("/v1/completions", &ask).await;
    let logprobs = &whole["choices"][0]["logprobs"];
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3, 4]));
    assert_eq!(logprobs["tokens"].as_array().unwrap().len(), 5);
    let logprob = logprobs["token_logprobs"][0].as_f64().unwrap();
    assert!(logprob < 0.0 && logprobs["top_logprobs"][0].as_object().unwrap().len() == 3);
    let pieces = mock.stream("/v1/completions", &ask).await;
    assert_eq!(pieces[4]["choices"][0]["logprobs"]["text_offset"], json!([4]));
    let ask = json!({
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "logprobs": true, "top_logprobs": 2,
    });
    let chat = mock.ok("/v1/chat/completions", &ask).await;
    let content = chat["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 2);
    assert_eq!(content[0]["top_logprobs"].as_array().unwrap().len(), 2);
    assert_eq!(content[0]["bytes"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn responses_are_told_in_numbered_events_and_are_not_kept() {
    let mock = Mock::start(&[]).await;
    let ask = json!({"input": "hello", "max_output_tokens": 3, "stream": true});
    let stream = mock.send("/v1/responses", &ask).await.unwrap().text().await.unwrap();
    let events: Vec<Value> = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let numbers: Vec<u64> = events
        .iter()
        .map(|event| event["sequence_number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..11).collect::<Vec<u64>>());
    assert_eq!(events[0]["type"], "response.created");
    let last = &events[10]["response"];
    assert_eq!(
        (&last["status"], &last["usage"]["output_tokens"]),
        (&json!("incomplete"), &json!(3))
    );
    let said: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(last["output"][0]["content"][0]["text"], said);
    let id = last["id"].as_str().unwrap();
    let error = mock.get_json(&format!("/v1/responses/{id}")).await;
    assert_eq!(error["error"]["code"], 404);
}

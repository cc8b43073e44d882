//! Answers that break off on one worker and go on at another, as a gateway makes them: the client sees an undisturbed one.

use bytes::Bytes;
use homing_protocol::{
    Ask, Attention, Ear, Elsewhere, Endpoint, Event, Limits, Passed, Plan, SoFar, Splitter, Wanted, Way,
};
use serde_json::{Value, json};

use crate::mock::Mock;

/// What a client makes of a stream.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    text: String,
    roles: Vec<String>,
    finish: Option<String>,
    ids: Vec<String>,
    usage: Option<Value>,
    done: bool,
}

fn see(events: &[Bytes]) -> Seen {
    let mut seen = Seen::default();
    for event in events.iter().map(|raw| Event::new(raw.clone())) {
        if event.is_done() {
            seen.done = true;
            continue;
        }
        let value: Value = serde_json::from_slice(&event.data().expect("data")).expect("JSON");
        seen.ids.push(format!("{} {}", value["id"], value["object"]));
        seen.ids.dedup();
        if value["usage"].is_object() {
            let mut usage = value["usage"].clone();
            usage
                .as_object_mut()
                .expect("an object")
                .remove("prompt_tokens_details");
            seen.usage = Some(usage);
        }
        for choice in value["choices"].as_array().expect("choices") {
            assert!(
                choice["token_ids"].is_null(),
                "what we asked for ourselves is not shown"
            );
            seen.text += choice["delta"]["content"]
                .as_str()
                .or(choice["text"].as_str())
                .unwrap_or("");
            seen.roles.extend(choice["delta"]["role"].as_str().map(str::to_owned));
            seen.finish = choice["finish_reason"].as_str().map(str::to_owned).or(seen.finish);
        }
    }
    seen
}

/// The events of an answer, as they come.
async fn events(mock: &Mock, worker: usize, path: &str, body: Bytes) -> Vec<Bytes> {
    let url = format!("http://{}{path}", mock.places[worker].address);
    let request = mock.client.post(url).header("content-type", "application/json");
    let response = request.body(body).send().await.expect("it answers");
    assert_eq!(response.status().as_u16(), 200);
    let mut splitter = Splitter::new(1 << 20);
    splitter.push(response.bytes().await.expect("the whole stream"));
    let mut all = Vec::new();
    while let Some(event) = splitter.next_event().expect("short events") {
        all.push(event.into_raw());
    }
    all
}

/// An answer that breaks off on the first worker after so many events, and goes on at the second.
async fn continued(mock: &Mock, endpoint: Endpoint, body: &Bytes, cut: usize, wanted: Wanted) -> (Seen, Way) {
    let ask = Ask::read(endpoint, body, Limits::default()).expect("a body");
    let plan = Plan::new(&ask, wanted);
    let (editor, mut ear) = (plan.editor(), Ear::new(endpoint, Attention::Words));
    let mut so_far = SoFar::new(&ask, body, 1 << 20);
    let mut passed = Vec::new();
    let first = events(mock, 0, endpoint.path(), plan.body(&ask, body)).await;
    for raw in first.into_iter().take(cut) {
        let event = Event::new(raw);
        so_far.hear(&ear.event(&event));
        match editor.event(&event) {
            Passed::Drop => {}
            Passed::Pass => passed.push(event.into_raw()),
            Passed::Replace(bytes) => passed.push(bytes),
        }
    }
    let elsewhere = Elsewhere {
        wanted,
        context: Some(4_096),
        ..Elsewhere::default()
    };
    let mut resumed = so_far.resume(&elsewhere).expect("it can be continued");
    for raw in events(mock, 1, resumed.ask.endpoint.path(), resumed.sent).await {
        let event = match resumed.editor.event(&Event::new(raw.clone())) {
            Passed::Drop => continue,
            Passed::Pass => Event::new(raw),
            Passed::Replace(bytes) => Event::new(bytes),
        };
        match resumed.seam.event(&event).expect("the same answer") {
            Passed::Drop => {}
            Passed::Pass => passed.push(event.into_raw()),
            Passed::Replace(bytes) => passed.push(bytes),
        }
    }
    (see(&passed), resumed.way)
}

#[tokio::test]
async fn an_answer_goes_on_at_another_worker_as_if_nothing_had_happened() {
    let settings = [
        ("mock.workers", "2"),
        ("mock.answer-tokens", "60"),
        ("mock.max-model-len", "4096"),
    ];
    let mock = Mock::start(&settings).await;
    let chat = |more: Value| {
        let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "tell me more"}], "max_tokens": 40,
            "stream": true, "stream_options": {"include_usage": true}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        (Endpoint::ChatCompletions, body)
    };
    let completion = |more: Value| {
        let mut body = json!({"model": "tiny", "prompt": "Once upon", "max_tokens": 40, "stream": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        (Endpoint::Completions, body)
    };
    let cases = [
        (chat(json!({})), Wanted::Usage, Way::Text),
        (chat(json!({})), Wanted::UsageAndTokens, Way::Tokens),
        (chat(json!({"max_tokens": null})), Wanted::UsageAndTokens, Way::Tokens),
        (
            chat(json!({"stop": ["qqq", "e"], "seed": 4})),
            Wanted::UsageAndTokens,
            Way::Text,
        ),
        (completion(json!({})), Wanted::Usage, Way::Text),
        (completion(json!({"seed": 3})), Wanted::UsageAndTokens, Way::Tokens),
        (
            completion(json!({"prompt": [300, 301, 302]})),
            Wanted::UsageAndTokens,
            Way::Tokens,
        ),
        // From the last space on, and there is none yet.
        (
            completion(json!({"stop": "xy", "temperature": 0})),
            Wanted::Usage,
            Way::Again,
        ),
    ];
    for ((endpoint, body), wanted, expected) in cases {
        let body = Bytes::from(body.to_string());
        let undisturbed = see(&events(&mock, 0, endpoint.path(), body.clone()).await);
        assert!(undisturbed.text.len() > 8 && undisturbed.done, "{undisturbed:?}");
        for cut in [6, 7, 8] {
            let (seen, way) = continued(&mock, endpoint, &body, cut, wanted).await;
            assert_eq!(way, expected, "{endpoint:?} {wanted:?}");
            assert_eq!(seen.text, undisturbed.text, "{way:?}");
            assert_eq!(
                (&seen.finish, &seen.roles, &seen.usage),
                (&undisturbed.finish, &undisturbed.roles, &undisturbed.usage)
            );
            assert_eq!((seen.ids.len(), seen.done), (1, true), "{:?}", seen.ids);
        }
    }
    mock.stop().await;
}

#[tokio::test]
async fn a_message_is_continued_only_where_it_can_be() {
    let mock = Mock::start(&[]).await;
    let ask = |content: Value, more: Value| {
        let messages = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}]);
        let mut body = json!({"messages": messages, "max_tokens": 2, "continue_final_message": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let open = json!({"add_generation_prompt": false});
    let (status, both) = mock.post("/v1/chat/completions", &ask(json!("ye"), json!({}))).await;
    assert_eq!((status, &both["error"]["type"]), (400, &json!("BadRequestError")));
    let (status, _) = mock.post("/v1/chat/completions", &ask(Value::Null, open.clone())).await;
    assert_eq!(status, 400);
    let answer = mock.ok("/v1/chat/completions", &ask(json!("ye"), open.clone())).await;
    assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    // The tokens are those that the tokenizer's endpoint tells.
    let tokens = mock.ok("/tokenize", &ask(json!("ye"), open)).await;
    assert_eq!(tokens["count"], answer["usage"]["prompt_tokens"]);
    mock.stop().await;
}

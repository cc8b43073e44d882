//! Is an answer that breaks off and goes on elsewhere the answer of an undisturbed run?
//!
//! The engine here is half a page: what it says next depends on all tokens before it, so that any difference in what it is asked
//! shows at once.

use bytes::Bytes;
use homing_protocol::migrate::Elsewhere;
use homing_protocol::{
    Ask, Attention, Ear, Endpoint, Event, Limits, Passed, Plan, Seam, SoFar, Splitter, Wanted, Way, WhyNot,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What kind of engine answers.
#[derive(Clone, Copy, Debug)]
struct Engine {
    /// Text that could be the beginning of a stop is kept back.
    keeps_back: bool,
    /// Its chat template strips messages.
    strips: bool,
    /// It says pairs of letters, of which nobody makes the same tokens again.
    pairs: bool,
}

const LETTERS: &[u8] = b"ab \nE";
const END: u32 = 9_999;
const CONTEXT: u32 = 400;

impl Engine {
    fn text(token: u32) -> String {
        match token {
            END => String::new(),
            256.. => {
                let (first, second) = ((token - 256) / 256, (token - 256) % 256);
                [first as u8 as char, second as u8 as char].iter().collect()
            }
            _ => (token as u8 as char).to_string(),
        }
    }

    fn next(self, tokens: &[u32], first: bool) -> u32 {
        let mut state = tokens.iter().fold(7_u64, |state, token| {
            (state ^ u64::from(*token))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        });
        let mut draw = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        if draw(60) == 0 {
            return END;
        }
        // What is stripped at the beginning of a message cannot be continued by its text.
        let letters = if first { &LETTERS[..2] } else { LETTERS };
        let letter = u32::from(letters[draw(letters.len())]);
        if self.pairs && draw(2) == 0 {
            return 256 + letter * 256 + u32::from(LETTERS[draw(LETTERS.len())]);
        }
        letter
    }

    fn prompt(self, endpoint: Endpoint, body: &Value) -> Vec<u32> {
        let encode = |text: &str| text.bytes().map(u32::from).collect::<Vec<u32>>();
        if endpoint == Endpoint::Completions {
            return match &body["prompt"] {
                Value::String(text) => encode(text),
                ids => serde_json::from_value(ids.clone()).expect("as it was made"),
            };
        }
        let messages = body["messages"].as_array().expect("as it was made");
        let open = body["continue_final_message"] == true;
        assert_eq!(body["add_generation_prompt"] != false, !open);
        let mut text = String::new();
        for (place, message) in messages.iter().enumerate() {
            let content = message["content"].as_str().expect("as it was made");
            let content = if self.strips { content.trim() } else { content };
            text.extend(["<", message["role"].as_str().expect("a role"), ">", content]);
            if !(open && place + 1 == messages.len()) {
                text += "</>";
            }
        }
        if !open {
            text += "<assistant>";
        }
        encode(&text)
    }

    /// All events of an answer, as vLLM writes them.
    fn answer(self, endpoint: Endpoint, body: &[u8], id: &str) -> Vec<Bytes> {
        let body: Value = serde_json::from_slice(body).expect("as it was made");
        let prompt = self.prompt(endpoint, &body);
        let chat = endpoint == Endpoint::ChatCompletions;
        let most = body["max_completion_tokens"].as_u64().or(body["max_tokens"].as_u64());
        let most = most.unwrap_or(if chat {
            u64::from(CONTEXT) - prompt.len() as u64
        } else {
            16
        });
        assert!(most + prompt.len() as u64 <= u64::from(CONTEXT), "too long");
        let stops: Vec<String> = match &body["stop"] {
            Value::String(stop) => vec![stop.clone()],
            list => serde_json::from_value(list.clone()).unwrap_or_default(),
        };
        let keep = body["include_stop_str_in_output"] == true;
        let ids = body["return_token_ids"] == true;
        let longest = stops.iter().map(String::len).max().unwrap_or(1);
        let back = if self.keeps_back && !keep { longest - 1 } else { 0 };
        let least = body["min_tokens"].as_u64().unwrap_or(0);
        let mut events = Vec::new();
        let piece = |choices: Value| {
            let object = if chat {
                "chat.completion.chunk"
            } else {
                "text_completion"
            };
            json!({"id": id, "object": object, "created": id.len(), "model": format!("model-{id}"), "choices": choices})
        };
        let mut tell = |value: &Value| events.push(Bytes::from(format!("data: {value}\n\n")));
        if chat {
            let mut first =
                piece(json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]));
            first["prompt_token_ids"] = json!(ids.then_some(&prompt));
            tell(&first);
        }
        let (mut tokens, mut text, mut given) = (prompt.clone(), String::new(), 0);
        let mut finish = Value::Null;
        while finish.is_null() {
            let said = tokens.len() - prompt.len();
            let mut token = self.next(
                &tokens,
                chat && said == 0 && text.is_empty() && body["continue_final_message"] != true,
            );
            if token == END && (said as u64) < least {
                token = u32::from(b'a');
            }
            tokens.push(token);
            let before = text.len();
            text += &Self::text(token);
            let met = stops.iter().filter_map(|stop| {
                let from = before.saturating_sub(stop.len());
                text[from..].find(stop.as_str()).map(|at| (from + at, stop.len()))
            });
            let mut stop_reason = Value::Null;
            // The one that is complete first, of several the first in the list.
            if let Some((at, length)) = met.min_by_key(|(at, length)| at + length) {
                stop_reason = json!(text[at..at + length]);
                text.truncate(if keep { at + length } else { at });
                finish = json!("stop");
            } else if token == END {
                finish = json!("stop");
            } else if said as u64 + 1 == most {
                finish = json!("length");
            }
            let until = if finish.is_null() {
                text.len().saturating_sub(back).max(given)
            } else {
                text.len()
            };
            let new = &text[given.min(until)..until];
            let mut choice =
                json!({"index": 0, "logprobs": null, "finish_reason": finish, "token_ids": ids.then_some([token])});
            if chat {
                choice["delta"] = json!({"content": new});
                if !finish.is_null() {
                    choice["stop_reason"] = stop_reason;
                }
            } else {
                choice["text"] = json!(new);
                choice["stop_reason"] = stop_reason;
                choice["prompt_token_ids"] = json!((ids && said == 0).then_some(&prompt));
            }
            given = given.max(until);
            tell(&piece(json!([choice])));
        }
        if body["stream_options"]["include_usage"] == true {
            let completion = tokens.len() - prompt.len();
            let mut used = piece(json!([]));
            used["usage"] = json!({"prompt_tokens": prompt.len(), "completion_tokens": completion,
                "total_tokens": prompt.len() + completion, "prompt_tokens_details": {"cached_tokens": 3}});
            tell(&used);
        }
        events.push(Bytes::from_static(b"data: [DONE]\n\n"));
        events
    }
}

/// What a client makes of a stream.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    text: String,
    roles: usize,
    finish: Vec<String>,
    stop_reason: Value,
    usage: Option<(u64, u64, u64)>,
    heads: Vec<String>,
    done: usize,
    token_ids: usize,
}

fn see(events: &[Bytes]) -> Seen {
    let mut seen = Seen::default();
    let mut splitter = Splitter::new(1 << 20);
    for bytes in events {
        splitter.push(bytes.clone());
        while let Some(event) = splitter.next_event().expect("as it was made") {
            if event.is_done() {
                seen.done += 1;
                continue;
            }
            let value: Value = serde_json::from_slice(&event.data().expect("as it was made")).expect("as it was made");
            let head = format!(
                "{} {} {} {}",
                value["id"], value["object"], value["created"], value["model"]
            );
            if seen.heads.last() != Some(&head) {
                seen.heads.push(head);
            }
            if let Some(usage) = value["usage"].as_object() {
                let number = |key: &str| usage[key].as_u64().expect("as it was made");
                seen.usage = Some((
                    number("prompt_tokens"),
                    number("completion_tokens"),
                    number("total_tokens"),
                ));
            }
            for choice in value["choices"].as_array().expect("as it was made") {
                let delta = &choice["delta"];
                seen.text += delta["content"].as_str().or(choice["text"].as_str()).unwrap_or("");
                seen.roles += usize::from(delta["role"].is_string());
                seen.token_ids += usize::from(choice["token_ids"].is_array());
                if let Some(finish) = choice["finish_reason"].as_str() {
                    seen.finish.push(finish.to_owned());
                    seen.stop_reason = choice["stop_reason"].clone();
                }
            }
        }
    }
    seen
}

#[derive(Clone, Debug)]
struct Case {
    engine: Engine,
    wanted: Wanted,
    endpoint: Endpoint,
    body: Value,
    cuts: Vec<usize>,
    context: Option<u32>,
    /// The body that is kept is the one that was sent, and not the client's.
    keeps_sent: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let engine = (any::<bool>(), any::<bool>(), any::<bool>());
    let wanted = prop::sample::select(vec![Wanted::Nothing, Wanted::Usage, Wanted::UsageAndTokens]);
    let stops = prop::sample::select(vec![
        json!(null),
        json!("E"),
        json!(["ab E", "\n\n"]),
        json!(["aab", "bbaab"]),
    ]);
    let asked = (wanted, 0..3_usize, any::<u8>(), stops, any::<bool>(), any::<bool>());
    let limits = (
        prop::option::of(1..60_u32),
        prop::option::of(0..20_u32),
        any::<bool>(),
        any::<bool>(),
    );
    let cuts = prop::collection::vec(1..50_usize, 1..4);
    (engine, asked, limits, cuts, any::<[bool; 2]>()).prop_map(
        |(engine, asked, limits, cuts, [context, keeps_sent])| {
            let (wanted, kind, seed, stop, keep, greedy) = asked;
            let (most, least, newer, usage) = limits;
            let (endpoint, mut body) = match kind {
                0 => (Endpoint::Completions, json!({"prompt": format!("prompt {seed} \"é")})),
                1 => (Endpoint::Completions, json!({"prompt": [70, seed, 71]})),
                _ => (
                    Endpoint::ChatCompletions,
                    json!({"messages": [{"role": "user", "content": format!("hi {seed}")}]}),
                ),
            };
            body["stream"] = json!(true);
            if !stop.is_null() {
                body["stop"] = stop;
                body["include_stop_str_in_output"] = json!(keep);
            }
            if let Some(most) = most {
                let newer = newer && endpoint == Endpoint::ChatCompletions;
                body[if newer { "max_completion_tokens" } else { "max_tokens" }] = json!(most);
            }
            if let Some(least) = least {
                body["min_tokens"] = json!(least);
            }
            if greedy {
                body["temperature"] = json!(0);
            }
            if usage {
                body["stream_options"] = json!({"include_usage": true});
            }
            let (keeps_back, strips, pairs) = engine;
            Case {
                engine: Engine {
                    keeps_back,
                    strips,
                    pairs,
                },
                wanted,
                endpoint,
                body,
                cuts,
                context: context.then_some(CONTEXT),
                keeps_sent,
            }
        },
    )
}

/// One stream after the other, each cut off after some events, and the last one whole.
fn migrated(case: &Case) -> (Result<Vec<Bytes>, WhyNot>, Vec<Way>) {
    let original = Bytes::from(case.body.to_string());
    let first = Ask::read(case.endpoint, &original, Limits::default()).expect("as it was made");
    let plan = Plan::new(&first, case.wanted);
    let prompt = case
        .context
        .map(|_| case.engine.prompt(case.endpoint, &case.body).len() as u64);
    let elsewhere = Elsewhere {
        wanted: case.wanted,
        context: case.context,
        prompt,
        model: None,
    };
    let kept = if case.keeps_sent {
        plan.body(&first, &original)
    } else {
        original.clone()
    };
    let mut so_far = SoFar::new(&first, &kept, 1 << 20);
    let (mut endpoint, mut sent, mut editor) = (case.endpoint, plan.body(&first, &original), plan.editor());
    let (mut seam, mut passed, mut ways): (Option<Seam>, _, _) = (None, Vec::new(), Vec::new());
    let mut cuts = case.cuts.iter();
    for life in 0.. {
        let mut ear = Ear::new(endpoint, Attention::Words);
        let events = case.engine.answer(endpoint, &sent, &format!("life-{life}"));
        let cut = cuts.next().copied().unwrap_or(usize::MAX);
        for raw in events.iter().take(cut) {
            let event = Event::new(raw.clone());
            so_far.hear(&ear.event(&event));
            let edited = match editor.event(&event) {
                Passed::Drop => continue,
                Passed::Pass => event,
                Passed::Replace(bytes) => Event::new(bytes),
            };
            let Some(seam) = &mut seam else {
                passed.push(edited.into_raw());
                continue;
            };
            match seam.event(&edited) {
                Err(why) => return (Err(why), ways),
                Ok(Passed::Drop) => {}
                Ok(Passed::Pass) => passed.push(edited.into_raw()),
                Ok(Passed::Replace(bytes)) => passed.push(bytes),
            }
        }
        if cut >= events.len() || seam.as_ref().is_some_and(Seam::is_over) || so_far.refused() == Some(WhyNot::Ended) {
            // What is behind the last piece is not lost here.
            return (Ok(passed), ways);
        }
        match so_far.resume(&elsewhere) {
            Err(why) => return (Err(why), ways),
            Ok(resumed) => {
                ways.push(resumed.way);
                (endpoint, sent, editor) = (resumed.ask.endpoint, resumed.sent, resumed.editor);
                seam = Some(resumed.seam);
            }
        }
    }
    unreachable!("the last life is whole")
}

fn check(case: &Case) -> Result<(), TestCaseError> {
    let undisturbed = see(&case
        .engine
        .answer(case.endpoint, case.body.to_string().as_bytes(), "life-0"));
    let (passed, ways) = migrated(case);
    let stops = case.body["stop"].is_array() && case.body["include_stop_str_in_output"] != true;
    let other_tokens = case.engine.pairs && ways.contains(&Way::Text);
    let passed = match passed {
        Ok(passed) => passed,
        Err(WhyNot::Diverged) if other_tokens => return Ok(()),
        Err(why) => {
            // Tokens without their ids, or with text that was kept back, cannot be continued.
            let tokens = case.body["prompt"].is_array();
            prop_assert!(tokens, "{why}");
            prop_assert!(why == if stops { WhyNot::KeptBack } else { WhyNot::Prompt }, "{why}");
            prop_assert!(stops || case.wanted != Wanted::UsageAndTokens);
            return Ok(());
        }
    };
    if other_tokens {
        // Other tokens may be made of a text than those that were generated; nothing is claimed.
        return Ok(());
    }
    let seen = see(&passed);
    let ended = seen.finish.len() == 1;
    if ended || undisturbed.done == seen.done {
        prop_assert_eq!(&seen.text, &undisturbed.text, "{:?}", ways);
        prop_assert_eq!(&seen.finish, &undisturbed.finish);
        prop_assert_eq!(&seen.stop_reason, &undisturbed.stop_reason);
    }
    if seen.done == 1 && (seen.usage.is_some() || case.context.is_some()) {
        prop_assert_eq!(seen.usage, undisturbed.usage, "{:?}", ways);
    }
    prop_assert_eq!(&seen.heads, &undisturbed.heads);
    prop_assert_eq!(seen.roles, undisturbed.roles);
    prop_assert_eq!(seen.token_ids, 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn an_answer_is_the_same_wherever_it_goes_on(case in case()) {
        check(&case)?;
    }
}

#[test]
fn a_continuation_has_the_salt_of_the_engine() {
    let body = Bytes::from_static(br#"{"prompt":"a","stream":true,"cache_salt":"s","extra_key":"k"}"#);
    let mut ask = Ask::read(Endpoint::Completions, &body, Limits::default()).unwrap();
    ask.engine_salt = Some("4:acme:sk".to_owned());
    let mut so_far = SoFar::new(&ask, &body, 1 << 10);
    let resumed = so_far.resume(&Elsewhere::default()).unwrap();
    let sent: Value = serde_json::from_slice(&resumed.sent).unwrap();
    assert_eq!(sent["cache_salt"], "4:acme:sk");
    assert!(sent.get("extra_key").is_none(), "{sent}");
    assert_eq!(resumed.ask.salt(), Some("4:acme:sk"));
}

//! What does a piece of a stream cost, and what a body? Run with `cargo run --release -p homing-protocol --example costs`.

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use homing_protocol::{Ask, Attention, Ear, Endpoint, Limits, Passed, Plan, SoFar, Splitter, Wanted};

/// The shortest of several runs, in nanoseconds for each of so many things.
fn best(things: usize, mut run: impl FnMut()) -> f64 {
    let once = |run: &mut dyn FnMut()| {
        let begun = Instant::now();
        run();
        begun.elapsed().as_nanos() as f64 / things as f64
    };
    (0..15).map(|_| once(&mut run)).fold(f64::MAX, f64::min)
}

fn chunk(text: &str, ids: &str) -> Bytes {
    let head = r#"{"id":"chatcmpl-5f0d3c1e9a7b4b0d8f4e2c6a1b3d5e7f","object":"chat.completion.chunk","created":1790000000,"model":"meta-llama/Llama-3.1-8B-Instruct","choices":[{"index":0,"delta":{"content":"#;
    Bytes::from(format!(
        "data: {head}{text:?}}},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":{ids}}}]}}\n\n"
    ))
}

fn stream(name: &str, chunks: &[Bytes], wanted: Wanted, attention: Attention) {
    let body = Bytes::from_static(br#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}"#);
    let ask = Ask::read(Endpoint::ChatCompletions, &body, Limits::default()).expect("a body");
    let editor = Plan::new(&ask, wanted).editor();
    let cost = best(chunks.len(), || {
        let mut splitter = Splitter::new(1 << 20);
        let mut ear = Ear::new(Endpoint::ChatCompletions, attention);
        let mut so_far = SoFar::new(&ask, &body, 1 << 20);
        for chunk in chunks {
            splitter.push(chunk.clone());
            while let Ok(Some(event)) = splitter.next_event() {
                let heard = ear.event(&event);
                so_far.hear(&heard);
                match editor.event(&event) {
                    Passed::Pass => drop(black_box(event.into_raw())),
                    Passed::Replace(bytes) => drop(black_box(bytes)),
                    Passed::Drop => {}
                }
            }
        }
        black_box(ear.chunks());
    });
    println!("{name:<58} {cost:>9.0} ns per event");
}

fn body(name: &str, bytes: usize) {
    let turn = |place: usize| {
        let text = "The quick brown fox said: \\\"jump\\\" over it, and so on.\\n".repeat(8);
        let role = if place.is_multiple_of(2) { "user" } else { "assistant" };
        format!("{{\"role\":\"{role}\",\"content\":\"{text}\"}}")
    };
    let turns: Vec<String> = (0..).map(turn).take(bytes / 500 + 1).collect();
    let body = format!(
        "{{\"model\":\"m\",\"messages\":[{}],\"stream\":true,\"max_tokens\":100,\"temperature\":0}}",
        turns.join(",")
    );
    let body = Bytes::from(body);
    let times = (4 << 20) / body.len() + 1;
    let cost = best(times, || {
        for _ in 0..times {
            black_box(Ask::read(Endpoint::ChatCompletions, &body, Limits::default()).expect("a body"));
        }
    });
    let ask = Ask::read(Endpoint::ChatCompletions, &body, Limits::default()).expect("a body");
    let plan = Plan::new(&ask, Wanted::Usage);
    let splice = best(times, || {
        for _ in 0..times {
            black_box(plan.body(&ask, &body));
        }
    });
    let size = body.len();
    println!(
        "{name:<58} {:>9.1} us to read, {:.1} us to splice ({size} bytes)",
        cost / 1e3,
        splice / 1e3
    );
}

fn main() {
    let words = [" the", " \"quoted\"", ".\n", " word", " é", ""];
    let plain: Vec<Bytes> = (0..6_000)
        .map(|place| chunk(words[place % words.len()], "null"))
        .collect();
    let ids: Vec<Bytes> = (0..6_000)
        .map(|place| chunk(words[place % words.len()], "[12345]"))
        .collect();
    stream(
        "chat event: split, hear facts, edit usage",
        &plain,
        Wanted::Usage,
        Attention::Facts,
    );
    stream(
        "chat event: split, hear words, edit usage, collect",
        &plain,
        Wanted::Usage,
        Attention::Words,
    );
    stream(
        "chat event: split, hear words, hide token ids, collect",
        &ids,
        Wanted::UsageAndTokens,
        Attention::Words,
    );
    body("body of 8 KB", 8 << 10);
    body("body of 400 KB", 400 << 10);
}

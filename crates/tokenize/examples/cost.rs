//! What does a long prompt cost? Measures a chat of about so many tokens, in seconds of one core.
//!
//! `cargo run --release -p homing-tokenize --example cost -- MODEL_FOLDER [TOKENS] < TEXT`
//!
//! The conversation is cut from the text on standard input, which should be long enough and like what users send.

use std::io::Read;

use homing_tokenize::{Clock, Dialect, Marks, PromptOptions, Prompter};
use serde_json::{Value, json};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("a folder of a model");
    let tokens: usize = arguments
        .next()
        .map_or(100_000, |tokens| tokens.parse().expect("a number"));
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("a text");
    let options = PromptOptions::new(Dialect::Vllm, Clock::fixed(0));
    let prompter = timed("load", || {
        Prompter::load(folder.as_ref(), options.clone()).expect("a model")
    });
    // One text to find out how many bytes a token has.
    let sample: String = text.chars().take(20_000).collect();
    let per_token = sample.len() as f64 / prompter.text(&sample, Marks::None).expect("tokens").len() as f64;
    let bytes = (tokens as f64 * per_token) as usize;
    let turns = messages(&text, bytes);
    let fresh = Prompter::load(folder.as_ref(), options).expect("a model");
    let seen = turns.len() * 9 / 10 / 2 * 2 + 1;
    for (name, upto) in [
        ("first 90%", seen),
        ("all of it, 90% seen", turns.len()),
        ("the same again", turns.len()),
    ] {
        let body = json!({"model": "m", "messages": turns[..upto]}).to_string();
        ask(&fresh, name, &body);
    }
    let body = json!({"model": "m", "messages": turns}).to_string();
    ask(
        &Prompter::load(folder.as_ref(), PromptOptions::new(Dialect::Vllm, Clock::fixed(0))).expect("a model"),
        "all of it, first time",
        &body,
    );
    let one = json!({"model": "m", "messages": [{"role": "user", "content": text[..bytes]}]}).to_string();
    ask(&prompter, "one long message", &one);
    ask(&prompter, "the same again", &one);
}

/// A conversation of so many bytes, in messages of different lengths.
fn messages(text: &str, bytes: usize) -> Vec<Value> {
    let mut turns = Vec::new();
    let (mut at, mut length) = (0, 300);
    while at < bytes && at < text.len() {
        let mut end = (at + length).min(text.len());
        while !text.is_char_boundary(end) {
            end += 1;
        }
        let role = if turns.len() % 2 == 0 { "user" } else { "assistant" };
        turns.push(json!({"role": role, "content": text[at..end]}));
        at = end;
        length = 200 + (length * 7 + 13) % 6_000;
    }
    turns
}

fn ask(prompter: &Prompter, name: &str, body: &str) {
    let count = timed(name, || {
        let body: Value = serde_json::from_str(body).expect("JSON");
        prompter.chat(&body).expect("a prompt").tokens.len()
    });
    println!("{:>40} {count} tokens, {} bytes", "", body.len());
}

fn timed<T>(name: &str, run: impl FnOnce() -> T) -> T {
    let begin = core_seconds();
    let answer = run();
    println!("{name:>40} {:.4} core-seconds", core_seconds() - begin);
    answer
}

/// Seconds that this thread was on a core: on a busy machine the clock on the wall says little.
fn core_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = stat.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.expect("a number") / 1e9
}

//! Which tokens are these prompts? For comparisons with engines (`e2e/run tokens`).
//!
//! `prompts MODEL_FOLDER CONTEXT vllm|sglang`: reads lines of JSON from standard input, each with an `endpoint` and a `body`, and
//! writes for each a line with `tokens` (a list for each prompt) or with `error` and its `reason`.

use std::io::{BufRead, Write};

use homing_tokenize::{Clock, Dialect, Prompt, PromptError, PromptOptions, Prompter};
use serde_json::{Value, json};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, context, dialect] = arguments.as_slice() else {
        panic!("prompts MODEL_FOLDER CONTEXT vllm|sglang");
    };
    let dialect = if dialect == "sglang" {
        Dialect::Sglang
    } else {
        Dialect::Vllm
    };
    let options = PromptOptions {
        context: context.parse().expect("a number of tokens"),
        ..PromptOptions::new(dialect, Clock::fixed(1_720_000_000))
    };
    let prompter = Prompter::load(folder.as_ref(), options).expect("a folder of a model");
    eprintln!("{}", prompter.describe());
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line.expect("text")).expect("JSON");
        let answer = match ask(&prompter, &asked["endpoint"], &asked["body"]) {
            Ok(prompts) => {
                let cut = prompts.iter().any(|prompt| prompt.cut.is_some());
                let tokens: Vec<Vec<u32>> = prompts.into_iter().map(|prompt| prompt.tokens).collect();
                json!({"tokens": tokens, "cut": cut})
            }
            Err(error) => json!({"error": error.to_string(), "reason": error.reason()}),
        };
        writeln!(out, "{answer}").expect("someone listens");
    }
}

fn ask(prompter: &Prompter, endpoint: &Value, body: &Value) -> Result<Vec<Prompt>, PromptError> {
    match endpoint.as_str() {
        Some("chat") => prompter.chat(body).map(|prompt| vec![prompt]),
        Some("messages") => prompter.messages(body).map(|prompt| vec![prompt]),
        Some("responses") => prompter.responses(body).map(|prompt| vec![prompt]),
        _ => prompter.completion(body),
    }
}

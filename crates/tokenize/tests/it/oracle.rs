//! Are our tokens those of `transformers`, for real tokenizers? With the cache and without it.
//!
//! `oracle.py` beside this file makes the conversations and asks `transformers`. `./test` fetches the tokenizers and sets
//! `HOMING_TEST_TOKENIZERS`.

use std::path::PathBuf;
use std::process::Command;

use homing_tokenize::{CacheUse, Clock, Dialect, Marks, PromptError, PromptOptions, Prompter, Switched};
use serde_json::Value;

/// What the clock of the oracle shows.
const NOW: i64 = 1_720_000_000;
/// At least so many conversations of each tokenizer have tokens; templates refuse the others.
const WANTED: usize = 50;

fn variable(name: &str) -> PathBuf {
    let value = std::env::var_os(name);
    value.map_or_else(|| {
        panic!("{name} is not set: run ./test, which installs what this test needs; arguments go to cargo, as in ./test -p homing-tokenize")
    }, PathBuf::from)
}

fn folder(name: &str) -> PathBuf {
    variable("HOMING_TEST_TOKENIZERS").join(name)
}

/// What the oracle says, line by line.
fn answers(name: &str) -> Vec<Value> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/oracle.py");
    let output = Command::new(variable("HOMING_TEST_PYTHON"))
        .arg(script)
        .arg(folder(name))
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .expect("Python can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines = String::from_utf8(output.stdout).expect("text");
    let lines: Result<Vec<Value>, _> = lines.lines().map(serde_json::from_str).collect();
    lines.expect("JSON")
}

fn prompter(name: &str, cache_bytes: usize) -> Prompter {
    let options = PromptOptions {
        cache_bytes,
        ..PromptOptions::new(Dialect::Vllm, Clock::fixed(NOW))
    };
    Prompter::load(&folder(name), options).expect("it is a model's folder")
}

fn tokens(prompter: &Prompter, asked: &Value) -> Result<Vec<u32>, PromptError> {
    match asked["text"].as_str() {
        Some(text) => prompter.text(text, Marks::Added),
        None => prompter.chat(&asked["body"]).map(|prompt| prompt.tokens),
    }
}

/// Where two lists of tokens part, as text, for someone who has to find out why.
fn difference(prompter: &Prompter, ours: &[u32], theirs: &[u32]) -> String {
    let same = ours.iter().zip(theirs).take_while(|(one, other)| one == other).count();
    let around = |tokens: &[u32]| {
        let from = same.saturating_sub(8);
        prompter.tokenizer().decode(&tokens[from..(same + 8).min(tokens.len())])
    };
    format!("at token {same}: ours {:?}, theirs {:?}", around(ours), around(theirs))
}

fn check(name: &str) {
    let cached = prompter(name, 64 << 20);
    let uncached = prompter(name, 0);
    assert_eq!(cached.describe().encoding.cache, Switched::On, "{}", cached.describe());
    assert_eq!(cached.describe().encoding.words, Switched::On, "{}", cached.describe());
    assert!(matches!(uncached.describe().encoding.cache, Switched::Off(_)));
    let (mut conversations, mut different) = (0, Vec::new());
    for asked in answers(name) {
        let expected: Option<Vec<u32>> = serde_json::from_value(asked["tokens"].clone()).ok();
        conversations += usize::from(expected.is_some() && asked["text"].is_null());
        // Twice with the cache: as new, and as known.
        for prompter in [&uncached, &cached, &cached] {
            match (tokens(prompter, &asked), &expected) {
                (Ok(ours), Some(theirs)) if ours == *theirs => {}
                (Err(_), None) => {}
                (Ok(ours), Some(theirs)) => different.push(difference(prompter, &ours, theirs)),
                (ours, _) => different.push(format!("ours {:?}, theirs {:?}", ours.err(), asked["error"])),
            }
        }
    }
    assert!(
        different.is_empty(),
        "{} differences: {:#?}",
        different.len(),
        &different[..different.len().min(5)]
    );
    assert!(
        conversations >= WANTED,
        "only {conversations} conversations have tokens"
    );
    let CacheUse { hits, misses, .. } = cached.cache_use();
    assert!(
        hits > misses,
        "each text was asked for twice: {hits} hits, {misses} misses"
    );
}

macro_rules! tokenizers {
    ($($name:ident),*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*
    };
}

tokenizers!(deepseek_v3, gemma3, internlm2, llama3_2, mistral_nemo, qwen2_5, qwen3);

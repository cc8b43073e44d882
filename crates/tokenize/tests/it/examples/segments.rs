//! Do the cache and the way word by word give the tokens of the tokenizer? For tokenizers of all kinds, on arbitrary texts.

use crate::examples::support::{Folder, letter};
use homing_tokenize::{Clock, Dialect, Marks, PromptOptions, Prompter, Switched};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A tokenizer of one kind.
struct Kind {
    name: &'static str,
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    /// Flags of the first added token.
    flags: Value,
    /// Whether the model takes bytes.
    bytes: bool,
    cache: bool,
    words: bool,
}

fn split(pattern: &str) -> Value {
    json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})
}

fn kinds() -> Vec<Kind> {
    let plain = |name| Kind {
        name,
        normalizer: Value::Null,
        pre_tokenizer: split(
            r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        post_processor: Value::Null,
        flags: json!({}),
        bytes: true,
        cache: true,
        words: true,
    };
    let metaspace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let around = json!({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<a>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<b>", "type_id": 0}}],
        "pair": [], "special_tokens": {"<a>": {"id": "<a>", "ids": [1000], "tokens": ["<a>"]}, "<b>": {"id": "<b>", "ids": [1001], "tokens": ["<b>"]}}});
    vec![
        plain("plain"),
        Kind {
            post_processor: around,
            ..plain("around")
        },
        Kind {
            normalizer: json!({"type": "NFC"}),
            ..plain("composed")
        },
        Kind {
            flags: json!({"lstrip": true}),
            ..plain("left")
        },
        Kind {
            flags: json!({"rstrip": true}),
            ..plain("right")
        },
        Kind {
            flags: json!({"single_word": true}),
            cache: false,
            words: false,
            ..plain("single")
        },
        Kind {
            flags: json!({"normalized": true, "special": false}),
            ..plain("normalized")
        },
        Kind {
            flags: json!({"normalized": true, "special": false}),
            normalizer: json!({"type": "NFC"}),
            cache: false,
            words: false,
            ..plain("changed")
        },
        Kind {
            pre_tokenizer: json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}),
            ..plain("own")
        },
        Kind {
            pre_tokenizer: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            words: false,
            ..plain("prefix")
        },
        Kind {
            pre_tokenizer: split(r"\s+(?=\S)|\S+|\s+"),
            words: false,
            ..plain("lookahead")
        },
        Kind {
            pre_tokenizer: Value::Null,
            normalizer: metaspace.clone(),
            bytes: false,
            ..plain("whole")
        },
        Kind {
            pre_tokenizer: Value::Null,
            normalizer: json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, metaspace]}),
            bytes: false,
            ..plain("prepended")
        },
        Kind {
            pre_tokenizer: json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false}),
            bytes: false,
            words: false,
            ..plain("first")
        },
        Kind {
            pre_tokenizer: json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
            bytes: false,
            words: false,
            ..plain("always")
        },
    ]
}

impl Kind {
    fn file(&self) -> String {
        let letters: Vec<String> = if self.bytes {
            (0..=255).map(|byte| letter(byte).to_string()).collect()
        } else {
            let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
            bytes
                .chain((0x20..0x7f_u8).map(|byte| char::from(byte).to_string()))
                .chain(["▁".to_owned(), "é".to_owned()])
                .collect()
        };
        let space = if self.bytes { "Ġ" } else { "▁" };
        let merges: Vec<(String, String)> = [
            ("h", "e"),
            ("he", "l"),
            ("l", "o"),
            ("hel", "lo"),
            (space, "h"),
            (space, "hello"),
            (space, space),
            ("1", "2"),
            ("a", "a"),
            ("aa", "aa"),
            ("!", "!"),
            ("b", space),
        ]
        .iter()
        .map(|(one, other)| ((*one).to_owned(), (*other).to_owned()))
        .collect();
        let mut vocab = serde_json::Map::new();
        for word in letters
            .into_iter()
            .chain(merges.iter().map(|(one, other)| format!("{one}{other}")))
        {
            let id = vocab.len();
            vocab.entry(word).or_insert(json!(id));
        }
        let token = |id: u32, content: &str| json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
        let mut first = token(1000, "<a>");
        first
            .as_object_mut()
            .expect("an object")
            .extend(self.flags.as_object().expect("an object").clone());
        json!({"version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [first, token(1001, "<b>"), token(1002, "\n\n")],
            "normalizer": self.normalizer, "pre_tokenizer": self.pre_tokenizer, "post_processor": self.post_processor, "decoder": null,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": false, "byte_fallback": !self.bytes, "vocab": vocab, "merges": merges}})
        .to_string()
    }

    fn load(&self) -> Prompter {
        let folder = Folder::with(&format!("segments-{}", self.name), "tokenizer.json", &self.file());
        let options = PromptOptions {
            cache_bytes: 1 << 20,
            ..PromptOptions::new(Dialect::Vllm, Clock::fixed(0))
        };
        Prompter::load(&folder.0, options).expect("it is right")
    }
}

/// Texts of what makes a difference.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<a>".to_owned()),
        Just("<b>".to_owned()),
        Just("\n\n".to_owned()),
        Just(" ".to_owned()),
        Just("  ".to_owned()),
        Just("hello".to_owned()),
        Just("aaaa".to_owned()),
        Just("123".to_owned()),
        Just("'s".to_owned()),
        Just("\n".to_owned()),
        Just("<a".to_owned()),
        Just("e\u{301}".to_owned()),
        Just("▁".to_owned()),
        Just("日本".to_owned()),
        Just("a long piece of text that is worth to be kept in a cache".to_owned()),
        "[ a-z<>\\n\\t!\\u{a0}é]{0,6}",
        "\\PC{0,4}"
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

#[test]
fn tokens_are_those_of_the_tokenizer() {
    for kind in kinds() {
        let prompter = kind.load();
        let description = prompter.describe().encoding;
        assert_eq!(
            description.cache == Switched::On,
            kind.cache,
            "{}: {description:?}",
            kind.name
        );
        assert_eq!(
            description.words == Switched::On,
            kind.words,
            "{}: {description:?}",
            kind.name
        );
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            cases: 400,
            ..ProptestConfig::default()
        });
        let done = runner.run(&texts(), |text| {
            for marks in [Marks::None, Marks::Added, Marks::None] {
                let theirs = prompter.tokenizer().encode(&text, marks).expect("tokens");
                prop_assert_eq!(prompter.text(&text, marks).expect("tokens"), theirs, "{:?}", text);
            }
            Ok(())
        });
        assert!(done.is_ok(), "{}: {}", kind.name, done.unwrap_err());
        assert_eq!(prompter.cache_use().hits > 0, kind.cache, "{}", kind.name);
    }
}

#[test]
fn threads_share_a_prompter() {
    let prompter = kinds()[0].load();
    let text = |number: usize| {
        format!(
            "<a>hello {} this is a text that is worth to be kept {}<b>",
            number % 7,
            number % 11
        )
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (prompter, text) = (&prompter, &text);
            scope.spawn(move || {
                for number in 0..200 {
                    let text = text(number * 3 + thread);
                    assert_eq!(
                        prompter.text(&text, Marks::None),
                        Ok(prompter.tokenizer().encode(&text, Marks::None).expect("tokens"))
                    );
                }
            });
        }
    });
    assert!(prompter.cache_use().hits > 400, "{:?}", prompter.cache_use());
}

//! Folders of models that tests make up.

use std::path::PathBuf;

/// As models of many families have it: marks around messages, and tools before all.
pub const TEMPLATE: &str = "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}{% for message in messages %}\
    <|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// How byte-level tokenizers write a byte: printable ones as they are, the others from U+0100 on.
fn letter(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&other| !printable(other)).count();
    char::from_u32(256 + before as u32).expect("below the surrogates")
}

/// A folder with a tokenizer of bytes, these merges, and a template.
pub fn model(name: &str, merges: &[(&str, &str)], template: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("model-{name}"));
    std::fs::create_dir_all(&path).expect("the folder for tests is ours");
    let mut words: Vec<String> = (0..=255_u8).map(|byte| letter(byte).to_string()).collect();
    words.extend(merges.iter().map(|(one, other)| format!("{one}{other}")));
    let marks = words.len();
    let quoted: Vec<String> = words
        .iter()
        .enumerate()
        .map(|(id, word)| format!("{word:?}: {id}"))
        .collect();
    let merges: Vec<String> = merges.iter().map(|(one, other)| format!("\"{one} {other}\"")).collect();
    let mark = |id: usize, content: &str| {
        format!(
            r#"{{"id": {id}, "content": "{content}", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}}"#
        )
    };
    let tokenizer = format!(
        r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{}, {}], "normalizer": null,
            "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}},
            "post_processor": null,
            "decoder": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}},
            "model": {{"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": {{{}}}, "merges": [{}]}}}}"#,
        mark(marks, "<|im_start|>"),
        mark(marks + 1, "<|im_end|>"),
        quoted.join(", "),
        merges.join(", "),
    );
    let write = |file: &str, text: &str| std::fs::write(path.join(file), text).expect("it can be written");
    write("tokenizer.json", &tokenizer);
    write("tokenizer_config.json", "{}");
    write("chat_template.jinja", template);
    path
}

//! Folders of models that tests make up.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder that is gone when it is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    /// An empty folder.
    pub fn new(name: &str) -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("homing-tokenize-{}-{number}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    /// A folder with a file.
    pub fn with(name: &str, file: &str, text: &str) -> Self {
        let folder = Self::new(name);
        folder.write(file, text);
        folder
    }

    /// Writes a file.
    pub fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).expect("a file can be written");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// How byte-level tokenizers write a byte: printable ones as they are, the others from U+0100 on.
pub fn letter(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&other| !printable(other)).count();
    char::from_u32(256 + before as u32).expect("below the surrogates")
}

/// A tokenizer of bytes, two merges and two special tokens.
pub fn byte_level() -> String {
    let mut words: Vec<String> = (0..=255_u8).map(|byte| letter(byte).to_string()).collect();
    words.push("he".to_owned());
    words.push("hel".to_owned());
    let quoted: Vec<String> = words
        .iter()
        .enumerate()
        .map(|(id, word)| format!("{word:?}: {id}"))
        .collect();
    format!(
        r#"{{"version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [
                {{"id": 258, "content": "<|im_start|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}},
                {{"id": 259, "content": "<|im_end|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}}],
            "normalizer": null,
            "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}},
            "post_processor": null,
            "decoder": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}},
            "model": {{"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "vocab": {{{}}}, "merges": ["h e", "he l"]}}}}"#,
        quoted.join(", ")
    )
}

//! Is a folder read as it should be, and are texts the same in pieces and in one?

use std::path::Path;

use crate::examples::support::{Folder, byte_level, letter};
use homing_tokenize::{Incremental, LoadError, Marks, Tokenizer};
use proptest::prelude::*;

const BROKEN: char = '\u{fffd}';

fn tokenizer(name: &str) -> Tokenizer {
    let folder = Folder::with(name, "tokenizer.json", &byte_level());
    Tokenizer::load(&folder.0).expect("it is right")
}

fn pieces(tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<String> {
    let mut incremental = Incremental::default();
    let mut pieces: Vec<String> = tokens.iter().map(|token| incremental.push(tokenizer, *token)).collect();
    pieces.push(incremental.finish(tokenizer));
    pieces
}

#[test]
fn texts_become_tokens_and_come_back() {
    let tokenizer = tokenizer("plain");
    let tokens = tokenizer.encode("hello<|im_end|>", Marks::Added).unwrap();
    assert_eq!(tokens, [257, u32::from(b'l'), u32::from(b'o'), 259]);
    assert_eq!(tokenizer.decode(&tokens), "hello<|im_end|>");
    assert_eq!(tokenizer.decode_plain(&tokens), "hello");
    assert_eq!((tokenizer.size(), tokenizer.plain()), (260, 0..258));
    assert_eq!(
        (tokenizer.end(), tokenizer.token("<|im_start|>")),
        (Some(259), Some(258))
    );
    assert_eq!(tokenizer.name(257).as_deref(), Some("hel"));
    assert_eq!(tokenizer.name(999), None);
}

#[test]
fn the_settings_say_what_ends_a_text() {
    let folder = Folder::with("settings", "tokenizer.json", &byte_level());
    for (settings, end) in [
        (r#"{"eos_token": "<|im_start|>"}"#, 258),
        (r#"{"eos_token": {"content": "<|im_start|>"}}"#, 258),
        (r#"{"eos_token": null}"#, 259),
        // It becomes a token, as `transformers` has it.
        (r#"{"eos_token": "unheard of"}"#, 260),
    ] {
        folder.write("tokenizer_config.json", settings);
        assert_eq!(Tokenizer::load(&folder.0).unwrap().end(), Some(end), "{settings}");
    }
}

#[test]
fn what_is_wrong_with_a_folder_is_said() {
    let said = |folder: &Path| Tokenizer::load(folder).unwrap_err().to_string();
    assert!(matches!(
        Tokenizer::load(Path::new("/nowhere/at/all")),
        Err(LoadError::NoFolder(_))
    ));
    let empty = Folder::new("empty");
    assert!(said(&empty.0).contains("tokenizer.json"), "{}", said(&empty.0));
    for (name, text) in [
        ("list", "[]"),
        ("cut", "{\"model\": "),
        ("other", r#"{"model": {"type": "Magic"}}"#),
    ] {
        let folder = Folder::with(name, "tokenizer.json", text);
        let said = said(&folder.0);
        assert!(
            said.contains("is no tokenizer") && said.contains("tokenizer.json"),
            "{said}"
        );
    }
    let settings = Folder::with("bad-settings", "tokenizer.json", &byte_level());
    settings.write("tokenizer_config.json", "no JSON");
    assert!(said(&settings.0).contains("tokenizer_config.json"));
}

#[test]
fn characters_of_several_tokens_come_whole() {
    let tokenizer = tokenizer("whole");
    let tokens = tokenizer.encode("a€b", Marks::None).unwrap();
    assert_eq!(pieces(&tokenizer, &tokens), ["a", "", "", "€", "b", ""]);
    // Bytes that never become a character are given out when that is certain.
    let broken = pieces(
        &tokenizer,
        &[0xff, 0xff, 0xff, 0xff, 0xff, u32::from(b'x')].map(|byte| byte_token(&tokenizer, byte)),
    );
    assert_eq!(broken.concat(), "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}x");
    // What is left over at the end is not lost.
    let cut = pieces(&tokenizer, &[byte_token(&tokenizer, 0xe2)]);
    assert_eq!(cut, ["", "\u{fffd}"]);
}

fn byte_token(tokenizer: &Tokenizer, byte: u32) -> u32 {
    let byte = u8::try_from(byte).expect("a byte");
    tokenizer
        .token(&letter(byte).to_string())
        .expect("every byte is a token")
}

proptest! {
    #[test]
    fn pieces_are_together_the_whole_and_never_end_within_a_character(text in "[a-zäöü€😀 hel]{0,40}") {
        let tokenizer = tokenizer("property");
        let tokens = tokenizer.encode(&text, Marks::None).unwrap();
        prop_assert_eq!(&tokenizer.decode_plain(&tokens), &text);
        let pieces = pieces(&tokenizer, &tokens);
        prop_assert!(pieces.iter().all(|piece| !piece.contains(BROKEN)));
        prop_assert_eq!(pieces.concat(), text);
    }

    #[test]
    fn no_tokens_and_no_file_make_it_panic(tokens in prop::collection::vec(0_u32..400, 0..40), text in ".{0,80}") {
        let tokenizer = tokenizer("arbitrary");
        pieces(&tokenizer, &tokens);
        tokenizer.decode(&tokens);
        let folder = Folder::with("arbitrary-file", "tokenizer.json", &text);
        prop_assert!(Tokenizer::load(&folder.0).is_err());
    }
}

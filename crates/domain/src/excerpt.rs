//! Quotes input in messages without letting the input decide how long they are.

use std::borrow::Cow;

/// The most bytes of an input that a message repeats.
pub const MAX_EXCERPT_BYTES: usize = 256;

/// The text, or its first 256 bytes and its length where it is longer.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    excerpt_to(text, MAX_EXCERPT_BYTES)
}

/// The same with another limit.
pub fn excerpt_to(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return Cow::Borrowed(text);
    }
    let begin = &text[..text.floor_char_boundary(max_bytes)];
    Cow::Owned(format!("{begin}... ({} bytes)", text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        assert_eq!(excerpt("short"), "short");
        assert_eq!(excerpt_to("abcdef", 3), "abc... (6 bytes)");
        assert_eq!(excerpt_to("a\u{20ac}b", 3), "a... (5 bytes)");
        let long = "\u{20ac}".repeat(1000);
        assert!(excerpt(&long).len() < MAX_EXCERPT_BYTES + 20);
    }
}

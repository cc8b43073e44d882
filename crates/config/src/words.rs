//! What is a name that someone else gave, and that we only pass on?
//!
//! Names of models, topics and labels are written in lists of workers, where commas and spaces separate; none contains one.

/// The longest name, in characters.
pub const LONGEST: usize = 256;

/// What [`is_word`] takes, in words.
pub const EXPECTED: &str = "1 to 256 characters, none a space or a comma";

/// Whether `text` can be such a name.
pub fn is_word(text: &str) -> bool {
    let separates = |letter: char| letter == ',' || letter.is_whitespace() || letter.is_control();
    !text.is_empty() && text.chars().count() <= LONGEST && !text.contains(separates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_nothing_that_separates() {
        for good in ["default", "Qwen/Qwen3-8B", "kv@10.0.0.1:8000@model", "a=b", "é"] {
            assert!(is_word(good), "{good:?}");
        }
        for bad in ["", "a b", "a,b", "a\nb", "\0", &"x".repeat(LONGEST + 1)] {
            assert!(!is_word(bad), "{bad:?}");
        }
    }
}

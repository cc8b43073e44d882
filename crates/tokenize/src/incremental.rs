//! Which text is new with this token?
//!
//! A character can be made of several tokens, and what a token adds can depend on the one before it. So a few tokens are
//! decoded together, and a text that ends within a character is kept back until the character is whole.
//!
//! **Invariant:** at most [`PENDING`] tokens are kept back: a character has at most four bytes, and each token brings at least
//! one. What is still broken then was never a character.

use crate::tokenizer::Tokenizer;

/// Tokens that may belong to a character which is not whole yet, with the one that makes it whole.
const PENDING: usize = 4;
/// What stands for bytes that are no character.
const BROKEN: char = '\u{fffd}';

/// Tokens that came and whose text is not all given out.
#[derive(Clone, Debug, Default)]
pub struct Incremental {
    /// The first so many were given out and are kept because the next may depend on them; the others are kept back.
    tokens: Vec<u32>,
    given: usize,
}

impl Incremental {
    /// The text that is whole with this token; empty while a character is not.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> String {
        self.tokens.push(token);
        let before = tokenizer.decode_plain(&self.tokens[..self.given]);
        let after = tokenizer.decode_plain(&self.tokens);
        if !after.ends_with(BROKEN) {
            return self.give(&before, &after, self.tokens.len());
        }
        if self.tokens.len() - self.given <= PENDING {
            return String::new();
        }
        // The last three may still begin a character; what comes before them does not any more.
        let until = self.tokens.len() - (PENDING - 1);
        let after = tokenizer.decode_plain(&self.tokens[..until]);
        self.give(&before, &after, until)
    }

    /// The text that was kept back, at the end of everything.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> String {
        let before = tokenizer.decode_plain(&self.tokens[..self.given]);
        let after = tokenizer.decode_plain(&self.tokens);
        self.give(&before, &after, self.tokens.len())
    }

    fn give(&mut self, before: &str, after: &str, until: usize) -> String {
        let text = after.strip_prefix(before).unwrap_or_default().to_owned();
        self.tokens.drain(..self.given);
        self.given = until - self.given;
        text
    }
}

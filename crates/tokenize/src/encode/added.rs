//! Where in a text do added tokens stand?
//!
//! The tokenizer looks for them before everything else: first for those that stand for themselves, then, in what is left, for
//! those that are compared after normalisation. The same is done here, so that what lies between them can be encoded and
//! cached piece by piece.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use tokenizers::AddedToken;

/// An added token in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub start: usize,
    pub end: usize,
    pub id: u32,
    /// Whether texts are cached between tokens like this one.
    pub cut: bool,
}

/// What is known about a token that is looked for.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: u32,
    lstrip: bool,
    rstrip: bool,
    cut: bool,
}

/// Tokens that are looked for together.
#[derive(Debug)]
struct Set {
    finder: AhoCorasick,
    known: Vec<Known>,
}

/// All added tokens.
#[derive(Debug)]
pub(super) struct Added {
    /// Those that stand for themselves.
    plain: Option<Set>,
    /// Those that are compared after normalisation, where that changes nothing.
    normalized: Option<Set>,
}

/// Why added tokens cannot be found here.
pub(super) type Why = &'static str;

impl Added {
    /// The tokens of a tokenizer, whose normaliser changes nothing or does.
    pub fn new(tokens: &[(u32, AddedToken)], changes: bool) -> Result<Self, Why> {
        if tokens.iter().any(|(_, token)| token.single_word) {
            return Err("an added token counts only as a word of its own");
        }
        let (normalized, plain): (Vec<_>, Vec<_>) = tokens.iter().partition(|(_, token)| token.normalized);
        if changes && !normalized.is_empty() {
            return Err("added tokens are compared after normalisation");
        }
        Ok(Self {
            plain: Set::new(&plain)?,
            normalized: Set::new(&normalized)?,
        })
    }

    /// Where they are, from the left.
    pub fn find(&self, text: &str) -> Vec<Mark> {
        let mut found = Vec::new();
        let mut marks = Vec::new();
        if let Some(set) = &self.plain {
            set.find(text, 0, &mut marks);
        }
        let Some(set) = &self.normalized else {
            return marks;
        };
        let mut from = 0;
        for mark in marks {
            set.find(super::between(text, from, mark.start), from, &mut found);
            found.push(mark);
            from = mark.end;
        }
        set.find(&text[from..], from, &mut found);
        found
    }
}

impl Set {
    fn new(tokens: &[&(u32, AddedToken)]) -> Result<Option<Self>, Why> {
        if tokens.is_empty() {
            return Ok(None);
        }
        let finder = AhoCorasickBuilder::new()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(_, token)| &token.content))
            .map_err(|_| "there are too many added tokens")?;
        let known = tokens
            .iter()
            .map(|(id, token)| Known {
                id: *id,
                lstrip: token.lstrip,
                rstrip: token.rstrip,
                cut: token.special || names_a_place(&token.content),
            })
            .collect();
        Ok(Some(Self { finder, known }))
    }

    /// A token that begins within the spaces which the one before it took stands there all the same, as the tokenizer has it: marks
    /// may overlap.
    fn find(&self, text: &str, offset: usize, found: &mut Vec<Mark>) {
        let mut from = 0;
        for one in self.finder.find_iter(text) {
            let known = self.known[one.pattern().as_usize()];
            let (mut start, mut end) = (one.start(), one.end());
            if known.lstrip {
                // What the token before it took stays there.
                start = text[..start].trim_end().len().max(from);
            }
            if known.rstrip {
                end = text.len() - text[end..].trim_start().len();
            }
            found.push(Mark {
                start: offset + start,
                end: offset + end,
                id: known.id,
                cut: known.cut,
            });
            from = end;
        }
    }
}

/// Whether a token is like `<|user|>`: some tokenizers add line breaks and indentation, too, which are too frequent to cache
/// what lies between them.
fn names_a_place(content: &str) -> bool {
    content.len() > 3 && content.starts_with(['<', '['])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: u32, content: &str) -> (u32, AddedToken) {
        (id, AddedToken::from(content, true))
    }

    fn found(added: &Added, text: &str) -> Vec<(usize, usize, u32)> {
        added
            .find(text)
            .iter()
            .map(|mark| (mark.start, mark.end, mark.id))
            .collect()
    }

    #[test]
    fn the_longest_of_the_leftmost_is_found() {
        let tokens = [token(1, "<a>"), token(2, "<a><b>"), token(3, "b>")];
        let added = Added::new(&tokens, true).unwrap();
        assert_eq!(found(&added, "x<a>y<a><b>b>"), [(1, 4, 1), (5, 11, 2), (11, 13, 3)]);
        assert_eq!(found(&added, ""), []);
    }

    #[test]
    fn tokens_take_spaces_with_them() {
        let left = (1, AddedToken::from("<l>", true).lstrip(true));
        let right = (2, AddedToken::from("<r>", true).rstrip(true));
        let added = Added::new(&[left, right], true).unwrap();
        assert_eq!(
            found(&added, "a <l> b <r> \n <l>c"),
            [(1, 5, 1), (8, 14, 2), (14, 17, 1)]
        );
    }

    #[test]
    fn a_token_of_spaces_is_found_within_spaces_that_are_taken() {
        let right = (1, AddedToken::from("<r>", true).rstrip(true));
        let added = Added::new(&[right, token(2, "\n\n")], true).unwrap();
        assert_eq!(found(&added, "<r>\n\n  a"), [(0, 7, 1), (3, 5, 2)]);
    }

    #[test]
    fn normalized_tokens_come_second() {
        let second = (2, AddedToken::from("b<a", false).normalized(true));
        let tokens = [token(1, "<a>"), second];
        let added = Added::new(&tokens, false).unwrap();
        assert_eq!(found(&added, "b<a>b<a b"), [(1, 4, 1), (4, 7, 2)]);
        assert!(Added::new(&tokens, true).is_err());
        assert!(Added::new(&[(1, AddedToken::from("x", true).single_word(true))], false).is_err());
    }
}

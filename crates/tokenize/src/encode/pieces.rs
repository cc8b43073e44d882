//! Where does a text fall into pieces that are encoded by themselves?
//!
//! Two kinds of tokenizers are known here. Those with patterns of words (`Split` by a regular expression, then bytes): the same
//! patterns are used, by an engine without backtracking. Those without (merges over the whole text): a text can be
//! parted between two characters that stand next to each other in no word of the vocabulary, as no merge can ever join them.

use std::collections::HashSet;
use std::sync::Mutex;

use regex_automata::meta::{Cache, Regex};
use regex_automata::{Anchored, Input};
use serde_json::Value;

/// How many caches of a pattern are kept for the next call: as many as threads encode at once, usually.
const SPARE_CACHES: usize = 64;
/// How patterns end that leave the last space of several to the word behind it.
const TAIL: &str = r"|\s+(?!\S)|\s+";
/// What matches spaces up to a line break, before that: with line breaks by name, or as they are.
const LINES: [&str; 2] = [r"|\s*[\r\n]+", "|\\s*[\r\n]+"];
/// The pattern of a `ByteLevel` that splits by itself.
const OF_BYTES: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// What parts a text.
#[derive(Debug)]
pub(super) enum Pieces {
    /// Patterns, one after the other.
    Patterns(Vec<Pattern>),
    /// Pairs of characters that are never parted.
    Pairs(Pairs),
}

impl Pieces {
    /// The patterns of a tokenizer that splits by them and then takes bytes; nothing for another.
    pub fn of_patterns(pre_tokenizer: &Value) -> Option<Self> {
        let alone = [pre_tokenizer.clone()];
        let steps = match pre_tokenizer["type"].as_str()? {
            "Sequence" => pre_tokenizer["pretokenizers"].as_array()?.as_slice(),
            _ => &alone,
        };
        let (bytes, splits) = steps.split_last()?;
        if bytes["type"] != "ByteLevel" || bytes["add_prefix_space"] != false {
            return None;
        }
        let mut patterns = Vec::new();
        for split in splits {
            let isolated = split["type"] == "Split" && split["behavior"] == "Isolated" && split["invert"] == false;
            patterns.push(Pattern::new(split["pattern"]["Regex"].as_str().filter(|_| isolated)?)?);
        }
        if bytes["use_regex"] != false {
            patterns.push(Pattern::new(OF_BYTES)?);
        }
        Some(Self::Patterns(patterns))
    }

    /// Calls for every piece of a text.
    pub fn each<E>(&self, text: &str, mut call: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Patterns(patterns) => {
                let mut caches: Vec<Cache> = patterns.iter().map(Pattern::cache).collect();
                let done = nested(patterns, &mut caches, text, &mut call);
                for (pattern, cache) in patterns.iter().zip(caches) {
                    pattern.give_back(cache);
                }
                done
            }
            Self::Pairs(pairs) => pairs.each(text, call),
        }
    }
}

/// Parts a text by the first pattern, each part by the next, and so on.
fn nested<E>(
    patterns: &[Pattern],
    caches: &mut [Cache],
    text: &str,
    call: &mut impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let (Some((pattern, patterns)), Some((cache, caches))) = (patterns.split_first(), caches.split_first_mut()) else {
        return call(text);
    };
    let mut from = 0;
    while from < text.len() {
        let (start, end) = pattern.next(cache, text, from);
        for (start, end) in [(from, start), (start, end)] {
            if start < end {
                if patterns.is_empty() {
                    call(&text[start..end])?;
                } else {
                    // A type that grows with each pattern is kept from growing for ever.
                    let call: &mut dyn FnMut(&str) -> Result<(), E> = call;
                    nested_again(patterns, caches, &text[start..end], call)?;
                }
            }
        }
        from = end;
    }
    Ok(())
}

fn nested_again<E>(
    patterns: &[Pattern],
    caches: &mut [Cache],
    text: &str,
    mut call: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    nested(patterns, caches, text, &mut call)
}

/// A pattern of words.
#[derive(Debug)]
pub(super) struct Pattern {
    regex: Regex,
    /// Whether the last of several spaces is left to what comes behind; whether line breaks count as such spaces.
    tail: Option<Tail>,
    spare: Mutex<Vec<Cache>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    /// Spaces that end with a line break are matched by another part of the pattern.
    NoLines,
    All,
}

impl Pattern {
    /// A pattern without anything that needs backtracking, except for the end that is usual.
    fn new(source: &str) -> Option<Self> {
        let (plain, tail) = match source.strip_suffix(TAIL) {
            Some(body) if LINES.iter().any(|lines| body.ends_with(lines)) => {
                (format!(r"{body}|\s+"), Some(Tail::NoLines))
            }
            Some(body) => (format!(r"{body}|\s+"), Some(Tail::All)),
            None => (source.to_owned(), None),
        };
        if needs_backtracking(&plain) {
            return None;
        }
        Some(Self {
            regex: Regex::new(&plain).ok()?,
            tail,
            spare: Mutex::new(Vec::new()),
        })
    }

    fn cache(&self) -> Cache {
        let spare = self.spare.lock().ok().and_then(|mut spare| spare.pop());
        spare.unwrap_or_else(|| self.regex.create_cache())
    }

    fn give_back(&self, cache: Cache) {
        if let Ok(mut spare) = self.spare.lock()
            && spare.len() < SPARE_CACHES
        {
            spare.push(cache);
        }
    }

    /// The next match from here on; the end of the text twice if there is none.
    fn next(&self, cache: &mut Cache, text: &str, from: usize) -> (usize, usize) {
        let input = Input::new(text).range(from..);
        // Usually a match begins where the last one ended, and that is found fastest.
        let here = self
            .regex
            .search_half_with(cache, &input.clone().anchored(Anchored::Yes));
        let (start, end) = match here {
            Some(found) => (from, found.offset()),
            None => match self.regex.search_with(cache, &input) {
                Some(found) => (found.start(), found.end()),
                None => return (text.len(), text.len()),
            },
        };
        if end == start {
            // A pattern that matches nothing would never come to an end.
            return (text.len(), text.len());
        }
        (start, self.without_last_space(text, start, end))
    }

    /// Spaces before something else leave their last one to it.
    fn without_last_space(&self, text: &str, start: usize, end: usize) -> usize {
        let Some(tail) = self.tail.filter(|_| end < text.len()) else {
            return end;
        };
        let Some(last) = text[start..end].chars().next_back() else {
            return end;
        };
        let counts = last.is_whitespace() && (tail == Tail::All || !matches!(last, '\r' | '\n'));
        let shorter = end - last.len_utf8();
        if counts && shorter > start { shorter } else { end }
    }
}

/// Whether a pattern has something that only an engine with backtracking knows, or that means something else elsewhere.
fn needs_backtracking(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let (mut at, mut class, mut repeated) = (0, 0_usize, false);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let mut next = false;
        match bytes[at] {
            // Places and classes that are called otherwise elsewhere, and what was matched before.
            b'\\'
                if matches!(
                    rest.get(1),
                    Some(b'G' | b'Z' | b'h' | b'H' | b'R' | b'X' | b'K' | b'1'..=b'9')
                ) =>
            {
                return true;
            }
            b'\\' => at += 1,
            b'[' => class += 1,
            b']' => class = class.saturating_sub(1),
            _ if class > 0 => {}
            b'(' if [&b"(?!"[..], b"(?=", b"(?<", b"(?>", b"(?("]
                .iter()
                .any(|odd| rest.starts_with(odd)) =>
            {
                return true;
            }
            // A repetition that gives nothing back.
            b'+' if repeated => return true,
            b'+' | b'*' | b'?' => next = !repeated,
            b'}' => next = at > 0 && (bytes[at - 1].is_ascii_digit() || bytes[at - 1] == b','),
            _ => {}
        }
        repeated = next;
        at += 1;
    }
    false
}

/// Which characters stand next to each other somewhere in the vocabulary.
#[derive(Debug)]
pub(super) struct Pairs {
    /// A bit for each pair of ASCII.
    ascii: Box<[u128; 128]>,
    others: HashSet<(char, char), ahash::RandomState>,
}

impl Pairs {
    /// Those of a vocabulary.
    pub fn new<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let mut pairs = Self {
            ascii: Box::new([0; 128]),
            others: HashSet::default(),
        };
        for word in words {
            let mut before = None;
            for letter in word.chars() {
                if let Some(before) = before {
                    pairs.put(before, letter);
                }
                before = Some(letter);
            }
        }
        pairs
    }

    fn put(&mut self, one: char, other: char) {
        if one.is_ascii() && other.is_ascii() {
            self.ascii[one as usize] |= 1 << other as u32;
        } else {
            self.others.insert((one, other));
        }
    }

    fn has(&self, one: char, other: char) -> bool {
        if one.is_ascii() && other.is_ascii() {
            self.ascii[one as usize] >> other as u32 & 1 == 1
        } else {
            self.others.contains(&(one, other))
        }
    }

    fn each<E>(&self, text: &str, mut call: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let mut from = 0;
        let mut before = None;
        for (at, letter) in text.char_indices() {
            if before.is_some_and(|before| !self.has(before, letter)) {
                call(&text[from..at])?;
                from = at;
            }
            before = Some(letter);
        }
        if from < text.len() { call(&text[from..]) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pieces(pieces: &Pieces, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let keep = |piece: &str| {
            found.push(piece.to_owned());
            Ok::<(), ()>(())
        };
        pieces.each(text, keep).expect("it does not fail");
        found
    }

    #[test]
    fn spaces_are_left_to_the_word_behind_them() {
        let pattern = r"\p{L}+|[^\r\n\p{L}\p{N}]?\p{N}|\s*[\r\n]+|\s+(?!\S)|\s+";
        let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false});
        let both = Pieces::of_patterns(&json!({"type": "Sequence", "pretokenizers": [split, bytes]})).unwrap();
        assert_eq!(
            pieces(&both, "ab   cd 1  2 \n x\u{3000}\u{3000}y  "),
            [
                "ab", "  ", " ", "cd", " 1", " ", " 2", " \n", " ", "x", "\u{3000}", "\u{3000}", "y", "  "
            ]
        );
        // What no part of the pattern matches is a piece, too.
        assert_eq!(pieces(&both, "a!!b"), ["a", "!!", "b"]);
        let own =
            Pieces::of_patterns(&json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})).unwrap();
        assert_eq!(pieces(&own, "it's  \n\n  so"), ["it", "'s", "  \n\n ", " so"]);
    }

    #[test]
    fn unknown_ways_of_splitting_are_left_alone() {
        for unknown in [
            json!({"type": "Whitespace"}),
            json!({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true}),
            json!({"type": "Sequence", "pretokenizers": []}),
            json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "a(?=b)"}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}),
            json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Removed", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}),
        ] {
            assert!(Pieces::of_patterns(&unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn what_needs_backtracking_is_found() {
        for (pattern, expected) in [
            (r"\p{N}{1,3}", false),
            (r"[!*+?\]++]a|\p{L}+| ?[^\s]+[\r\n]*|\s*[\r\n]+|\s+", false),
            (r"(?i:'s|'t)|a+?", false),
            (r"\p{N}{1,3}+", true),
            (r"a++", true),
            (r"a*+b", true),
            (r"\s+(?!\S)", true),
            (r"(?<=a)b", true),
            (r"(a)\1", true),
            (r"a\Z", true),
        ] {
            assert_eq!(needs_backtracking(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn texts_are_parted_where_no_word_goes_on() {
        let pairs = Pieces::Pairs(Pairs::new(["ab", "▁a", "bc", "éa"].into_iter()));
        assert_eq!(pieces(&pairs, "abc▁ab▁▁aéab"), ["abc", "▁ab", "▁", "▁a", "éab"]);
        assert_eq!(pieces(&pairs, ""), Vec::<String>::new());
    }
}

//! How does an answer become text? Tokens in, text out, up to the text that ends it.
//!
//! **Invariant:** nothing is given out that could still turn out to be the beginning of a text that ends the answer.

use std::sync::Arc;

use homing_engine::Finish;
use serde_json::{Value, json};

use crate::tokenizer::{Codec, Decoding};

/// One answer.
#[derive(Clone, Debug)]
pub(crate) struct Speaker {
    decoding: Decoding,
    pub(crate) text: String,
    /// Bytes of the text that were given out.
    given: usize,
    pub(crate) tokens: Vec<u32>,
    /// Tokens that were given out.
    tokens_given: usize,
    /// Where the text of each token begins, in characters.
    starts: Vec<usize>,
    characters: usize,
    /// What is said whatever the engine says: the arguments of a tool.
    script: Option<Arc<[u32]>>,
    pub(crate) cached: u32,
    pub(crate) end: Option<End>,
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct End {
    pub(crate) reason: &'static str,
    /// What vLLM says besides: the text or token that ended it.
    pub(crate) by: Value,
}

/// What is new in an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delta {
    pub(crate) text: String,
    pub(crate) tokens: Vec<u32>,
    /// Which of all tokens the first of these is.
    first: usize,
}

/// When an answer is to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stops<'a> {
    pub(crate) texts: &'a [String],
    pub(crate) keep: bool,
}

impl Speaker {
    pub(crate) fn new(codec: &Codec, script: Option<Arc<[u32]>>) -> Self {
        Self {
            decoding: codec.decoding(),
            text: String::new(),
            given: 0,
            tokens: Vec::new(),
            tokens_given: 0,
            starts: Vec::new(),
            characters: 0,
            script,
            cached: 0,
            end: None,
        }
    }

    /// Takes a token. It has ended when `end` is set.
    pub(crate) fn hear(&mut self, token: u32, finish: Option<Finish>, stops: Stops<'_>) {
        let token = self.scripted(token);
        self.tokens.push(token);
        let before = self.text.len();
        self.starts.push(self.characters);
        self.text.push_str(&self.decoding.push(token));
        if finish.is_some() {
            self.text.push_str(&self.decoding.finish());
        }
        self.characters += self.text[before..].chars().count();
        if let Some((stop, at)) = self.stopped(before, stops.texts) {
            let length = if stops.keep { at + stop.len() } else { at };
            self.text.truncate(length);
            self.end = Some(End {
                reason: "stop",
                by: json!(stop),
            });
            return;
        }
        self.end = finish.map(|finish| match finish {
            Finish::Length if self.script.as_ref().is_some_and(|all| all.len() <= self.tokens.len()) => End {
                reason: "stop",
                by: Value::Null,
            },
            Finish::Length => End {
                reason: "length",
                by: Value::Null,
            },
            Finish::Stop if self.decoding.ends_with(token) => End {
                reason: "stop",
                by: Value::Null,
            },
            Finish::Stop => End {
                reason: "stop",
                by: json!(token),
            },
        });
    }

    /// What can be given out and was not yet.
    pub(crate) fn delta(&mut self, stops: Stops<'_>) -> Delta {
        let longest = stops.texts.iter().map(String::len).max().unwrap_or(0);
        let kept_back = if self.end.is_some() {
            0
        } else {
            longest.saturating_sub(1)
        };
        let mut until = self.text.len().saturating_sub(kept_back).max(self.given);
        while !self.text.is_char_boundary(until) {
            until -= 1;
        }
        let text = self.text[self.given..until].to_owned();
        self.given = until;
        let first = self.tokens_given;
        let tokens = self.tokens[first..].to_vec();
        self.tokens_given = self.tokens.len();
        Delta { text, tokens, first }
    }

    /// All of it.
    pub(crate) fn everything(&self) -> Delta {
        Delta {
            text: self.text.clone(),
            tokens: self.tokens.clone(),
            first: 0,
        }
    }

    /// Where the text of each of these tokens begins, in characters.
    pub(crate) fn offsets(&self, delta: &Delta) -> &[usize] {
        self.starts
            .get(delta.first..delta.first + delta.tokens.len())
            .unwrap_or_default()
    }

    fn scripted(&self, token: u32) -> u32 {
        let script = self.script.as_deref().unwrap_or_default();
        script.get(self.tokens.len()).copied().unwrap_or(token)
    }

    /// The text that ends it, among those that the new end of the text could complete: the one that is complete first, and of
    /// several the first in the list, as vLLM has it.
    fn stopped<'a>(&self, before: usize, stops: &'a [String]) -> Option<(&'a str, usize)> {
        let found = stops.iter().filter_map(|stop| {
            let mut from = before.saturating_sub(stop.len());
            while !self.text.is_char_boundary(from) {
                from -= 1;
            }
            Some((stop.as_str(), from + self.text[from..].find(stop.as_str())?))
        });
        found.min_by_key(|(stop, at)| at + stop.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speak(text: &str, stops: &[&str], keep: bool) -> (Vec<String>, String, Option<End>) {
        let texts: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let stops = Stops { texts: &texts, keep };
        let mut speaker = Speaker::new(&Codec::Bytes, None);
        let mut given = Vec::new();
        let tokens = Codec::Bytes.encode(text).unwrap();
        for (place, token) in tokens.iter().enumerate() {
            let last = place + 1 == tokens.len();
            speaker.hear(*token, last.then_some(Finish::Length), stops);
            given.push(speaker.delta(stops).text);
            if speaker.end.is_some() {
                break;
            }
        }
        (given, speaker.text, speaker.end)
    }

    #[test]
    fn without_stops_every_token_is_given_out_at_once() {
        let (given, text, end) = speak("abc", &[], false);
        assert_eq!(given, ["a", "b", "c"]);
        assert_eq!((text.as_str(), end.unwrap().reason), ("abc", "length"));
    }

    #[test]
    fn a_stop_ends_it_and_is_not_given_out() {
        let (given, text, end) = speak("hello world", &["wo", "lo w"], false);
        assert_eq!(given.concat(), "hel");
        assert_eq!(text, "hel");
        assert_eq!(
            end.unwrap(),
            End {
                reason: "stop",
                by: json!("lo w")
            }
        );
        let (given, ..) = speak("hello world", &["wo"], true);
        assert_eq!(given.concat(), "hello wo");
    }

    #[test]
    fn what_only_begins_like_a_stop_is_given_out_in_the_end() {
        let (given, ..) = speak("hello", &["lox"], false);
        assert_eq!(given, ["", "", "h", "e", "llo"]);
    }
}

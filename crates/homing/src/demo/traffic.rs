//! What do people say to the demo? Conversations, made up from a seed.
//!
//! Everybody belongs to one of a few groups, whose members talk to the same assistant: their conversations begin with the same
//! system prompt. Somebody begins with something long, goes on for a few turns, and then begins anew.
//!
//! **Invariant:** what is said, how long an answer is to be and how long somebody thinks depend on the seed and on the answers so
//! far, and on nothing else.
//!
//! There are as many bytes as there should be tokens: the engines of the demo take a byte for a token.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

/// Assistants, each with a system prompt of its own.
pub const GROUPS: u32 = 8;
const SYSTEM: usize = 1_200;
const OPENING: RangeInclusive<usize> = 2_000..=6_000;
const MESSAGE: RangeInclusive<usize> = 200..=800;
const TURNS: RangeInclusive<u32> = 6..=12;
const ANSWER: RangeInclusive<u32> = 32..=96;
/// How long somebody thinks before a message, in milliseconds.
const THOUGHT: RangeInclusive<u64> = 200..=1_800;
/// Within which time all have begun, in milliseconds.
const ARRIVAL: RangeInclusive<u64> = 0..=1_000;

const WORDS: [&str; 48] = [
    "light", "harbour", "seven", "the", "a", "of", "and", "with", "slowly", "copper", "window", "asks", "before",
    "green", "letter", "under", "river", "counts", "every", "small", "engine", "north", "bread", "keeps", "late",
    "paper", "turns", "glass", "field", "why", "is", "or", "not", "house", "sound", "old", "begins", "rain", "far",
    "wire", "open", "stone", "their", "answer", "road", "blue", "for", "when",
];

/// All that is said.
#[derive(Debug)]
pub struct Traffic {
    seed: u64,
    /// How many times as fast as people everybody thinks.
    pace: f64,
    systems: Vec<String>,
}

/// What somebody says next.
#[derive(Debug)]
pub struct Turn {
    /// After this time.
    pub thought: Duration,
    pub asked: Arc<Asked>,
}

/// A question, with all that was said before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    messages: Vec<Value>,
    /// How many tokens the answer has.
    pub tokens: u32,
}

/// How an answer is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    Streamed,
    Whole,
}

/// A conversation that goes on.
#[derive(Debug)]
pub struct Conversation {
    rng: fastrand::Rng,
    pace: f64,
    first: RangeInclusive<u64>,
    messages: Vec<Value>,
    left: u32,
}

impl Traffic {
    /// Everything follows from the seed; at a pace of 2, everybody thinks half as long.
    pub fn new(seed: u64, pace: f64) -> Self {
        let system = |group| {
            let mut rng = rng(&[seed, u64::from(group)]);
            prose(&mut rng, SYSTEM)
        };
        Self {
            seed,
            pace,
            systems: (0..GROUPS).map(system).collect(),
        }
    }

    /// The conversations of somebody, one after the other.
    pub fn conversation(&self, user: u32, number: u32) -> Conversation {
        let mut rng = rng(&[self.seed, u64::from(user), u64::from(number), 1]);
        let system = &self.systems[(user % GROUPS) as usize];
        Conversation {
            pace: self.pace,
            first: if number == 0 { ARRIVAL } else { THOUGHT },
            messages: vec![json!({ "role": "system", "content": system })],
            // Somebody always is about to begin anew, as where people come and go.
            left: if number == 0 {
                rng.u32(1..=*TURNS.end())
            } else {
                rng.u32(TURNS)
            },
            rng,
        }
    }
}

impl Conversation {
    /// What is said next, if anything is.
    pub fn next(&mut self) -> Option<Turn> {
        self.left = self.left.checked_sub(1)?;
        let is_first = self.messages.len() == 1;
        let (thought, bytes) = if is_first {
            (self.first.clone(), OPENING)
        } else {
            (THOUGHT, MESSAGE)
        };
        let thought = self.rng.u64(thought) as f64 / 1e3 / self.pace;
        let bytes = self.rng.usize(bytes);
        let message = prose(&mut self.rng, bytes);
        self.messages.push(json!({ "role": "user", "content": message }));
        let asked = Asked {
            messages: self.messages.clone(),
            tokens: self.rng.u32(ANSWER),
        };
        Some(Turn {
            thought: Duration::from_secs_f64(thought),
            asked: Arc::new(asked),
        })
    }

    /// What was answered.
    pub fn answered(&mut self, text: &str) {
        self.messages.push(json!({ "role": "assistant", "content": text }));
    }
}

impl Asked {
    /// The body of the request.
    pub fn body(&self, model: &str, delivery: Delivery) -> String {
        let mut body = json!({
            "model": model,
            "messages": self.messages,
            "max_tokens": self.tokens,
            "temperature": 0,
        });
        if delivery == Delivery::Streamed {
            body["stream"] = json!(true);
            body["stream_options"] = json!({ "include_usage": true });
        }
        body.to_string()
    }
}

/// Some words of so many bytes.
fn prose(rng: &mut fastrand::Rng, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.push_str(WORDS[rng.usize(..WORDS.len())]);
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

/// A generator for these numbers, unlike that for any others.
fn rng(numbers: &[u64]) -> fastrand::Rng {
    let mixed = numbers.iter().fold(0, |seed: u64, number| {
        fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..)
    });
    fastrand::Rng::with_seed(mixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(traffic: &Traffic, user: u32, number: u32) -> Vec<Turn> {
        let mut conversation = traffic.conversation(user, number);
        let mut turns = Vec::new();
        while let Some(turn) = conversation.next() {
            conversation.answered("yes");
            turns.push(turn);
        }
        turns
    }

    #[test]
    fn the_same_seed_gives_the_same_conversations_and_another_gives_others() {
        let said = |seed| -> Vec<(Duration, Arc<Asked>)> {
            let turns = whole(&Traffic::new(seed, 1.0), 3, 1);
            turns.into_iter().map(|turn| (turn.thought, turn.asked)).collect()
        };
        assert_eq!(said(1), said(1));
        assert_ne!(said(1), said(2));
        assert!(TURNS.contains(&(said(1).len() as u32)));
    }

    #[test]
    fn a_question_begins_like_the_one_before_it_and_groups_begin_alike() {
        let traffic = Traffic::new(1, 1.0);
        let turns = whole(&traffic, 0, 0);
        for pair in turns.windows(2) {
            assert!(pair[1].asked.messages.starts_with(&pair[0].asked.messages));
        }
        let first = |user| whole(&traffic, user, 0)[0].asked.messages.clone();
        assert_eq!(first(0)[0], first(GROUPS)[0]);
        assert_ne!(first(0)[1], first(GROUPS)[1]);
        assert_ne!(first(0)[0], first(1)[0]);
    }

    #[test]
    fn a_faster_pace_shortens_thoughts_and_nothing_else() {
        let (slow, fast) = (whole(&Traffic::new(1, 1.0), 0, 0), whole(&Traffic::new(1, 4.0), 0, 0));
        for (slow, fast) in slow.iter().zip(&fast) {
            assert_eq!(slow.asked, fast.asked);
            assert!((slow.thought.as_secs_f64() - 4.0 * fast.thought.as_secs_f64()).abs() < 1e-6);
        }
    }
}

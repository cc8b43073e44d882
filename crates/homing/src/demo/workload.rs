//! What traffic arrives? Conversations that share system prompts and grow turn by turn.
//!
//! Deterministic in the seed. Only the conversations that are going on are kept in memory.

use homing_config::Demo;

/// How many system prompts the conversations share.
pub const SYSTEM_PROMPTS: u64 = 6;

/// One request: the whole conversation so far, and the answer that the engine will generate.
#[derive(Clone, Debug)]
pub struct Request {
    /// What the client sends.
    pub prompt: Vec<u32>,
    /// What the engine appends.
    pub answer: Vec<u32>,
}

/// The requests of all conversations, in the order they arrive.
#[derive(Debug)]
pub struct Workload {
    random: Random,
    active: Vec<Session>,
    /// Conversations that have not begun.
    waiting: u32,
    turns: u32,
}

#[derive(Debug)]
struct Session {
    history: Vec<u32>,
    turns_left: u32,
}

impl Workload {
    /// The workload of these settings. Half of the conversations go on at any time, in random alternation.
    pub fn new(demo: &Demo) -> Self {
        let mut workload = Self {
            random: Random(demo.seed),
            active: Vec::new(),
            waiting: demo.sessions,
            turns: demo.turns,
        };
        for _ in 0..demo.sessions.div_ceil(2) {
            workload.begin();
        }
        workload
    }

    fn begin(&mut self) {
        if self.waiting == 0 {
            return;
        }
        self.waiting -= 1;
        // The first system prompts are the most popular ones.
        let number = self.random.below(SYSTEM_PROMPTS).min(self.random.below(SYSTEM_PROMPTS));
        self.active.push(Session {
            history: system_prompt(number),
            turns_left: self.turns,
        });
    }
}

impl Iterator for Workload {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.active.is_empty() {
            return None;
        }
        let place = self.random.below(self.active.len() as u64) as usize;
        let question = self.random.tokens(30, 400);
        let answer = self.random.tokens(60, 500);
        let session = &mut self.active[place];
        session.history.extend(question);
        let prompt = session.history.clone();
        session.history.extend(&answer);
        session.turns_left -= 1;
        if session.turns_left == 0 {
            self.active.swap_remove(place);
            self.begin();
        }
        Some(Request { prompt, answer })
    }
}

/// The tokens of a system prompt. They depend on nothing but its number.
pub fn system_prompt(number: u64) -> Vec<u32> {
    Random(number ^ 0x5157_ea11).tokens(500, 2_500)
}

/// A small generator of random numbers (SplitMix64).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Between `least` and `most` random tokens of a vocabulary of the usual size.
    fn tokens(&mut self, least: u64, most: u64) -> Vec<u32> {
        let length = least + self.below(most - least + 1);
        (0..length).map(|_| self.below(128_000) as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_domain::Blocks;

    const DEMO: Demo = Demo {
        workers: 2,
        sessions: 9,
        turns: 4,
        cache: Blocks(100),
        seed: 7,
    };

    #[test]
    fn every_turn_of_every_conversation_comes() {
        assert_eq!(Workload::new(&DEMO).count(), 36);
    }

    #[test]
    fn a_turn_repeats_what_was_said_before_it() {
        let mut longest: Vec<Vec<u32>> = Vec::new();
        let mut continued = 0;
        for request in Workload::new(&DEMO) {
            let before = longest.iter().position(|said| request.prompt.starts_with(said));
            continued += u32::from(before.is_some());
            let said = [request.prompt, request.answer].concat();
            match before {
                Some(place) => longest[place] = said,
                None => longest.push(said),
            }
        }
        assert_eq!(continued, 9 * 3);
    }
}
